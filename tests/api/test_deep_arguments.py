"""Tool arguments that are nested more deeply than JSON encoders allow."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.inference.answer_repair import AnswerRepair
from mochi_server.tools.schema import TOO_DEEP
from mochi_server.tools.toolbox import NOT_AN_OBJECT
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reply, Text, ToolCalls
from tests.support.api import Api, error_of, types_of
from tests.support.cases import cases
from tests.support.raw_ollama import SHOW, TAGS, RawOllama, line, stream_head
from tests.support.server import RunningServer
from tests.support.stub import ModelStub
from tests.support.tools import write_tools

TOOL = '''
    def take(value: object) -> str:
        """Take a value."""
        return "taken"

    __all__ = ["take"]
    __read_only__ = ["take"]
'''


UNASKED = {"tools": ["take"], "execution_policy": "never_confirm"}


def nested(depth: int, innermost: object = 1) -> dict[str, Any]:
    """Return arguments with `depth` levels around a value."""
    value: dict[str, Any] = {"value": innermost}
    for _ in range(depth - 1):
        value = {"value": value}
    return value


def deep_call(depth: int) -> bytes:
    """Return a line with a call whose arguments have `depth` levels, more than an encoder
    allows.
    """
    arguments = b'{"value":' * depth + b"1" + b"}" * depth
    call = (
        b'{"role":"assistant","content":"[{","tool_calls":[{"function":{"name":"take","arguments":%s}}]}'
        % arguments
    )
    return b'{"model":"raw","message":%s,"done":false}\n' % call


def called_with(arguments: dict[str, Any]) -> Callable[[Prompt], Reply]:
    """Return a function whose reply to "call" is a call with these arguments."""

    def reply(prompt: Prompt) -> Reply:
        if prompt.messages[-1].role == "user" and prompt.user_text == "call":
            return Reply([ToolCalls([ToolCall("take", arguments)])])
        return Reply([Text("Fine.")])

    return reply


def asked_with_a_client_tool(api: Api, ollama: RawOllama, arguments: bytes) -> list[dict[str, Any]]:
    """Return the choices of a request whose first answer calls the client's tool with these
    arguments.
    """
    function = b'{"name":"mine","arguments":%s}' % arguments
    message = b'{"role":"assistant","content":"","tool_calls":[{"function":%s}]}' % function
    call = b'{"model":"raw","message":%s,"done":false}\n' % message
    answers = iter([call + line("", done=True), line("Fine.", done=True)])
    ollama.chat = lambda connection: connection.sendall(stream_head() + next(answers))
    body = {
        "model": "raw",
        "messages": [{"role": "user", "content": "call"}],
        "tools": [{"type": "function", "function": {"name": "mine"}}],
    }
    url = api.http.base_url.join("/v1/chat/completions")
    choices: list[dict[str, Any]] = api.ok(api.http.post(url, json=body))["choices"]
    return choices


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the tool `take`."""
    write_tools(data_dir := tmp_path_factory.mktemp("deep"), TOOL)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture(scope="module")
def raw_ollama() -> Iterator[RawOllama]:
    """An Ollama whose chat handler each case sets."""
    with_tools = b'["completion","tools"]'
    tags, show = (answer.replace(b'["completion"]', with_tools) for answer in (TAGS, SHOW))
    with RawOllama(lambda _: None, tags=tags, show=show) as ollama:
        yield ollama


@pytest.fixture
def raw_api(raw_ollama: RawOllama, tmp_path: Path) -> Iterator[Api]:
    write_tools(tmp_path, TOOL)
    with RunningServer(tmp_path, raw_ollama.url) as server:
        yield server.client


@cases(
    "arguments",
    [nested(101), nested(100, []), nested(252), nested(300)],
    ids=["101", "100 and an empty list", "252", "300"],
)
def test_call_with_too_deep_arguments_fails_and_turn_continues(
    api: Api, stub: ModelStub, arguments: dict[str, Any]
) -> None:
    session_id = api.create_session(stub.add_model(called_with(arguments)), tool_settings=UNASKED)[
        "session_id"
    ]
    events = api.stream_message(session_id, "call")
    result = next(event for event in events if event.type == "tool_result")
    assert (result.data["success"], result.data["error_code"]) == (False, "TOOL_EXECUTION_FAILED")
    assert "100 levels" in result.data["error_message"]
    assert types_of(events[-2:]) == ["message_complete", "done"]
    messages = api.messages(session_id)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {}
    assert api.send_message(session_id, "Go on")["message"]["content"] == "Fine."


def test_call_with_a_deep_id_gets_a_new_id() -> None:
    sent_id: list[Any] = []
    for _ in range(1000):
        sent_id = [sent_id]
    answer = AnswerBuilder("raw", lambda _: None, 1)
    answer.feed([{"message": {"tool_calls": [{"id": sent_id, "function": {"name": "take"}}]}}])
    assert answer.tool_calls[0]["id"].startswith("call_")


