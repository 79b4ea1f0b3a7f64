"""JSON schemas in `format`, `response_format` and `text.format`: answers are checked, repaired or
refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.container import Components
from mochi_stub import Failure, Reply, StubServer, Text
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Gate, Reasoning, ToolCalls
from tests.openai.conversation import LOOK, Conversation, call_of, client_of, message_of
from tests.support.agents import write_agent
from tests.support.api import Api, error_of, text_of, types_of
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CITY: Any = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "people": {"type": "integer"}},
    "required": ["name", "people"],
    "additionalProperties": False,
}
TOOLS = '''
    def look() -> str:
        """Look at the city."""
        return "It is big."

    __all__ = ["look"]
    __read_only__ = ["look"]
    __views__ = ["look"]
'''
FENCED = '```json\n{"name": "Oslo"}\n```'
WRONG, RIGHT = '{"name": "oslo", "people": "many"}', '{"name": "Oslo", "people": 700000}'
FORM: Any = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}
TEXT: Any = {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}


class CarelessModel:
    """A model whose first answer to each question does not fit.

    `repaired` is its answer to the correction.

    If `calls_tools` is true, it answers the correction with a tool call where the request offers a
    tool.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.calls_tools = False
        self.first: Reply = Reply.of(WRONG)
        self.repaired: Reply = Reply.of(RIGHT)

    def resolve(self, prompt: Prompt) -> Reply:
        if not prompt.user_text.startswith("That does not fit"):
            return Reply.of(WRONG) if prompt.after_tools else self.first
        return (
            Reply([ToolCalls((ToolCall("look", {}),))])
            if self.calls_tools and prompt.tools
            else self.repaired
        )


@pytest.fixture(scope="module")
def careless_model() -> CarelessModel:
    return CarelessModel()


@pytest.fixture
def model(careless_model: CarelessModel) -> CarelessModel:
    careless_model.reset()
    return careless_model


