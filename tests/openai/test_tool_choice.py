"""A required tool call: the first answer calls a tool, or the request fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.errors import StorageFailed
from mochi_server.sessions import Change, FileSessionStore
from mochi_server.sessions.types import tool_calls_of
from mochi_server.tools.call_format import call_format
from mochi_stub import StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reasoning, Reply, Text, ToolCalls
from tests.openai.conversation import LOOK, Conversation, call_of, client_of, message_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stores import with_store

WALK: Any = {
    "type": "function",
    "function": {
        "name": "walk",
        "parameters": {
            "type": "object",
            "properties": {"steps": {"$ref": "#/$defs/Steps"}},
            "required": ["steps"],
            "$defs": {"Steps": {"type": "integer"}},
        },
    },
}
NAMED: Any = {"type": "function", "function": {"name": "walk"}}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


class StubbornModel:
    """A model whose answers the test sets. `answer` is the answer to a request with a format, and
    `second` its reply, if it is not only text.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.first: Callable[[Prompt], Reply] = lambda _: Reply(
            [Reasoning("Hm. "), Text("I would rather talk.")]
        )
        self.answer = "{}"
        self.second: Reply | None = None

    def resolve(self, prompt: Prompt) -> Reply:
        if not prompt.format:
            return self.first(prompt)
        return self.second or Reply.of(self.answer)


class StoreWithoutCalls(FileSessionStore):
    """Store on a disk that has no room for calls."""

    async def write(self, session_id: str, change: Change) -> int:
        if any(tool_calls_of(message) for message in change.messages):
            raise StorageFailed("save", OSError(28, "No space left on device"))
        return await super().write(session_id, change)


@pytest.fixture(scope="module")
def stubborn_model() -> StubbornModel:
    return StubbornModel()


@pytest.fixture
def model(stubborn_model: StubbornModel) -> StubbornModel:
    stubborn_model.reset()
    return stubborn_model


@pytest.fixture(scope="module")
def stubborn_stub(stubborn_model: StubbornModel) -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=stubborn_model.resolve) as stub:
        yield stub


