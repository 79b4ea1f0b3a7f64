"""The library examples of the specification."""

import importlib
import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

import mochi_server
from mochi_server import MochiServerSettings, create_app, services, sessions
from mochi_server.agents import AgentDiscoveryService
from mochi_server.dependencies import get_ollama_client, get_session_manager, get_settings
from mochi_server.errors import StorageFailed, ValidationFailed
from mochi_server.ollama import ChatResponse, ModelInfo, OllamaClient, ReceivedMessage
from mochi_server.ollama.injected_client import InjectedOllamaClient
from mochi_server.sessions import SessionManager
from mochi_server.sessions.session import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.sessions.types import SessionCreationOptions
from mochi_server.tools import ToolDiscoveryService
from mochi_server.web.middleware import ignore_trailing_slash
from mochi_stub import StubServer
from tests.support.lazy import LazyModule

ollama = LazyModule("ollama")
testclient = LazyModule("starlette.testclient")


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
        pieces = list(
            client.chat_stream(
                "mochi", [{"role": "user", "content": "Hello!"}], context_window=8192
            )
        )
    assert "".join(piece.message.content for piece in pieces).endswith("Hello!")
    assert [piece["done"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (pieces[0]["message"]["role"], pieces[0].message.tool_calls) == ("assistant", None)
    assert not hasattr(pieces[0].message, "colour")
    with pytest.raises(KeyError):
        pieces[0]["colour"]


def test_synchronous_stream_has_a_synchronous_signature() -> None:
    signature = inspect.signature(OllamaClient.chat_stream)
    names = ["self", "model", "messages", "tools", "think", "context_window"]
    assert list(signature.parameters) == names
    assert signature.return_annotation == Iterator[ChatResponse]
    assert not hasattr(OllamaClient.chat_stream, "__wrapped__")


def test_models_read_like_those_of_the_ollama_library(stub: StubServer) -> None:
    with OllamaClient(host=stub.url) as client:
        model = next(model for model in client.list_models() if model.name == "mochi-chat:latest")
        details = client.show_model_details("mochi-chat")
    assert model.capabilities == details.capabilities == ["completion"]
    assert (
        details.modelinfo[f"{model.family}.context_length"]
        == details.context_length
        == model.context_length
    )


def test_client_accepts_messages_and_tools_of_the_ollama_library(stub: StubServer) -> None:
    def read_file(path: str) -> str:
        """Read a file."""
        return path

    tool = ollama.Tool(
        type="function", function=ollama.Tool.Function(name="read_file", description="Read a file.")
    )
    messages: list[Any] = [ollama.Message(role="user", content="Hello!")]
    with OllamaClient(host=stub.url) as client:
        (call,) = client.chat("tool-caller", messages, [tool]).message.tool_calls
        with pytest.raises(TypeError, match="function"):
            client.chat("tool-caller", messages, [read_file])  # type: ignore[list-item]
    assert call["function"]["name"] == "read_file"


def test_services_have_the_names_of_the_specification() -> None:
    assert set(services.__all__) >= {
        "CompareService",
        "ConversationSummary",
        "DynamicContextWindowService",
        "ImportExportService",
        "SessionService",
        "SummarizationService",
        "SummaryModelManager",
        "SystemPromptService",
    }


def test_summary_model_skips_the_models_of_the_specification() -> None:
    created = "2025-01-15T10:30:00"
    metadata = sessions.SessionMetadata(
        session_id="a1b2c3d4e5",
        model="gpt-oss:20b",
        created_at=created,
        updated_at=created,
        summary_model="mochi",
    )
    assert services.SummaryModelManager().choose(metadata) == "mochi"


@pytest.mark.parametrize("content", ["", " \n", "x" * 10_000])
def test_prompt_content_can_be_validated(tmp_path: Path, content: str) -> None:
    prompts = services.SystemPromptService(tmp_path)
    prompts.validate("x" * 9_999)
    with pytest.raises(ValidationFailed, match="content"):
        prompts.validate(content)


def test_prompt_path_that_is_too_long_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        services.SystemPromptService(tmp_path / ("d" * 300)).create("a.md", "Be kind.")


def test_services_accept_directories_as_strings(tmp_path: Path) -> None:
    prompts = services.SystemPromptService(str(tmp_path))
    prompts.create("a.md", "Be kind.")
    assert [prompt.filename for prompt in prompts.list()] == ["a.md"]
    assert SessionManager(str(tmp_path)).list_sessions() == []
    assert ToolDiscoveryService(str(tmp_path)).discover().tools == {}
    assert AgentDiscoveryService(str(tmp_path)).discover() == {}


def test_app_works_with_the_test_client_twice(tmp_path: Path, stub: StubServer) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path))
    for _ in range(2):
        with testclient.TestClient(app) as client:
            created = client.post("/api/v1/sessions", json={"model": "mochi"})
            assert created.status_code == 201
            session_id = created.json()["session_id"]
            assert (
                client.post(f"/api/v1/chat/{session_id}", json={"message": "Hello!"}).status_code
                == 200
            )


