"""Anthropic's Messages API with its official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from mochi_stub import Cut, Failure, Model, Prompt, Reply, StubServer, Text, ToolCall, Usage
from mochi_stub.replies import hash_sized
from tests.stub.clients import anthropic_client, stub_replying, type_names
from tests.stub.requests import send_request
from tests.support.cases import cases
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = LazyModule("anthropic")


HELLO: Any = [{"role": "user", "content": "hello"}]
TOOLS: Any = [{"name": "now", "description": "the time", "input_schema": {"type": "object"}}]


@pytest.fixture(scope="module")
def module_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def client(module_stub: StubServer) -> Iterator[anthropic.Anthropic]:
    with anthropic_client(module_stub) as client:
        yield client


def events(stub: StubServer, **fields: Any) -> list[tuple[str, Any]]:
    """Return name and data of a stream's events. Each name must equal its type."""
    body = {"model": "mochi", "messages": HELLO, "max_tokens": 1000, "stream": True, **fields}
    answer = send_request(stub, "POST", "/v1/messages", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *frames, rest = answer.body.decode().split("\n\n")
    assert rest == ""
    pairs = [frame.split("\ndata: ") for frame in frames]
    found = [(name.removeprefix("event: "), json.loads(data)) for name, data in pairs]
    assert all(name == data["type"] for name, data in found)
    return found


def test_stream_sends_its_events_in_order() -> None:
    calls = [ToolCall("read_file", {"path": "/src/main.js"}, id="toolu_mine"), ToolCall("now")]
    with stub_replying(Reply.of(("one", " two"), reasoning=("hm",), tool_calls=calls)) as stub:
        stream = events(stub)
    assert [(name, data.get("index")) for name, data in stream] == [
        ("message_start", None),
        ("ping", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        *[("content_block_delta", 2)] * 3,
        ("content_block_stop", 2),
        ("content_block_start", 3),
        *[("content_block_delta", 3)] * 2,
        ("content_block_stop", 3),
        ("message_delta", None),
        ("message_stop", None),
    ]
    begun = [data["content_block"] for name, data in stream if name == "content_block_start"]
    assert begun[:3] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "toolu_mine", "name": "read_file", "input": {}},
    ]
    assert begun[3]["id"].startswith("toolu_")
    deltas = [data["delta"] for name, data in stream if name == "content_block_delta"]
    kinds = [
        "thinking_delta",
        "signature_delta",
        "text_delta",
        "text_delta",
        *["input_json_delta"] * 5,
    ]
    assert [delta["type"] for delta in deltas] == kinds
    assert "".join(delta["partial_json"] for delta in deltas[4:7]) == '{"path":"/src/main.js"}'
    message = stream[0][1]["message"]
    assert (message["role"], message["content"], message["stop_reason"]) == ("assistant", [], None)
    assert stream[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_usage_includes_cached_tokens() -> None:
    usage = Usage(input=500, output=1000, reasoning=2000, cache_read=10, cache_creation=5)
    with stub_replying(Reply.of("text", usage=usage)) as stub, anthropic_client(stub) as client:
        whole = client.messages.create(model="mochi", messages=HELLO, max_tokens=9999).usage
        stream = events(stub)
    assert (whole.input_tokens, whole.output_tokens) == (500, 1000)
    assert (whole.cache_read_input_tokens, whole.cache_creation_input_tokens) == (10, 5)
    assert stream[0][1]["message"]["usage"] == {
        "input_tokens": 500,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 10,
        "output_tokens": 1,
    }
    assert stream[-2][1]["usage"] == {
        "input_tokens": 500,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 10,
        "output_tokens": 1000,
        "output_tokens_details": {"thinking_tokens": 2000},
    }


def test_matched_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    request: Any = {
        "model": "mochi",
        "messages": HELLO,
        "max_tokens": 999,
        "stop_sequences": ["never", "ipsum"],
    }
    message = client.messages.create(**request)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "ipsum")
    with client.messages.stream(**request) as stream:
        assert stream.get_final_message().stop_sequence == "ipsum"


def test_limit_before_the_stop_sequence_names_no_sequence(client: anthropic.Anthropic) -> None:
    message = client.messages.create(
        model="mochi", messages=HELLO, max_tokens=1, stop_sequences=["ipsum"]
    )
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)


