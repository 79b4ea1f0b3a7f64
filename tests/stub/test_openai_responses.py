"""OpenAI's Responses API with the official client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from mochi_stub import Failure, Prompt, Reply, StubServer, Text, ToolCall, Usage
from mochi_stub.replies import hash_sized
from tests.stub.clients import openai_client, stub_replying, type_names
from tests.stub.requests import send_request
from tests.support.cases import cases
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import openai
else:
    openai = LazyModule("openai")


TOOLS: Any = [
    {"type": "function", "name": "now", "parameters": {"type": "object"}, "strict": False}
]


@pytest.fixture(scope="module")
def module_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def client(module_stub: StubServer) -> Iterator[openai.OpenAI]:
    with openai_client(module_stub) as client:
        yield client


def test_truncated_reply_is_incomplete(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="echo", input="xyz", max_output_tokens=2)
    assert [item.to_dict()["status"] for item in whole.output] == ["incomplete"]
    events = list(
        client.responses.create(model="echo", input="xyz", max_output_tokens=2, stream=True)
    )
    done = next(event for event in events if event.type == "response.output_item.done")
    assert done.item.to_dict()["status"] == "incomplete"
    assert (
        client.responses.create(model="echo", input="xyz").output[0].to_dict()["status"]
        == "completed"
    )


def events_of(stub: StubServer, request: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return names and data of the events of a stream."""
    answer = send_request(stub, "POST", "/v1/responses", {**request, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, rest = answer.body.decode().split("\n\n")
    assert rest == ""
    pairs = [frame.split("\n") for frame in frames]
    return [
        (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        for name, data in pairs
    ]


@cases("included", [True, False])
def test_response_has_log_probabilities_on_request(module_stub: StubServer, included: bool) -> None:
    include = ["message.output_text.logprobs"] if included else []
    request = {"model": "token-stream", "input": "hé", "include": include, "top_logprobs": 3}
    whole = send_request(module_stub, "POST", "/v1/responses", request).json["output"][0][
        "content"
    ][0]
    events = events_of(module_stub, request)
    deltas = [
        entry
        for name, data in events
        if name == "response.output_text.delta"
        for entry in data["logprobs"]
    ]
    (done,) = [data for name, data in events if name == "response.output_text.done"]
    final = events[-1][1]["response"]["output"][0]["content"][0]
    for entries in (whole["logprobs"], deltas, done["logprobs"], final["logprobs"]):
        assert "".join(entry["token"] for entry in entries) == (whole["text"] if included else "")
        assert {len(entry["top_logprobs"]) for entry in entries} == ({3} if included else set())


def test_stream_has_events_for_each_item_in_order() -> None:
    calls = [ToolCall("read_file", {"path": "/src/main.js"}, id="call_mine")]
    reply = Reply.of(("one", " two"), reasoning=("hm",), tool_calls=calls)
    with stub_replying(reply) as stub, openai_client(stub) as client:
        events = list(client.responses.create(model="mochi", input="hello", stream=True))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last: Any = events[-1]
    done: list[Any] = [event for event in events if event.type == "response.output_item.done"]
    assert [event.item for event in done] == last.response.output
    assert [event.output_index for event in done] == [0, 1, 2]
    assert last.response.output[2].call_id == "call_mine"
    items: list[Any] = [event for event in events if hasattr(event, "item_id")]
    assert [event.item_id for event in items] == [
        last.response.output[event.output_index].id for event in items
    ]
    begun: Any = events[0]
    assert (begun.response.status, begun.response.output, begun.response.usage) == (
        "in_progress",
        [],
        None,
    )
    assert begun.response.id == last.response.id


def test_event_names_are_their_types(module_stub: StubServer) -> None:
    events = events_of(module_stub, {"model": "mochi", "input": "hello"})
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    assert events[-1][0] == "response.completed"


def test_client_helper_assembles_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="mochi", input="hello") as stream:
        final = stream.get_final_response()
    assert final.output_text == f"{hash_sized('hello')} hello"
    assert final.status == "completed"


def test_usage_includes_reasoning_and_cached_tokens() -> None:
    usage = Usage(input=100, output=50, reasoning=25, cache_read=10)
    with stub_replying(Reply.of("text", usage=usage)) as stub, openai_client(stub) as client:
        reported = client.responses.create(model="mochi", input="hello").usage
    assert reported
    assert (reported.input_tokens, reported.output_tokens, reported.total_tokens) == (100, 50, 150)
    assert reported.output_tokens_details.reasoning_tokens == 25
    assert reported.input_tokens_details.to_dict() == {"cached_tokens": 10, "cache_write_tokens": 0}


def test_tool_loop_ends(client: openai.OpenAI) -> None:
    plan = {"messages": [{"tool_call": [{"name": "now", "args": {}}]}]}
    items: Any = [
        {"role": "user", "content": f"<|instruction_start|>{json.dumps(plan)}<|instruction_end|>"}
    ]
    first = client.responses.create(model="mochi", input=items, tools=TOOLS)
    (call,) = first.output
    assert call.type == "function_call"
    items += [
        *first.output,
        {"type": "function_call_output", "call_id": call.call_id, "output": "noon"},
    ]
    assert (
        client.responses.create(model="mochi", input=items, tools=TOOLS).output_text
        == f"{hash_sized('noon')} noon"
    )


class Person(BaseModel):
    name: str
    age: int


def test_answer_matches_the_schema(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(model="mochi", input="hello", text_format=Person).output_parsed
    assert isinstance(parsed, Person)
    answer = client.responses.create(
        model="mochi", input="hello", text={"format": {"type": "json_object"}}
    )
    assert isinstance(json.loads(answer.output_text), dict)


def test_items_of_all_kinds_reach_the_model() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    items: Any = [
        {"role": "developer", "content": "be brief"},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "x", "detail": "auto"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "ah"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "let me"}],
        },
        {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": '{"a":1}'},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "noon"},
                {"type": "input_image", "image_url": "x"},
            ],
        },
    ]
    with stub_replying(resolve) as stub, openai_client(stub) as client:
        client.responses.create(
            model="mochi", instructions="be kind", input=items, tools=TOOLS, max_output_tokens=9
        )
        client.responses.create(
            model="mochi",
            input="hello",
            tools=[*TOOLS, {"type": "web_search"}],
            reasoning={"effort": "none"},
        )
    system, developer, user, assistant, tool = seen[0].messages
    assert [(one.role, one.content) for one in (system, developer)] == [
        ("system", "be kind"),
        ("system", "be brief"),
    ]
    assert (user.content, user.images) == ("look", 1)
    assert (assistant.thinking, assistant.content) == ("hm\nah", "let me")
    assert assistant.tool_calls == (ToolCall("now", {}, "c1"), ToolCall("now", {"a": 1}, "c2"))
    assert (tool.role, tool.content, tool.tool_call_id) == ("tool", "noon", "c1")
    assert tool.images == 1
    assert seen[0].options["num_predict"] == 9
    assert [tool["function"]["name"] for tool in seen[1].tools] == ["now"]
    assert not seen[1].includes_reasoning