@pytest.fixture(scope="module")
def stub(careless_model: CarelessModel) -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=careless_model.resolve) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    write_tools(directory := tmp_path_factory.mktemp("format"), TOOLS)
    write_agent(directory)
    with RunningServer(directory, stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture
def api(server: RunningServer, model: CarelessModel) -> Api:
    del model  # reset
    return server.client


@pytest.fixture
def conversation(
    server: RunningServer, stub: StubServer, model: CarelessModel
) -> Iterator[Conversation]:
    del model  # reset
    stub.clear_exchanges()
    with client_of(server) as client:
        yield Conversation(client, stub, asks={"response_format": FORM})


@STREAMED
def test_repaired_answer_fits_the_schema(conversation: Conversation, stream: bool) -> None:
    conversation.stream = stream
    for number in range(2):
        conversation.messages.clear()
        answer = conversation.send_message(f"City {number}?")
        assert message_of(answer).content == RIGHT
        assert answer.choices[0].finish_reason == "stop"
    assert len(conversation.sent) == 4


@STREAMED
def test_model_that_always_fails_ends_the_answer(
    conversation: Conversation, model: CarelessModel, stream: bool
) -> None:
    conversation.stream, model.repaired = stream, Reply.of('{"name": "Still wrong"}')
    error = conversation.refused()
    assert (error.status_code, error.code) == (502, "format_not_met")
    assert "'people' is a required property. Use another model" in error.message
    assert error.message.endswith('Its last answer: {"name": "Still wrong"}')
    assert len(conversation.sent) == 2


def test_usage_of_a_repaired_answer_has_both_attempts(conversation: Conversation) -> None:
    repaired = conversation.send_message("A city?").usage
    conversation.messages.clear()
    plain = conversation.send_message("A city?", response_format={"type": "text"}).usage
    assert repaired is not None
    assert plain is not None
    assert repaired.prompt_tokens > 2 * plain.prompt_tokens
    assert repaired.completion_tokens > plain.completion_tokens


def test_repair_continues_the_request(conversation: Conversation) -> None:
    conversation.send_message("A city?", temperature=0.5, max_tokens=99)
    first, repair = conversation.sent
    assert repair["messages"][: len(first["messages"])] == first["messages"]
    answer, correction = repair["messages"][len(first["messages"]) :]
    assert answer == {"role": "assistant", "content": WRONG}
    assert "people: 'many' is not of type 'integer'" in correction["content"]
    assert "name: 'oslo' does not match '^[A-Z]'" in correction["content"]
    assert {**first, "messages": []} == {**repair, "messages": []}
    assert repair["truncate"] is False
    assert repair["options"]["num_ctx"] > 0


@STREAMED
def test_repair_cannot_be_answered_with_a_tool_call(
    conversation: Conversation, model: CarelessModel, stream: bool
) -> None:
    conversation.stream, model.calls_tools = stream, True
    answer = conversation.send_message("A city?", tools=[LOOK])
    assert message_of(answer).content == RIGHT
    first, repair = conversation.sent
    assert first["tools"]
    assert "tools" not in repair


@STREAMED
def test_any_json_object_is_one_answer_if_tools_are_offered(
    conversation: Conversation, model: CarelessModel, stream: bool
) -> None:
    model.first = Reply.of(FENCED)
    asks: Any = {"tools": [LOOK], "response_format": {"type": "json_object"}}
    conversation.stream = stream
    assert message_of(conversation.send_message("A city?", **asks)).content == RIGHT
    conversation.messages.clear()
    conversation.client = conversation.client.with_options(
        default_headers={"X-Mochi-Tools": "look"}
    )
    del asks["tools"]
    assert message_of(conversation.send_message("A city?", **asks)).content == RIGHT


def test_any_json_object_is_streamed_if_no_tools_are_offered(
    conversation: Conversation, model: CarelessModel
) -> None:
    gate = Gate()
    model.first = Reply([Text(WRONG), gate])
    create: Any = conversation.client.chat.completions.create
    question = {"role": "user", "content": "A city?"}
    asks = {"response_format": {"type": "json_object"}, "tools": [LOOK], "tool_choice": "none"}
    chunks = create(model="mochi", messages=[question], stream=True, **asks)
    texts = (chunk.choices[0].delta.content for chunk in chunks)
    first = next(text for text in texts if text)
    gate.open()
    assert first + "".join(text or "" for text in texts) == WRONG


@STREAMED
def test_responses_api(conversation: Conversation, model: CarelessModel, stream: bool) -> None:
    create = conversation.client.responses.create

    def answer() -> Any:
        answered: Any = create(model="mochi", input="A city?", text=TEXT, stream=stream)
        return [*answered][-1].response if stream else answered

    assert answer().output_text == RIGHT
    model.repaired = Reply.of(WRONG)
    import openai

    with pytest.raises(openai.APIStatusError, match="Its last answer"):
        answer()


def test_native_stream_replaces_the_text(api: Api, model: CarelessModel) -> None:
    model.first = Reply([Reasoning("Hm."), Text(WRONG)])
    session_id = api.create_session("mochi")["session_id"]
    events = api.stream_message(session_id, "A city?", format=CITY)
    assert text_of(events) == WRONG
    assert types_of(events[-3:]) == ["snapshot", "message_complete", "done"]
    assert events[-3].data["content"] == RIGHT
    assert [message["content"] for message in api.messages(session_id)] == ["A city?", RIGHT]
    assert events[-2].data["message_id"] == api.messages(session_id)[-1]["message_id"]


def test_collected_native_answer_fits(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi", format=CITY)["session_id"]
    assert api.send_message(session_id, "A city?")["message"]["content"] == RIGHT
    stub.clear_exchanges()
    assert api.send_message(session_id, "And now?", format="json")["message"]["content"] == WRONG
    assert len(chats(stub)) == 1


@pytest.mark.parametrize("text", ["No.", '{"name": "Os'], ids=["no JSON", "half of it"])
def test_native_error_carries_the_text(api: Api, model: CarelessModel, text: str) -> None:
    model.repaired = Reply.of(text)
    session_id = api.create_session("mochi")["session_id"]
    events = api.stream_message(session_id, "A city?", format=CITY)
    assert types_of(events[-2:]) == ["error", "done"]
    assert events[-2].data["code"] == "FORMAT_NOT_MET"
    assert events[-2].data["details"]["text"] == text
    _, stored = api.messages(session_id)
    assert (stored["content"], stored["interrupted"]) == (text, True)
    response = api.http.post(f"/chat/{session_id}", json={"message": "A city?", "format": CITY})
    assert error_of(response) == (502, "FORMAT_NOT_MET")


def test_failed_repair_carries_the_first_text(api: Api, model: CarelessModel) -> None:
    model.repaired = Reply([Failure("out of luck")])
    response = api.http.post(
        f"/chat/{api.create_session('mochi')['session_id']}",
        json={"message": "A city?", "format": CITY},
    )
    assert error_of(response) == (502, "FORMAT_NOT_MET")
    assert response.json()["error"]["details"]["text"] == WRONG


def test_repair_that_finds_ollama_busy_can_be_sent_again(api: Api, model: CarelessModel) -> None:
    model.repaired = Reply([Failure("too many", 503)])
    session_id = api.create_session("mochi")["session_id"]
    response = api.http.post(f"/chat/{session_id}", json={"message": "A city?", "format": CITY})
    assert error_of(response) == (503, "OLLAMA_BUSY")
    assert int(response.headers["retry-after"]) > 0
    _, stored = api.messages(session_id)
    assert (stored["content"], stored["interrupted"]) == (WRONG, True)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/city.json"},
        {"type": "object", "properties": {"name": {"pattern": r"\p{Lu}"}}},
    ],
    ids=["reference", "pattern"],
)
def test_schema_that_cannot_be_checked_passes_with_a_warning(api: Api, schema: Any) -> None:
    answer = api.send_message(api.create_session("mochi")["session_id"], "A city?", format=schema)
    assert answer["message"]["content"] == WRONG
    assert [warning["code"] for warning in answer["warnings"]] == ["FORMAT_NOT_CHECKED"]