def test_tool_loop_ends(client: anthropic.Anthropic) -> None:
    plan = {"messages": [{"tool_call": [{"name": "now", "args": {"a": 1}}]}]}
    messages: Any = [
        {"role": "user", "content": f"<|instruction_start|>{json.dumps(plan)}<|instruction_end|>"}
    ]
    request: Any = {"model": "mochi", "messages": messages, "tools": TOOLS, "max_tokens": 9999}
    first = client.messages.create(**request)
    (use,) = first.content
    assert use.type == "tool_use"
    assert (use.input, first.stop_reason) == ({"a": 1}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "noon"}
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    last = client.messages.create(**request)
    assert last.stop_reason == "end_turn"
    assert [block.text for block in last.content if block.type == "text"] == [
        f"{hash_sized('noon')} noon"
    ]


class Person(BaseModel):
    name: str
    age: int


def test_answer_matches_the_schema(client: anthropic.Anthropic) -> None:
    parsed = client.messages.parse(
        model="mochi", messages=HELLO, max_tokens=9999, output_format=Person
    ).parsed_output
    assert isinstance(parsed, Person)


def test_messages_of_all_kinds_reach_the_model() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    messages: Any = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image", "source": source}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "let me"},
                {"type": "tool_use", "id": "t1", "name": "now", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [
                        {"type": "text", "text": "noon"},
                        {
                            "type": "search_result",
                            "source": "a",
                            "title": "b",
                            "content": [{"type": "text", "text": "found"}],
                        },
                        {"type": "image", "source": source},
                    ],
                },
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    system: Any = [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}]
    request: Any = {"model": "mochi", "messages": messages, "max_tokens": 2048, "tools": TOOLS}
    with stub_replying(resolve) as stub, anthropic_client(stub) as client:
        sampling = {"stop_sequences": ["x"], "temperature": 0.5, "top_k": 3}
        client.messages.create(**request, system=system, extra_body=sampling)
        client.messages.create(
            **request, thinking={"type": "disabled"}, tool_choice={"type": "none"}
        )
        client.messages.create(**request, thinking={"type": "enabled", "budget_tokens": 1024})
    system_message, user, assistant, tool, last = seen[0].messages
    assert (system_message.role, system_message.content) == ("system", "be kind")
    assert (user.content, user.images) == ("look", 1)
    assert (assistant.thinking, assistant.content) == ("hm", "let me")
    assert assistant.tool_calls == (ToolCall("now", {"a": 1}, "t1"),)
    assert (tool.role, tool.content, tool.images, tool.tool_call_id) == (
        "tool",
        "noon\nfound",
        1,
        "t1",
    )
    assert (last.role, last.content, last.images) == ("user", "go on", 0)
    expected = {"temperature": 0.5, "top_k": 3, "stop": ["x"], "num_predict": 2048}
    assert {name: seen[0].options[name] for name in expected} == expected
    assert [
        (prompt.requested_thinking, prompt.includes_reasoning, len(prompt.tools)) for prompt in seen
    ] == [
        (None, True, 1),
        (False, False, 0),
        (True, True, 1),
    ]


def test_tools_that_anthropic_runs_are_not_offered() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    tools: Any = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        {"type": "mcp_toolset", "mcp_server_name": "files"},
        {"type": "browser_toolset_20260801"},
        {"type": "computer_toolset_20260801"},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "custom", **TOOLS[0]},
    ]
    with stub_replying(resolve) as stub, anthropic_client(stub) as client:
        client.messages.create(model="mochi", messages=HELLO, max_tokens=9, tools=tools)
    names = [tool["function"]["name"] for tool in seen[0].tools]
    assert names == ["bash", TOOLS[0]["name"]]