async def test_app_answers_in_process(tmp_path: Path, stub: StubServer) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client,
    ):
        assert (await client.get("/api/v1/models")).status_code == 200
        assert (await client.get("/api/v1/sessions")).json() == {"sessions": []}


def test_message_types_can_be_stored(tmp_path: Path) -> None:
    manager = SessionManager(tmp_path)
    session = manager.create_session(SessionCreationOptions(model="m"))
    messages = [
        # The store adds the missing IDs and times.
        UserMessage(role="user", content="Hi"),  # type: ignore[typeddict-item]
        AssistantMessage(role="assistant", content="Hello", model="m"),  # type: ignore[typeddict-item]
        ToolMessage(role="tool", content="5", tool_name="add"),  # type: ignore[typeddict-item]
    ]
    stored = manager.append_messages(session.session_id, messages).history
    assert [message["role"] for message in stored] == ["user", "assistant", "tool"]
    system = SystemMessage(role="system", content="Be brief.", message_id="a", timestamp="")
    assert system["role"] == "system"
    assert {UserMessage, AssistantMessage, ToolMessage, SystemMessage} == {
        *(
            sessions.UserMessage,
            sessions.AssistantMessage,
            sessions.ToolMessage,
            sessions.SystemMessage,
        )
    }


def test_dependencies_serve_own_routes(tmp_path: Path, stub: StubServer) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path))

    def own(
        settings: Annotated[MochiServerSettings, Depends(get_settings)],
        client: Annotated[OllamaClient, Depends(get_ollama_client)],
        manager: Annotated[SessionManager, Depends(get_session_manager)],
    ) -> list[Any]:
        return [settings.ollama_host, client.list_models()[0].name, len(manager.list_sessions())]

    app.add_api_route("/own", own)
    with testclient.TestClient(app) as http:
        http.post("/api/v1/sessions", json={"model": "mochi"})
        assert http.get("/own").json() == [stub.url, "mochi:latest", 1]


def test_own_routes_and_mounts_keep_the_slash_at_the_end(tmp_path: Path, stub: StubServer) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path / "data"))
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("Hello!")
    app.mount("/ui", StaticFiles(directory=pages, html=True))
    items = APIRouter(prefix="/items")
    items.add_api_route("/", lambda: ["a"])
    app.include_router(items)
    with testclient.TestClient(app) as http:
        assert http.get("/items/").json() == ["a"]
        assert http.get("/ui/").text == "Hello!"


async def test_routes_of_the_server_ignore_a_slash_at_the_end(tmp_path: Path) -> None:
    app = create_app(data_dir=str(tmp_path))
    received = []

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        received.append(scope["path"])

    async def no_messages(*_: Any) -> Any:
        raise NotImplementedError

    routes = [route for route in app.routes if isinstance(route, Route)]
    paths = [route.path.rstrip("/") for route in routes if route.path != "/"]
    for path in paths:
        scope = {"type": "http", "path": f"{path}/"}
        await ignore_trailing_slash(record)(scope, no_messages, no_messages)
    assert received == paths