def test_tool_round_is_not_checked(conversation: Conversation, model: CarelessModel) -> None:
    model.first = Reply([Text("Let me look."), ToolCalls((ToolCall("look", {}),))])
    answer = conversation.send_message("A city?", tools=[LOOK])
    assert call_of(answer).function.name == "look"
    assert message_of(answer).content == "Let me look."
    assert len(conversation.sent) == 1


@STREAMED
def test_text_before_a_call_of_a_server_tool_is_reasoning(
    conversation: Conversation, model: CarelessModel, stream: bool
) -> None:
    model.first = Reply([Text("Let me look."), ToolCalls((ToolCall("look", {}),))])
    conversation.client = conversation.client.with_options(
        default_headers={"X-Mochi-Tools": "look"}
    )
    conversation.stream = stream
    message: Any = message_of(conversation.send_message("A city?"))
    assert (message.content, message.reasoning_content) == (RIGHT, "Let me look.")
    create: Any = conversation.client.responses.create
    answered = create(model="mochi", input="A city?", text=TEXT, stream=stream)
    assert ([*answered][-1].response if stream else answered).output_text == RIGHT


def test_stopped_answer_is_not_checked(api: Api, stub: StubServer, model: CarelessModel) -> None:
    gate = Gate()
    model.first = Reply([Text(WRONG), gate])
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "A city?", format=CITY) as events:
        next(events)
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        assert types_of(events)[-2:] == ["stopped", "done"]
    gate.open()
    assert api.messages(session_id)[-1]["content"] == WRONG


AG_UI: Any = {
    "threadId": "1",
    "runId": "1",
    "state": {},
    "tools": [],
    "context": [],
    "messages": [{"id": "1", "role": "user", "content": "A city?"}],
    "forwardedProps": {"format": CITY},
}
AI_SDK: Any = {
    "id": "1",
    "trigger": "submit-message",
    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "A city?"}]}],
    "format": CITY,
}


@pytest.mark.parametrize(
    ("route", "body"), [("ag-ui", AG_UI), ("ai-sdk", AI_SDK)], ids=["ag-ui", "ai-sdk"]
)
def test_frontends_receive_only_text_that_fits(api: Api, route: str, body: Any) -> None:
    session_id = api.create_session("mochi")["session_id"]
    assert deltas_of(api, session_id, route, body) == RIGHT


def deltas_of(api: Api, session_id: str, route: str, body: Any) -> str:
    """Send a request of a frontend, and return the text of the answer."""
    data = api.http.post(f"/chat/{session_id}/{route}", json=body).text
    events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: {")]
    deltas = [
        event["delta"]
        for event in events
        if event["type"] in ("TEXT_MESSAGE_CONTENT", "text-delta")
    ]
    return "".join(deltas)


@pytest.mark.parametrize(
    "enabled",
    [
        {"tool_settings": {"tools": ["look"]}},
        {"tool_settings": {"tool_group": "views"}},
        {"agent_settings": {"enabled_agents": ["helper"]}},
    ],
    ids=["tool", "group", "agent"],
)
def test_frontends_receive_only_one_json_object_in_a_session_with_tools(
    api: Api, model: CarelessModel, enabled: Any
) -> None:
    model.first = Reply.of(FENCED)
    session_id = api.create_session("mochi", format="json", **enabled)["session_id"]
    assert deltas_of(api, session_id, "ai-sdk", {**AI_SDK, "format": None}) == RIGHT


def test_held_text_is_bridged_by_pings(
    stub: StubServer, tmp_path: Path, model: CarelessModel
) -> None:
    with RunningServer(tmp_path, stub.url, Components(ping_seconds=0.05)) as server:
        check_pings(server, model)


def check_pings(server: RunningServer, model: CarelessModel) -> None:
    api = server.client
    asks = {
        "model": "mochi",
        "messages": [{"role": "user", "content": "A city?"}],
        "response_format": FORM,
    }
    session_id = api.create_session("mochi")["session_id"]
    requests: Any = [
        (f"{server.url}/v1/chat/completions", {**asks, "stream": True}),
        (f"{server.url}/api/v1/chat/{session_id}/ai-sdk", AI_SDK),
    ]
    for url, body in requests:
        gate = Gate()
        model.first = Reply([Text(WRONG), gate])
        with api.http.stream("POST", url, json=body) as response:
            data, seen = response.iter_raw(), b""
            while b": ping\n\n" not in seen:
                seen += next(data)
            assert b"oslo" not in seen
            gate.open()
            assert b"oslo" not in b"".join(data)


def test_anthropic_client_receives_only_text_that_fits(api: Api) -> None:
    body = {
        "model": "mochi",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "A city?"}],
        "output_config": {"format": {"type": "json_schema", "schema": CITY}},
        "stream": True,
    }
    url = str(api.http.base_url).removesuffix("/api/v1/")
    data = api.http.post(f"{url}/v1/messages", json=body).text
    events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: {")]
    texts = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(texts) == RIGHT