def test_blocks_of_tools_that_anthropic_runs_have_no_effect() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.of("ok")

    all_types = type_names(anthropic.types.beta.BetaContentBlockParam)
    read = {"text", "image", "document", "search_result", "thinking", "redacted_thinking"}
    read |= {"tool_use", "tool_result"}
    ignored = all_types - read
    assert {"server_tool_use", "mcp_tool_result", "container_upload"} < ignored
    blocks: list[Any] = [{"type": name} for name in sorted(ignored)]
    use = {"type": "tool_use", "id": "t1", "name": "now", "input": {}}
    nested = [{"type": "tool_reference", "tool_name": "now"}, {"type": "browser_state"}]
    nested.append({"type": "text", "text": "noon"})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": nested}
    messages = [
        *HELLO,
        {"role": "assistant", "content": [*blocks, {"type": "text", "text": "hm"}, use]},
        {"role": "user", "content": [*blocks, result]},
    ]
    with stub_replying(resolve) as stub:
        body = {"model": "mochi", "messages": messages, "max_tokens": 9}
        answer = send_request(stub, "POST", "/v1/messages", body)
        unknown = [{"role": "user", "content": [{"type": "nope"}]}]
        refused = send_request(stub, "POST", "/v1/messages", {**body, "messages": unknown})
    assert answer.status == 200, answer.body
    assert refused.status == 400
    contents = [(message.role, message.content) for message in seen[0].messages]
    assert contents == [("user", "hello"), ("assistant", "hm"), ("tool", "noon")]


def test_token_count_equals_the_usage_of_the_message(client: anthropic.Anthropic) -> None:
    request: Any = {"model": "mochi", "messages": HELLO, "system": "be kind", "tools": TOOLS}
    counted = client.messages.count_tokens(**request).input_tokens
    assert counted == client.messages.create(**request, max_tokens=9999).usage.input_tokens


def test_client_reads_all_models(five_models: StubServer) -> None:
    with anthropic_client(five_models) as client:
        assert [model.id for model in client.models.list(limit=2)] == ["m0", "m1", "m2", "m3", "m4"]


@pytest.fixture(scope="module")
def five_models() -> Iterator[StubServer]:
    with StubServer(models=[Model(f"m{index}") for index in range(5)], speed=0) as stub:
        yield stub


def test_models_are_listed_and_shown() -> None:
    with (
        StubServer(models=[Model("claude-3-opus"), Model("other")], speed=0) as stub,
        anthropic_client(stub) as client,
    ):
        assert [model.id for model in client.models.list()] == ["claude-3-opus", "other"]
        assert client.models.retrieve("claude-3-opus").display_name == "claude-3-opus"
        headers = {"anthropic-version": "2023-06-01"}
        shown = send_request(stub, "GET", "/v1/models/claude-3-opus", headers=headers).json
        assert anthropic.types.ModelInfo.model_validate(shown).lifecycle == "active"
        with pytest.raises(anthropic.NotFoundError, match="model: nope"):
            client.models.retrieve("nope")


def test_errors_are_raised_as_errors_of_the_client() -> None:
    def resolve(prompt: Prompt) -> Reply:
        return Reply([Failure("no", int(prompt.user_text))])

    kinds = {
        400: (anthropic.BadRequestError, "invalid_request_error"),
        401: (anthropic.AuthenticationError, "authentication_error"),
        403: (anthropic.PermissionDeniedError, "permission_error"),
        429: (anthropic.RateLimitError, "rate_limit_error"),
        500: (anthropic.InternalServerError, "api_error"),
        503: (anthropic.InternalServerError, "overloaded_error"),
        529: (anthropic.InternalServerError, "overloaded_error"),
    }
    with stub_replying(resolve) as stub, anthropic_client(stub) as client:
        for status, (kind, name) in kinds.items():
            for stream in (True, False):
                messages: Any = [{"role": "user", "content": str(status)}]
                with pytest.raises(kind) as caught:
                    client.messages.create(
                        model="mochi", messages=messages, max_tokens=9, stream=stream
                    )
                body: Any = caught.value.body
                assert (caught.value.status_code, body["error"]) == (
                    status,
                    {"type": name, "message": "no"},
                )
                assert body["request_id"] == caught.value.request_id
                assert caught.value.response.headers.get("retry-after") == (
                    "1" if status == 429 else None
                )


def test_failure_in_mid_stream_is_raised_after_first_chunks() -> None:
    with (
        stub_replying(Reply([Text(("one",)), Failure("come back", 529)])) as stub,
        anthropic_client(stub) as client,
    ):
        stream = iter(
            client.messages.create(model="mochi", messages=HELLO, max_tokens=9, stream=True)
        )
        received = [next(stream).type for _ in range(3)]
        assert received == ["message_start", "content_block_start", "content_block_delta"]
        with pytest.raises(anthropic.APIStatusError, match="come back"):
            next(stream)
        name, data = events(stub)[-1]
    assert (name, data["error"]) == ("error", {"type": "overloaded_error", "message": "come back"})