def test_dependencies_serve_an_own_app_and_direct_calls(
    tmp_path: Path, stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOCHI_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("MOCHI_OLLAMA_HOST", stub.url)
    settings = get_settings()
    assert settings.ollama_host == stub.url
    assert get_session_manager(settings).list_sessions() == []
    with get_ollama_client(settings) as client:
        assert client.list_models()
    app = FastAPI()
    app.state.settings = {"debug": True}
    app.state.ollama_client = object()

    def own(
        client: Annotated[OllamaClient, Depends(get_ollama_client)],
        manager: Annotated[SessionManager, Depends(get_session_manager)],
    ) -> list[Any]:
        return [client.list_models()[0].name, manager.list_sessions()]

    app.add_api_route("/own", own)
    with testclient.TestClient(app) as http:
        assert http.get("/own").json() == ["mochi:latest", []]


class OwnClient:
    """Client with one model. It answers each request with the text of the last message."""

    def __init__(self, *, is_asynchronous: bool) -> None:
        self.is_asynchronous = is_asynchronous

    def list_models(self) -> list[ModelInfo]:
        return [
            ModelInfo(
                name="test-model",
                size_mb=1000.0,
                capabilities=("completion", "tools"),
                context_length=8192,
            )
        ]

    def chat_stream(self, **request: Any) -> Any:
        responses = [
            ChatResponse(
                message=ReceivedMessage(
                    role="assistant", content=request["messages"][-1]["content"]
                )
            ),
            ChatResponse(
                message=ReceivedMessage(role="assistant", content=""),
                done=True,
                prompt_eval_count=20,
            ),
        ]
        return (
            self._asynchronous(responses) if self.is_asynchronous else self._synchronous(responses)
        )

    def _synchronous(self, responses: list[ChatResponse]) -> Iterator[ChatResponse]:
        yield from responses

    async def _asynchronous(self, responses: list[ChatResponse]) -> AsyncIterator[ChatResponse]:
        for response in responses:
            yield response


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_own_client_answers_in_place_of_ollama(tmp_path: Path, is_asynchronous: bool) -> None:
    client = OwnClient(is_asynchronous=is_asynchronous)
    app = create_app(MochiServerSettings(data_dir=str(tmp_path)), ollama_client=client)
    for _ in range(2):
        with testclient.TestClient(app) as http:
            assert http.get("/api/v1/health").json()["ollama_connected"]
            session_id = http.post("/api/v1/sessions", json={"model": "test-model"}).json()[
                "session_id"
            ]
            answer = http.post(f"/api/v1/chat/{session_id}", json={"message": "Hello!"}).json()[
                "message"
            ]
            assert (answer["content"], answer["prompt_eval_count"]) == ("Hello!", 20)
            assert http.post("/api/v1/sessions", json={"model": "other"}).status_code == 404


async def test_error_of_the_server_is_not_an_error_of_the_own_client() -> None:
    client = InjectedOllamaClient(OwnClient(is_asynchronous=True), "http://own")

    def fail(_: object) -> None:
        raise ValueError("the server has a fault")

    messages = [{"role": "user", "content": "Hello!"}]
    with pytest.raises(ValueError, match="the server has a fault"):
        await client.post_chat({"model": "test-model", "messages": messages}, fail)
    await client.aclose()


def test_own_client_serves_own_routes(tmp_path: Path) -> None:
    app = create_app(data_dir=str(tmp_path), ollama_client=OwnClient(is_asynchronous=False))

    def own(client: Annotated[OllamaClient, Depends(get_ollama_client)]) -> str:
        return client.list_models()[0].name

    app.add_api_route("/own", own)
    with testclient.TestClient(app) as http:
        assert http.get("/own").json() == "test-model"


def _ollama_responses() -> list[Any]:
    call = ollama.Message.ToolCall(
        function=ollama.Message.ToolCall.Function(name="add", arguments={"a": 1})
    )
    return [
        ollama.ChatResponse(
            message=ollama.Message(role="assistant", content="Hello!", tool_calls=[call]),
            done=False,
        ),
        ollama.ChatResponse(
            message=ollama.Message(role="assistant", content=" Bye."),
            done=True,
            eval_count=10,
            prompt_eval_count=20,
        ),
    ]


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_own_client_can_return_responses_of_the_ollama_library(
    tmp_path: Path, is_dictionary: bool
) -> None:
    class Calling(OwnClient):
        def chat_stream(self, **request: Any) -> Any:
            responses = _ollama_responses()[request["messages"][-1]["role"] == "tool" :]
            return [response.model_dump() if is_dictionary else response for response in responses]

    client = Calling(is_asynchronous=False)
    with testclient.TestClient(
        create_app(MochiServerSettings(data_dir=str(tmp_path)), ollama_client=client)
    ) as http:
        session_id = http.post("/api/v1/sessions", json={"model": "test-model"}).json()[
            "session_id"
        ]
        answer = http.post(f"/api/v1/chat/{session_id}", json={"message": "Hello!"}).json()
        messages = http.get(f"/api/v1/sessions/{session_id}/messages").json()["messages"]
    assert answer["message"]["prompt_eval_count"] == 20
    assert messages[1]["content"] == "Hello! Bye."
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


def test_failing_own_client_is_an_error_of_ollama(tmp_path: Path) -> None:
    class Failing(OwnClient):
        def chat_stream(self, **_: Any) -> Any:
            return iter(())

    app = create_app(data_dir=str(tmp_path), ollama_client=Failing(is_asynchronous=False))
    with testclient.TestClient(app) as http:
        session_id = http.post("/api/v1/sessions", json={"model": "test-model"}).json()[
            "session_id"
        ]
        response = http.post(f"/api/v1/chat/{session_id}", json={"message": "Hello!"})
    assert (response.status_code, response.json()["error"]["code"]) == (502, "OLLAMA_ERROR")


def test_own_client_that_cannot_list_models_is_an_error_of_ollama(tmp_path: Path) -> None:
    class Failing(OwnClient):
        def list_models(self) -> list[ModelInfo]:
            raise ConnectionError("no connection")

    app = create_app(data_dir=str(tmp_path), ollama_client=Failing(is_asynchronous=False))
    with testclient.TestClient(app, raise_server_exceptions=False) as http:
        response = http.get("/api/v1/models")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "OLLAMA_ERROR")
    assert "no connection" in response.json()["error"]["message"]


