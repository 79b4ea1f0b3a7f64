"""Statements of the specification that clients and tests of programs rely on."""

import logging
from pathlib import Path
from typing import Any

import pytest

from mochi_server import MochiServerSettings, create_app
from mochi_server.ollama import ChatResponse, ModelInfo, ReceivedMessage
from mochi_stub import StubServer
from tests.support.agents import delegate, nested, write_agent
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.lazy import LazyModule
from tests.support.server import RunningServer
from tests.support.waiting import until

ollama = LazyModule("ollama")
testclient = LazyModule("starlette.testclient")

SUMMARY = '{"summary": "Test summary", "topics": ["test"]}'


class OwnClient:
    def list_models(self) -> list[ModelInfo]:
        return [ModelInfo("test-model", 1000.0, capabilities=["completion"], context_length=8192)]

    def chat_stream(self, **_: Any) -> Any:
        yield ChatResponse(message=ReceivedMessage(role="assistant", content="Hello!"))
        yield ChatResponse(message=ReceivedMessage(role="assistant", content=""), done=True)


class OwnInstructor:
    """The client of the specification's chapter on mocks."""

    async def structured_response(self, model: str, messages: Any, format: Any) -> Any:
        assert (model, messages[-1]["role"]) == ("test-model", "user")
        assert format.__name__ == "ConversationSummary"
        return self.response(format)

    def response(self, _: Any) -> Any:
        message = ReceivedMessage(role="assistant", content=SUMMARY)
        return ChatResponse(message=message)


class InstructorWithDictionaries(OwnInstructor):
    def response(self, _: Any) -> Any:
        return {"message": {"role": "assistant", "content": SUMMARY}, "done": True}


class InstructorWithLibraryResponses(OwnInstructor):
    def response(self, _: Any) -> Any:
        message = ollama.Message(role="assistant", content=SUMMARY)
        return ollama.ChatResponse(message=message, done=True)


class InstructorWithInstances(OwnInstructor):
    def response(self, format: Any) -> Any:
        return format.model_validate_json(SUMMARY)


@pytest.mark.parametrize(
    "instructor",
    [
        OwnInstructor,
        InstructorWithDictionaries,
        InstructorWithLibraryResponses,
        InstructorWithInstances,
    ],
)
def test_own_instructor_client_writes_the_summary(
    tmp_path: Path, instructor: type[OwnInstructor]
) -> None:
    app = create_app(
        data_dir=str(tmp_path), ollama_client=OwnClient(), instructor_client=instructor()
    )
    with testclient.TestClient(app) as http:
        session = http.post("/api/v1/sessions", json={"model": "test-model"}).json()["session_id"]
        http.post(f"/api/v1/chat/{session}", json={"message": "Hello!"})
        summary = http.post(f"/api/v1/sessions/{session}/summarize", json={}).json()
    assert (summary["summary"], summary["topics"]) == ("Test summary", ["test"])


@pytest.mark.parametrize("instructor", [None, OwnInstructor()])
def test_own_clients_write_automatic_summaries(
    tmp_path: Path, instructor: OwnInstructor | None
) -> None:
    class Summarizing(OwnClient):
        def chat_stream(self, **_: Any) -> Any:
            message = ReceivedMessage(role="assistant", content=SUMMARY)
            yield ChatResponse(message=message, done=True)

    settings = MochiServerSettings(data_dir=str(tmp_path), summarization_interval_seconds=0)
    app = create_app(settings, ollama_client=Summarizing(), instructor_client=instructor)
    with testclient.TestClient(app) as http:
        session = http.post("/api/v1/sessions", json={"model": "test-model"}).json()["session_id"]
        http.post(f"/api/v1/chat/{session}", json={"message": "Hello!"})
        until(lambda: http.get(f"/api/v1/sessions/{session}/summary").json()["summary"])