def test_calls_of_custom_tools_reach_the_model() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    items: Any = [
        {"role": "user", "content": "look"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.txt"},
    ]
    with stub_replying(resolve) as stub, openai_client(stub) as client:
        client.responses.create(model="mochi", input=items)
    _, assistant, tool = seen[0].messages
    assert assistant.tool_calls == (ToolCall("shell", {"input": "ls"}, "c1"),)
    assert (tool.role, tool.content, tool.tool_call_id) == ("tool", "a.txt", "c1")


def test_items_of_tools_that_openai_runs_have_no_effect() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    all_types = type_names(openai.types.responses.ResponseInputItemParam)
    read = {"message", "reasoning", "function_call", "function_call_output"}
    read |= {"custom_tool_call", "custom_tool_call_output"}
    ignored = all_types - read
    assert {"web_search_call", "mcp_call", "compaction"} < ignored
    items = [{"role": "user", "content": "hello"}, *({"type": name} for name in sorted(ignored))]
    with stub_replying(resolve) as stub:
        body = {"model": "mochi", "input": items}
        answer = send_request(stub, "POST", "/v1/responses", body)
    assert answer.status == 200, answer.body
    assert [message.content for message in seen[0].messages] == ["hello"]


def test_answer_repeats_the_parameters_of_the_request(client: openai.OpenAI) -> None:
    parameters: dict[str, Any] = {
        "instructions": "be kind",
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "tools": TOOLS,
        "user": "ann",
    }
    answer = client.responses.create(model="mochi", input="hello", **parameters)
    echoed = answer.to_dict()
    assert {name: echoed[name] for name in parameters} == parameters
    assert (answer.object, answer.model, answer.parallel_tool_calls) == ("response", "mochi", True)


def test_response_has_all_required_fields() -> None:
    calls = [ToolCall("now", {"a": 1})]
    reply = Reply.of("one", reasoning="hm", tool_calls=calls, usage=Usage(cache_creation=5))
    request = {"model": "mochi", "input": "hello"}
    with stub_replying(reply) as stub:
        whole = send_request(stub, "POST", "/v1/responses", request).json
        _, last = events_of(stub, request)[-1]
    for body in (whole, last["response"]):
        response = openai.types.responses.Response.model_validate(body)
        assert response.usage
        assert response.usage.input_tokens_details.cache_write_tokens == 5


def test_failure_in_mid_stream_is_a_failed_response() -> None:
    with (
        stub_replying(Reply([Text(("one",)), Failure("slow down", 429)])) as stub,
        openai_client(stub) as client,
    ):
        last: Any = list(client.responses.create(model="mochi", input="hello", stream=True))[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert (last.response.error.code, last.response.error.message) == (
        "rate_limit_exceeded",
        "slow down",
    )


@cases(
    ("fields", "param", "code"),
    [
        ({"input": None}, "input", None),
        ({"input": [{"type": "nope"}]}, "input[0].type", None),
        ({"input": [{"role": "user"}]}, "input[0].content", None),
        ({"tools": [{"type": "function"}]}, "tools[0].name", None),
        ({"reasoning": {"effort": "much"}}, "reasoning.effort", None),
        ({"max_output_tokens": 0}, "max_output_tokens", None),
        ({"background": True}, "background", "unsupported_value"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "previous_response_not_found"),
    ],
)
def test_invalid_fields_are_named(
    module_stub: StubServer, fields: dict[str, Any], param: str, code: str | None
) -> None:
    answer = send_request(
        module_stub, "POST", "/v1/responses", {"model": "mochi", "input": "hello", **fields}
    )
    assert (answer.status, answer.json["error"]["param"], answer.json["error"]["code"]) == (
        400,
        param,
        code,
    )