@cases("depth", [101, 300, 1000])
def test_call_with_a_deep_list_is_malformed(depth: int) -> None:
    arguments: list[Any] = []
    for _ in range(depth - 1):
        arguments = [arguments]
    answer = AnswerBuilder("raw", lambda _: None, 1)
    function = {"name": "take", "arguments": arguments}
    answer.feed([{"message": {"tool_calls": [{"function": function}]}}])
    (call,) = answer.tool_calls
    assert (call["function"]["arguments"], call["function"]["defect"]) == ({}, NOT_AN_OBJECT)


@cases("depth", [101, 250])
def test_client_receives_a_deep_list_as_text(
    raw_api: Api, raw_ollama: RawOllama, depth: int
) -> None:
    arguments = b"[" * depth + b"]" * depth
    (choice,) = asked_with_a_client_tool(raw_api, raw_ollama, arguments)
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"].encode() == arguments


@cases(
    "arguments",
    [b"[" * 300 + b"]" * 300, b'{"value":' * 101 + b"1" + b"}" * 101],
    ids=["list", "object"],
)
def test_model_gets_the_error_of_arguments_that_no_client_can_receive(
    raw_api: Api, raw_ollama: RawOllama, arguments: bytes
) -> None:
    (choice,) = asked_with_a_client_tool(raw_api, raw_ollama, arguments)
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "Fine.")
    assert "tool_calls" not in choice["message"]


def test_call_with_a_channel_and_deep_arguments_is_malformed() -> None:
    answer = AnswerBuilder("raw", lambda _: None, 1, AnswerRepair(["take"]))
    function = {"name": "take<|channel|>commentary", "arguments": nested(300)}
    answer.feed([{"message": {"tool_calls": [{"function": function}]}}])
    (call,) = answer.tool_calls
    assert (call["function"]["name"], call["function"]["defect"]) == ("take", TOO_DEEP)


@cases("depth", [800, 980, 1000, 1015, 1030, 5000])
def test_call_deeper_than_the_encoder_allows_fails_and_turn_continues(
    raw_api: Api, raw_ollama: RawOllama, depth: int
) -> None:
    answers = iter([deep_call(depth) + line("", done=True), line("Fine.", done=True)])
    raw_ollama.chat = lambda connection: connection.sendall(stream_head() + next(answers))
    session_id = raw_api.create_session("raw", tool_settings=UNASKED)["session_id"]
    answer = raw_api.send_message(session_id, "call")
    (executed,) = answer["tool_calls_executed"]
    assert (executed["success"], executed["arguments"]) == (False, {})
    assert "100 levels" in executed["error_message"]
    assert answer["message"]["content"] == "Fine."
    assert raw_api.messages(session_id)[1]["content"] == "[{"


def test_arguments_of_a_hundred_levels_are_used_and_stored(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(
        stub.add_model(called_with(nested(100))), tool_settings=UNASKED
    )["session_id"]
    (executed,) = api.send_message(session_id, "call")["tool_calls_executed"]
    assert executed["success"]
    assert api.messages(session_id)[1]["tool_calls"][0]["function"]["arguments"] == nested(100)


def test_too_deep_edited_arguments_are_refused(api: Api, stub: ModelStub) -> None:
    model = stub.add_model(called_with(nested(1)))
    session_id = api.create_session(model, tool_settings={"tools": ["take"]})["session_id"]
    with api.open_stream(session_id, "call") as events:
        approval_request = next(
            event for event in events if event.type == "tool_call_confirmation_required"
        )
        decision = {"confirmation_id": approval_request.data["confirmation_id"], "approved": True}
        refused = api.http.post(
            f"/chat/{session_id}/confirm-tool", json={**decision, "arguments": nested(101)}
        )
        assert error_of(refused) == (422, "VALIDATION_ERROR")
        api.ok(
            api.http.post(
                f"/chat/{session_id}/confirm-tool", json={**decision, "arguments": nested(100)}
            )
        )
        assert types_of(events)[-1] == "done"


@cases("depth", [246, 252, 900])
def test_stored_session_with_too_deep_arguments_can_be_read(
    api: Api, server: RunningServer, stub: ModelStub, depth: int
) -> None:
    session_id = api.create_session(stub.add_model())["session_id"]
    path = server.settings.resolved_sessions_dir / f"{session_id}.json"
    stored = orjson.loads(path.read_bytes())
    call = {"id": "call_1", "function": {"index": 0, "name": "take", "arguments": "ARGUMENTS"}}
    stored["messages"] = [
        {"role": "user", "content": "Hello!"},
        {
            "role": "assistant",
            "content": "",
            "model": stored["metadata"]["model"],
            "tool_calls": [call],
        },
        {"role": "tool", "content": "taken", "tool_name": "take", "tool_call_id": "call_1"},
    ]
    deep = b'{"value":' * depth + b"1" + b"}" * depth
    path.write_bytes(orjson.dumps(stored).replace(b'"ARGUMENTS"', deep))

    messages = api.messages(session_id)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["function"]["name"] == "take"
    assert api.ok(api.http.get("/sessions"))["sessions"][0]["message_count"] == 3
    assert api.send_message(session_id, "Go on")["message"]["content"]
    assert len(api.messages(session_id)) == 5