def test_own_client_computes_no_embeddings(tmp_path: Path) -> None:
    app = create_app(data_dir=str(tmp_path), ollama_client=OwnClient(is_asynchronous=False))
    with testclient.TestClient(app) as http:
        response = http.post("/v1/embeddings", json={"model": "test-model", "input": "Hello!"})
    assert (response.status_code, response.json()["error"]["code"]) == (502, "ollama_error")
    assert "injected client" in response.json()["error"]["message"]


def test_app_on_open_address_logs_its_generated_key(
    tmp_path: Path, stub: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(ollama_host=stub.url, data_dir=str(tmp_path), host="0.0.0.0")  # noqa: S104 - in process
    with (
        caplog.at_level(logging.WARNING),
        testclient.TestClient(app, base_url="http://192.168.1.5") as http,
    ):
        (secret,) = app.state.settings.api_keys
        key = secret.get_secret_value()
        assert key in caplog.text
        assert http.get("/api/v1/sessions").status_code == 401
        assert (
            http.get("/api/v1/sessions", headers={"Authorization": f"Bearer {key}"}).status_code
            == 200
        )


def test_packages_list_their_public_names() -> None:
    assert dir(mochi_server) == ["MochiServerSettings", "__version__", "create_app"]


@pytest.mark.parametrize(
    "module", ["agents", "chat", "models", "sessions", "system_prompts", "tools"]
)
def test_schemas_have_the_module_names_of_the_specification(module: str) -> None:
    schemas = importlib.import_module(f"mochi_server.schemas.{module}")
    specified = importlib.import_module(f"mochi_server.models.{module}")
    classes = {name for name, value in vars(schemas).items() if inspect.isclass(value)}
    assert {name for name in classes if not name.startswith("_")} <= vars(specified).keys()