@pytest.fixture(scope="module")
def stubborn_server(
    stubborn_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("stubborn")
    with RunningServer(data_dir, stubborn_stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture
def stubborn(
    model: StubbornModel, stubborn_stub: StubServer, stubborn_server: RunningServer
) -> Iterator[Conversation]:
    """A conversation with a model that does not call tools."""
    del model  # reset
    with client_of(stubborn_server) as client:
        yield Conversation(
            client, stubborn_stub, asks={"tools": [LOOK, WALK], "tool_choice": "required"}
        )


@STREAMED
def test_call_of_the_first_answer_needs_no_second_request(
    conversation: Conversation, stream: bool
) -> None:
    conversation.stream = stream
    answer = conversation.send_message(
        instruct(calls("look"), words(2)), tools=[LOOK], tool_choice="required"
    )
    assert call_of(answer).function.name == "look"
    assert [sent.get("format") for sent in conversation.sent] == [None]


@pytest.mark.parametrize(
    ("choice", "names", "stream"),
    [("required", {"look", "walk"}, False), (NAMED, {"walk"}, True)],
    ids=["any", "named and streamed"],
)
def test_model_is_forced_to_call(
    conversation: Conversation, choice: Any, names: set[str], stream: bool
) -> None:
    """The default model answers with text, and its second answer matches the format."""
    conversation.stream = stream
    answer = conversation.send_message("Hello!", tools=[LOOK, WALK], tool_choice=choice)
    call = call_of(answer)
    assert call.function.name in names
    assert call.function.name != "walk" or isinstance(
        json.loads(call.function.arguments)["steps"], int
    )
    assert not message_of(answer).content
    first, second = conversation.sent
    assert ({tool["function"]["name"] for tool in first["tools"]}, first.get("format")) == (
        names,
        None,
    )
    assert "tools" not in second
    assert second["messages"][-1]["content"].startswith("Call one of these functions")
    assert all(name in second["messages"][-1]["content"] for name in names)


@pytest.mark.parametrize(("mode", "stream"), [("auto", True), ("required", False)])
def test_only_allowed_tools_are_offered(
    conversation: Conversation, mode: str, stream: bool
) -> None:
    conversation.stream = stream
    answer = conversation.send_message(
        "Hello!", tools=[LOOK, WALK], tool_choice=allowed(mode, "walk")
    )
    assert [tool["function"]["name"] for tool in conversation.sent[0]["tools"]] == ["walk"]
    calls_made: Any = message_of(answer).tool_calls or ()
    names = [call.function.name for call in calls_made]
    assert names == (["walk"] if mode == "required" else [])


def test_call_of_another_tool_gets_the_names_of_the_allowed_ones(
    conversation: Conversation,
) -> None:
    conversation.send_message(
        instruct(calls("add"), words(2)),
        extra_headers={"X-Mochi-Tools": "add"},
        tools=[LOOK],
        tool_choice=allowed("auto", "look"),
    )
    result = conversation.sent[-1]["messages"][-1]
    assert result["role"] == "tool"
    assert result["content"].endswith("Only these tools may be called now: look.")


def test_allowed_tools_must_exist(conversation: Conversation) -> None:
    refusal = conversation.refused(tools=[LOOK], tool_choice=allowed("auto", "look", "fly"))
    assert (refusal.status_code, refusal.param) == (400, "tool_choice")
    assert "'fly'" in refusal.message


@cases(
    ("fields", "param"),
    [
        ({"mode": "none", "tools": []}, "tool_choice.allowed_tools.mode"),
        ({"mode": "auto"}, "tool_choice.allowed_tools.tools"),
        ({"mode": "auto", "tools": ["look"]}, "tool_choice.allowed_tools.tools[0]"),
    ],
)
def test_invalid_allowed_tools_are_refused(
    conversation: Conversation, fields: Any, param: str
) -> None:
    refusal = conversation.refused(
        tools=[LOOK], tool_choice={"type": "allowed_tools", "allowed_tools": fields}
    )
    assert (refusal.status_code, refusal.param) == (400, param)


def allowed(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@STREAMED
def test_text_before_the_forced_call_is_dropped(
    stubborn: Conversation, model: StubbornModel, stream: bool
) -> None:
    stubborn.stream, model.answer = stream, '{"name": "walk", "arguments": {"steps": 3}}'
    answer = stubborn.send_message("Hello!")
    assert json.loads(call_of(answer).function.arguments) == {"steps": 3}
    assert not message_of(answer).content
    stubborn.send_messages(
        {"role": "tool", "tool_call_id": call_of(answer).id, "content": "done"}, tool_choice="auto"
    )
    assert message_of_last(stubborn) == "I would rather talk."


def test_reasoning_of_a_dropped_answer_is_not_returned(
    stubborn: Conversation, model: StubbornModel
) -> None:
    model.answer = '{"name": "walk", "arguments": {"steps": 3}}'
    answer = stubborn.send_message("Hello!")
    assert call_of(answer).function.name == "walk"
    assert "reasoning" not in (message_of(answer).model_extra or {})


def test_text_beside_a_call_of_the_second_answer_is_returned(
    stubborn: Conversation, model: StubbornModel
) -> None:
    """Some models call a tool as they were asked first, in spite of the format."""
    stubborn.stream = True
    call = ToolCall("walk", {"steps": 3})
    model.second = Reply([Text("I walk."), ToolCalls([call])])
    answer = stubborn.send_message("Hello!")
    assert call_of(answer).function.name == "walk"
    assert message_of(answer).content == "I walk."


@pytest.mark.parametrize("may_call_first", [True, False], ids=["first", "second"])
def test_text_beside_a_call_that_cannot_be_stored_is_stored(
    model: StubbornModel, stubborn_stub: StubServer, tmp_path: Path, may_call_first: bool
) -> None:
    reply = Reply([Text("I walk."), ToolCalls([ToolCall("walk", {"steps": 3})])])
    if may_call_first:
        model.first = lambda _: reply
    model.second = reply
    with RunningServer(tmp_path, stubborn_stub.url, with_store(StoreWithoutCalls)) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        with client_of(server) as client:
            conversation = Conversation(client, stubborn_stub)
            refusal = conversation.refused(
                tools=[WALK], tool_choice="required", extra_headers={"X-Mochi-Session": session_id}
            )
        *_, answer = server.client.messages(session_id)
    assert refusal.status_code == 500
    assert (answer["content"], answer["interrupted"]) == ("I walk.", True)


@pytest.mark.parametrize(
    ("answer", "stream"), [("{}", False), ("no", True), ('{"name": "fly", "arguments": {}}', False)]
)
def test_model_that_refuses_is_an_error(
    stubborn: Conversation, model: StubbornModel, answer: str, stream: bool
) -> None:
    stubborn.stream, model.answer, model.first = stream, answer, lambda _: Reply.of("No.")
    refusal = stubborn.refused()
    assert (refusal.status_code, refusal.code) == (502, "tool_not_called")
    assert refusal.param is None
    assert "tool_choice" in refusal.message
    assert len(stubborn.sent) == 2


def test_forced_call_is_stored_and_a_failed_one_is_not(
    stubborn: Conversation, model: StubbornModel, stubborn_server: RunningServer
) -> None:
    api = stubborn_server.client
    session_id = api.create_session("mochi")["session_id"]
    stubborn.asks["extra_headers"] = {"X-Mochi-Session": session_id}
    stubborn.refused()
    assert [message["role"] for message in api.messages(session_id)] == ["user"]
    model.answer = '{"name": "look", "arguments": {}}'
    stubborn.send_message("Hello!")
    question, answer = api.messages(session_id)
    assert (question["content"], answer["content"]) == ("Hello!", "")
    assert [call["function"]["name"] for call in answer["tool_calls"]] == ["look"]


def test_server_tool_is_forced_once(conversation: Conversation) -> None:
    headers = {"X-Mochi-Tools": "add"}
    choice: Any = {"type": "function", "function": {"name": "add"}}
    answer: Any = conversation.send_message("Hello!", extra_headers=headers, tool_choice=choice)
    (executed,) = answer.mochi["tool_calls_executed"]
    assert (executed["tool_name"], executed["success"]) == ("add", True)
    assert message_of(answer).content
    assert [bool(sent.get("format")) for sent in conversation.sent] == [False, True, False]


def test_answer_with_an_unknown_call_is_not_accepted(
    stubborn: Conversation, model: StubbornModel
) -> None:
    model.first = lambda _: Reply([ToolCalls([ToolCall("fly")])])
    model.answer = '{"name": "look", "arguments": {}}'
    assert call_of(stubborn.send_message("Hello!")).function.name == "look"


def test_call_that_was_not_offered_is_not_returned_to_the_client(
    conversation: Conversation,
) -> None:
    answer = conversation.send_message(
        instruct(calls("walk", "look"), words(2)), tools=[LOOK, WALK], tool_choice=NAMED
    )
    assert call_of(answer).function.name == "walk"


def test_only_the_first_of_parallel_calls_is_made_on_request(conversation: Conversation) -> None:
    text = instruct(calls("look", "look", at="sky"), words(2))
    answer: Any = conversation.send_message(text, tools=[LOOK], parallel_tool_calls=False)
    assert call_of(answer).function.name == "look"
    assert answer.mochi["notices"] == []


@cases(
    "asks",
    [
        {"tool_choice": "required"},
        {"tool_choice": NAMED},
        {"tool_choice": NAMED, "tools": [LOOK]},
        {"tool_choice": "required", "model": "agent:helper"},
    ],
    ids=str,
)
def test_required_call_needs_a_tool(conversation: Conversation, asks: Any) -> None:
    refusal = conversation.refused(**asks)
    assert (refusal.status_code, refusal.param) == (400, "tool_choice")
    assert conversation.sent == []


def test_definitions_of_tools_do_not_collide() -> None:
    other = {
        "function": {"name": "run", "parameters": {"$ref": "#/$defs/Steps", "$defs": {"Steps": {}}}}
    }
    schema = call_format([WALK, other])
    walk, run = schema["anyOf"]
    assert walk["properties"]["arguments"]["properties"]["steps"] == {"$ref": "#/$defs/0.Steps"}
    assert run["properties"]["arguments"] == {"$ref": "#/$defs/1.Steps"}
    assert schema["$defs"] == {"0.Steps": {"type": "integer"}, "1.Steps": {}}


@pytest.mark.parametrize("definitions", [None, []])
def test_definitions_that_are_no_object_are_ignored(definitions: Any) -> None:
    parameters = {"type": "object", "$defs": definitions, "definitions": definitions}
    schema = call_format([{"function": {"name": "run", "parameters": parameters}}])
    assert schema["properties"]["arguments"] == {"type": "object"}
    assert "$defs" not in schema


def message_of_last(conversation: Conversation) -> str:
    return str(conversation.messages[-1]["content"])