def test_failing_own_instructor_client_is_an_error_of_ollama(tmp_path: Path) -> None:
    class Failing(OwnInstructor):
        async def structured_response(self, *_: Any, **__: Any) -> ChatResponse:
            raise ConnectionError("no connection")

    app = create_app(data_dir=str(tmp_path), ollama_client=OwnClient(), instructor_client=Failing())
    with testclient.TestClient(app, raise_server_exceptions=False) as http:
        session = http.post("/api/v1/sessions", json={"model": "test-model"}).json()["session_id"]
        http.post(f"/api/v1/chat/{session}", json={"message": "Hello!"})
        response = http.post(f"/api/v1/sessions/{session}/summarize", json={})
    assert (response.status_code, response.json()["error"]["code"]) == (502, "OLLAMA_ERROR")
    assert "no connection" in response.json()["error"]["message"]


def test_models_have_no_hosts_if_there_is_only_one(server: RunningServer) -> None:
    models = server.client.ok(server.client.http.get("/models"))["models"]
    assert models
    assert not any("hosts" in model for model in models)
    assert "hosts" not in server.client.ok(server.client.http.get("/models/mochi"))


def test_generated_clients_know_the_fields_of_windows_and_summaries(server: RunningServer) -> None:
    document = server.client.http.get(f"{server.url}/openapi.json").json()
    schemas = document["components"]["schemas"]
    fields = schemas["SessionDetail"]["properties"]
    summary, _ = fields["summary"]["anyOf"]
    assert summary["properties"].keys() == {"summary", "topics"}
    assert "current_window" in fields["context_window_config"]["properties"]
    window = schemas["MessageComplete"]["properties"]["context_window"]
    assert window["properties"].keys() == {"current_window", "usage_tokens", "reason"}
    assert "/models/test/" in document["paths"]


def test_invalid_agent_keeps_its_description(stub: StubServer, tmp_path: Path) -> None:
    write_agent(tmp_path, "helper", __init__="__all__ = []\n")
    with RunningServer(tmp_path, stub.url) as server:
        agent = server.client.ok(server.client.http.get("/agents"))["agents"]["helper"]
    assert (agent["valid"], agent["description"]) == (False, "Helps.")


@cases(
    "caller, approved, expected",
    [
        ("user", True, ["tool_call_confirmation_required", "tool_result"]),
        ("user", False, ["tool_call_confirmation_required", "tool_result"]),
        (
            "agent",
            True,
            ["tool_call_confirmation_required", "agent_tool_call", "agent_tool_result"],
        ),
        ("agent", False, ["tool_call_confirmation_required", "agent_tool_result"]),
    ],
)
def test_decided_call_has_the_events_of_its_kind(
    server: RunningServer, caller: str, approved: bool, expected: list[str]
) -> None:
    session = server.client.create_session(
        "mochi",
        tool_settings={"tools": ["note"], "execution_policy": "always_confirm"},
        agent_settings={"enabled_agents": ["helper"]},
    )
    session_id, noting = session["session_id"], (calls("note", text="hi"), words(1))
    message = instruct(*noting) if caller == "user" else nested(delegate(*noting), words(1))
    deciding, kinds = server.api(), []
    with server.client.open_stream(session_id, message) as events:
        for event in events:
            if "tool_" in event.type and event.type != "tool_continuation_start":
                kinds.append(event.type)
            if event.type == "tool_call_confirmation_required":
                decision = {
                    "confirmation_id": event.data["confirmation_id"],
                    "approved": approved,
                }
                deciding.ok(deciding.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
    assert kinds == expected


def test_debug_log_has_the_steps_of_a_turn_and_its_requests_without_text(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    session = server.client.create_session("mochi", tool_settings={"tools": ["add"]})
    with caplog.at_level(logging.DEBUG, logger="mochi_server"):
        text = instruct(calls("add", a=1, b=2), words(1), label="SECRET")
        server.client.send_message(session["session_id"], text)
    messages = [record.getMessage() for record in caplog.records]
    steps = [message for message in messages if message.startswith("Step of a turn")]
    assert [step.partition(": ")[2] for step in steps] == [
        "ask the model, phase=answer tools=True",
        "run add",
        "ask the model, phase=answer tools=True",
        "finish",
    ]
    requests = [message for message in messages if message.startswith("Request to Ollama")]
    assert len(requests) == 2
    assert "model=mochi window=8192" in requests[0]
    assert "SECRET" not in "".join(messages)
