"""The library examples of the specification."""

from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from mochi_server import MochiServerSettings, create_app, services
from mochi_server.errors import StorageFailed
from mochi_server.ollama import ChatResponse, OllamaClient, ReceivedMessage
from mochi_stub import StubServer


def test_settings_of_the_specification_work(tmp_path: Path) -> None:
    settings = MochiServerSettings(
        data_dir=str(tmp_path),
        sessions_dir="sessions",
        tools_dir="tools",
        agents_dir="agents",
        system_prompts_dir="system_prompts",
    )
    assert settings.resolved_sessions_dir == tmp_path / "sessions"


def test_chat_response_can_be_constructed() -> None:
    response = ChatResponse(message=ReceivedMessage(role="assistant", content="Hello!"), done=False)
    assert response.message["content"] == "Hello!"


def test_chat_response_reads_like_that_of_the_ollama_library(stub: StubServer) -> None:
    with OllamaClient(host=stub.url) as client:
        pieces = list(client.chat_stream("mochi", [{"role": "user", "content": "Hello!"}], context_window=8192))
    assert "".join(piece.message.content for piece in pieces).endswith("Hello!")
    assert [piece["done"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (pieces[0]["message"]["role"], pieces[0].message.tool_calls) == ("assistant", None)
    assert not hasattr(pieces[0].message, "colour")
    with pytest.raises(KeyError):
        pieces[0]["colour"]


def test_services_have_the_names_of_the_specification() -> None:
    assert set(services.__all__) >= {
        "ConversationSummary",
        "DynamicContextWindowService",
        "SummarizationService",
        "SummaryModelManager",
        "SystemPromptService",
    }


def test_prompt_path_that_is_too_long_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        services.SystemPromptService(tmp_path / ("d" * 300)).create("a.md", "Be kind.")


def test_app_works_with_the_test_client_twice(tmp_path: Path, stub: StubServer) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path))
    for _ in range(2):
        with TestClient(app) as client:
            created = client.post("/api/v1/sessions", json={"model": "mochi"})
            assert created.status_code == 201
            session_id = created.json()["session_id"]
            assert client.post(f"/api/v1/chat/{session_id}", json={"message": "Hello!"}).status_code == 200


async def test_app_answers_in_process(tmp_path: Path, stub: StubServer) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client,
    ):
        assert (await client.get("/api/v1/models")).status_code == 200
        assert (await client.get("/api/v1/sessions")).json() == {"sessions": []}