def test_cut_ends_the_stream_without_a_stop_event() -> None:
    with stub_replying(Reply([Text(("one",)), Cut()])) as stub:
        assert [name for name, _ in events(stub)][-1] == "content_block_delta"


@cases(
    ("fields", "message"),
    [
        ({"max_tokens": None}, "Invalid value for max_tokens: expected a value, found nothing"),
        ({"messages": None}, "Invalid value for messages: expected a value, found nothing"),
        ({"model": None}, "Invalid value for model: expected a value, found nothing"),
        (
            {"max_tokens": 0},
            "Invalid value for max_tokens: expected integer of at least 1, found 0",
        ),
        (
            {"max_tokens": 2**63},
            "Invalid value for max_tokens: expected integer of at most 9223372036854775807, found "
            "9223372036854775808",
        ),
        ({"max_tokens": "9"}, 'Invalid value for max_tokens: expected integer, found "9"'),
        ({"messages": []}, "Invalid value for messages: expected at least 1 item, found []"),
        ({"messages": "hello"}, 'Invalid value for messages: expected array, found "hello"'),
        (
            {"messages": [{"role": "boss", "content": ""}]},
            "Invalid value for messages[0].role: expected one of user, assistant, system, found "
            '"boss"',
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 2000},
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "Invalid value for messages[0].content[0].source: expected a value, found nothing",
        ),
        (
            {"tools": [{"input_schema": {}}]},
            "Invalid value for tools[0].name: expected a value, found nothing",
        ),
        (
            {"tools": [{"type": "bash_20250124", "name": 5}]},
            "Invalid value for tools[0].name: expected string, found 5",
        ),
        (
            {"output_config": {"effort": "much"}},
            "Invalid value for output_config.effort: expected one of low, medium, high, xhigh, "
            'max, found "much"',
        ),
    ],
)
def test_invalid_fields_are_named(
    module_stub: StubServer, fields: dict[str, Any], message: str
) -> None:
    body = {"model": "mochi", "messages": HELLO, "max_tokens": 9, **fields}
    answer = send_request(module_stub, "POST", "/v1/messages", body)
    assert answer.status == 400
    assert answer.json["type"] == "error"
    assert answer.json["error"] == {"type": "invalid_request_error", "message": message}


@pytest.mark.parametrize("number", [5, pytest.param(50, marks=pytest.mark.nightly)])
async def test_concurrent_streams_of_the_async_client_do_not_mix(
    module_stub: StubServer, number: int
) -> None:
    async with anthropic.AsyncAnthropic(base_url=module_stub.url, api_key="x") as client:

        async def stream_message(text: str) -> None:
            messages: Any = [{"role": "user", "content": text}]
            async with client.messages.stream(
                model="mochi", messages=messages, max_tokens=9999
            ) as stream:
                answer = await stream.get_final_text()
            assert answer == f"{hash_sized(text)} {text}"

        await asyncio.gather(*(stream_message(f"question {index}") for index in range(number)))


def test_tool_runner_sends_the_whole_conversation(client: anthropic.Anthropic) -> None:
    from anthropic import beta_tool

    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        return f"Sunny in {city}."

    runner = client.beta.messages.tool_runner(
        model="mochi-demo",
        max_tokens=1000,
        tools=[beta_tool(get_weather)],
        messages=[{"role": "user", "content": "Call get_weather for Oslo."}],
    )
    calling, answer = [message.content for message in runner]
    assert [block.type for block in calling if block.type == "tool_use"]
    assert "Sunny in" in "".join(block.text for block in answer if block.type == "text")


def test_thread_is_refused_with_the_details_that_clients_know(module_stub: StubServer) -> None:
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    body = {"model": "mochi", "messages": HELLO, "max_tokens": 9, "thread": thread}
    answer = send_request(module_stub, "POST", "/v1/messages", body)
    assert answer.status == 400
    assert answer.json["error"]["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }
