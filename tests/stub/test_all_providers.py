"""Behavior that all APIs share: replies, errors in the form of each provider, CORS and API keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import mochi_stub.providers
from mochi_stub import (
    Choice,
    Cut,
    Failure,
    Gate,
    Model,
    Prompt,
    Reasoning,
    Reply,
    StubServer,
    Text,
    ToolCall,
    ToolCalls,
    Usage,
)
from mochi_stub.providers.provider_pipeline import apply_stop_conditions
from mochi_stub.replies import hash_sized, lorem
from mochi_stub.reply import Part, Pause
from tests.stub.clients import (
    ClientReply,
    chat_reply,
    gemini_reply,
    message_reply,
    ollama_reply,
    openai_client,
    response_reply,
    stub_replying,
)
from tests.stub.requests import RawResponse, keep_alive, raw_connection, send_on, send_request
from tests.support.cases import cases

GetReply = Callable[..., ClientReply]

READERS: dict[str, GetReply] = {
    "ollama": ollama_reply,
    "chat": chat_reply,
    "response": response_reply,
    "message": message_reply,
    "gemini": gemini_reply,
}
FINISHES = {
    "ollama": {"stop": "stop", "length": "length", "calls": "stop"},
    "chat": {
        "stop": "stop",
        "length": "length",
        "calls": "tool_calls",
        "content_filter": "content_filter",
    },
    "response": {
        "stop": "completed",
        "length": "max_output_tokens",
        "calls": "completed",
        "content_filter": "content_filter",
    },
    "message": {
        "stop": "end_turn",
        "length": "max_tokens",
        "calls": "tool_use",
        "content_filter": "refusal",
    },
    "gemini": {"stop": "STOP", "length": "MAX_TOKENS", "calls": "STOP", "content_filter": "SAFETY"},
}
HELLO = [{"role": "user", "content": "hello"}]
CONTENTS = [{"parts": [{"text": "hello"}]}]
TEXT = 'one  two\n\nthree "four" \U0001f361 \u2028 five six seven\\ '
CALLS = [
    ToolCall("now"),
    ToolCall("read_file", {"path": "/src/main.js", "lines": [1, 2.5, None, {"ü": True}]}),
]
PATHS = {
    "ollama": "/api/chat",
    "chat": "/v1/chat/completions",
    "completion": "/v1/completions",
    "response": "/v1/responses",
    "message": "/v1/messages",
    "gemini": "/v1beta/models/mochi:generateContent",
    "gemini stream": "/v1beta/models/mochi:streamGenerateContent",
}


def body(wire: str, text: str = "hello", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    bodies: dict[str, dict[str, Any]] = {
        "completion": {"model": "mochi", "prompt": text},
        "response": {"model": "mochi", "input": text},
        "message": {"model": "mochi", "messages": messages, "max_tokens": 9999},
        "gemini": {"contents": [{"parts": [{"text": text}]}]},
        "gemini stream": {"contents": [{"parts": [{"text": text}]}]},
    }
    if wire.startswith("gemini"):  # these APIs set streaming in the path
        fields.pop("stream", None)
    return {**bodies.get(wire, {"model": "mochi", "messages": messages}), **fields}


def send_message(stub: StubServer, wire: str, text: str = "hello", **fields: Any) -> RawResponse:
    return send_request(stub, "POST", PATHS[wire], body(wire, text, **fields))


@cases("stream", [True, False])
@cases("wire", READERS)
def test_reply_is_the_same_on_every_api(wire: str, stream: bool) -> None:
    reply = Reply.of(TEXT, reasoning="let me  see\n", tool_calls=CALLS)
    with stub_replying(reply) as stub:
        received = READERS[wire](stub, "hello", stream=stream)
    assert (received.text, received.reasoning) == (TEXT, "let me  see\n")
    assert received.calls == [(call.name, call.arguments) for call in CALLS]
    assert received.finish == FINISHES[wire]["calls"]


@cases("wire", READERS)
def test_cut_does_not_truncate_a_reply_that_is_not_streamed(wire: str) -> None:
    opened = Gate()
    opened.open()
    with stub_replying(
        Reply([Reasoning("hm"), Text("one"), opened, Cut(), Text("two"), ToolCalls(CALLS)])
    ) as stub:
        received = READERS[wire](stub, "hello", stream=False)
    assert (received.text, received.reasoning, len(received.calls)) == ("onetwo", "hm", len(CALLS))


@cases("stream", [True, False])
@cases("wire", READERS)
def test_usage_is_counted_in_characters_on_every_api(wire: str, stream: bool) -> None:
    with stub_replying(Reply.of("0123456789", reasoning="abc")) as stub:
        received = READERS[wire](stub, "hello", stream=stream)
    assert received.usage is not None
    count_prompt_tokens, produced = received.usage
    assert produced == 13
    if wire != "ollama":  # these tests offer a tool, which counts
        assert count_prompt_tokens == len("hello")


COUNTS = ("prompt_eval_count", "prompt_tokens", "input_tokens", "promptTokenCount", "totalTokens")
COUNTING: dict[str, dict[str, Any]] = {
    "/api/chat": {"messages": HELLO, "stream": False},
    "/api/generate": {"prompt": "hello", "stream": False},
    "/api/generate raw": {"prompt": "hello", "stream": False, "raw": True},
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1beta/models/mochi:generateContent": {"contents": CONTENTS},
    "/v1beta/models/mochi:countTokens": {"contents": CONTENTS},
}


def count_prompt_tokens(stub: StubServer, path: str, body: dict[str, Any]) -> int:
    answer = send_request(stub, "POST", path, {"model": "mochi", **body}).json
    usage: dict[str, int] = {**answer, **answer.get("usage", {}), **answer.get("usageMetadata", {})}
    return next(usage[name] for name in COUNTS if name in usage)


@cases("place", COUNTING)
def test_prompt_tokens_are_those_of_its_text(stub: StubServer, place: str) -> None:
    assert count_prompt_tokens(stub, place.removesuffix(" raw"), COUNTING[place]) == len("hello")


def test_tool_calls_results_and_tools_count_as_tokens(stub: StubServer) -> None:
    tool = {"type": "function", "function": {"name": "now"}}
    call: dict[str, Any] = {
        "id": "1",
        "type": "function",
        "function": {"name": "now", "arguments": '{"at":1}'},
    }
    question: list[dict[str, Any]] = [{"role": "system", "content": "be kind"}, *HELLO]
    called = {"role": "assistant", "content": "so", "tool_calls": [call]}
    messages = [*question, called, {"role": "tool", "tool_call_id": "1", "content": "noon"}]
    expected_tokens = sum(map(len, ("be kind", "hello", "so", 'now{"at":1}', "noon")))
    assert (
        count_prompt_tokens(stub, "/v1/chat/completions", {"messages": messages}) == expected_tokens
    )
    offered = {"messages": messages, "tools": [tool]}
    assert count_prompt_tokens(stub, "/v1/chat/completions", offered) == expected_tokens + len(
        json.dumps([tool], separators=(",", ":"))
    )
    call["function"]["arguments"] = {"at": 1}
    assert (
        count_prompt_tokens(stub, "/api/chat", {"messages": messages, "stream": False})
        == expected_tokens
    )


@cases("stream", [True, False])
@cases("wire", READERS)
def test_given_usage_is_used_on_every_api(wire: str, stream: bool) -> None:
    with stub_replying(
        Reply.of("Hello", usage=Usage(input=500, output=1000, reasoning=300))
    ) as stub:
        assert READERS[wire](stub, "hello", stream=stream).usage == (500, 1000)


@cases("stream", [True, False])
@cases(
    ("wire", "finish"),
    [(wire, name) for wire in READERS for name in FINISHES[wire] if name != "calls"],
)
def test_finish_reasons_are_those_of_the_provider(wire: str, finish: Any, stream: bool) -> None:
    with stub_replying(Reply.of("Hello", finish=finish)) as stub:
        assert READERS[wire](stub, "hello", stream=stream).finish == FINISHES[wire][finish]


@cases("stream", [True, False])
@cases(
    ("wire", "limit"),
    [
        ("ollama", {"num_predict": 4}),
        ("chat", {"max_tokens": 4}),
        ("chat", {"max_completion_tokens": 4}),
        ("response", {"max_output_tokens": 4}),
        ("message", {"max_tokens": 4}),
        ("gemini", {"max_output_tokens": 4}),
    ],
)
def test_token_limit_truncates_the_reply(wire: str, limit: dict[str, Any], stream: bool) -> None:
    with stub_replying(Reply.of("0123456789", tool_calls=CALLS)) as stub:
        received = READERS[wire](stub, "hello", stream=stream, **limit)
    assert (received.text, received.calls, received.finish) == (
        "0123",
        [],
        FINISHES[wire]["length"],
    )


@cases(
    ("wire", "stop", "finish"),
    [
        ("ollama", {"stop": ["67", "45"]}, "stop"),
        ("chat", {"stop": ["67", "45"]}, "stop"),
        ("chat", {"stop": "45"}, "stop"),
        ("message", {"stop_sequences": ["67", "45"]}, "stop_sequence"),
        ("gemini", {"stop_sequences": ["67", "45"]}, "STOP"),
    ],
)
def test_stop_sequence_ends_the_reply(wire: str, stop: dict[str, Any], finish: str) -> None:
    with stub_replying(Reply.of("0123456789")) as stub:
        for stream in (True, False):
            received = READERS[wire](stub, "hello", stream=stream, **stop)
            assert (received.text, received.finish) == ("0123", finish)


@cases("stream", [True, False])
@cases(
    ("parts", "stop", "reasoning", "text"),
    [
        ([Text("Sun"), Pause(0), Text("ny.")], "nny", "", "Su"),
        ([Text(("a", "b")), Text(("c", "d")), Text("ef")], "bcde", "", "a"),
        ([Reasoning("Let us "), Reasoning("think."), Text("Done.")], "us think", "Let ", ""),
        ([Reasoning("think"), Text("ing")], "king", "think", "ing"),
    ],
)
def test_stop_sequence_can_span_texts(
    parts: list[Part], stop: str, reasoning: str, text: str, stream: bool
) -> None:
    with stub_replying(Reply(parts)) as stub:
        received = READERS["chat"](stub, "hello", stream=stream, stop=stop)
    assert (received.reasoning, received.text) == (reasoning, text)


@cases(
    ("limit", "texts", "finish"),
    [
        ({"stop": "x"}, ["a", "c"], "stop"),
        ({"stop": "cx"}, ["axb", ""], "stop"),
        ({"max_tokens": 2}, ["ax", "cx"], "length"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_each_choice_has_its_own_stop_conditions(
    limit: dict[str, Any], texts: list[str], finish: str, stream: bool
) -> None:
    reply = Reply([Choice(0), Text("axb"), Choice(1), Text("cxd")])
    with stub_replying(reply) as stub, openai_client(stub) as client:
        completion = client.chat.completions.create(
            model="mochi", messages=[{"role": "user", "content": "hello"}], stream=stream, **limit
        )
        received = dict.fromkeys(range(2), "")
        reasons = set()
        for answer in completion if stream else [completion]:
            for choice in answer.choices:
                content = choice.delta if stream else choice.message
                received[choice.index] += content.content or ""
                reasons.add(choice.finish_reason)
    assert list(received.values()) == texts
    assert reasons - {None} == {finish}


def test_stop_sequence_does_not_span_a_failure() -> None:
    reply = Reply([Text("abc"), Failure("kaput"), Text("def")])
    assert apply_stop_conditions(reply, {"stop": ["cd"]}, 4) == reply


@pytest.mark.parametrize("stop", [{}, {"stop_sequences": [f"{hash_sized('hello')[-3:]} he"]}])
def test_stop_sequence_can_span_filler_text_and_echo(
    stub: StubServer, stop: dict[str, Any]
) -> None:
    received = READERS["message"](stub, "hello", stream=True, **stop)
    filler, finish = hash_sized("hello"), "stop_sequence" if stop else "end_turn"
    assert (received.text, received.finish) == (filler[:-3] if stop else f"{filler} hello", finish)


@cases("wire", READERS)
def test_default_reply_is_lorem_and_echo_on_every_api(stub: StubServer, wire: str) -> None:
    for stream in (True, False):
        assert READERS[wire](stub, "hello", stream=stream).text == f"{hash_sized('hello')} hello"


@cases("wire", READERS)
def test_reason_line_adds_thinking_on_every_api(stub: StubServer, wire: str) -> None:
    question = "What?\nReason: why not"
    received = READERS[wire](stub, question, stream=True)
    assert received.reasoning == received.text == f"{hash_sized(question)} {question}"


@cases("wire", [wire for wire in READERS if wire != "chat"])
def test_instruction_block_is_run_up_to_its_tool_calls(stub: StubServer, wire: str) -> None:
    entries = [{"text_message": {"length": 3}}, {"tool_call": [{"name": "now", "args": {"a": 1}}]}]
    plan = {
        "id_message": "#",
        "reasoning": {"length": 2},
        "messages": [*entries, {"text_message": {"length": 4}}],
    }
    for stream in (True, False):
        question = f"<|instruction_start|>{json.dumps(plan)}<|instruction_end|>"
        received = READERS[wire](stub, question, stream=stream)
        assert (received.reasoning, received.text) == (f"# {lorem(2)} #", f"# {lorem(3)} #")
        assert received.calls == [("now", {"a": 1})]


def message_of(wire: str, answered: RawResponse) -> tuple[Any, Any]:
    """Return the text and the kind of an error."""
    error = answered.json[0]["error"] if wire == "gemini stream" else answered.json["error"]
    if wire == "ollama":
        return error, None
    return error["message"], error["status"] if wire.startswith("gemini") else error["type"]


@pytest.fixture(scope="module")
def failing_stub() -> Iterator[StubServer]:
    """A stub that fails with the status that the message contains."""
    with stub_replying(
        lambda prompt: Reply([Failure("no such luck", int(prompt.user_text), (("X-Mine", "1"),))])
    ) as stub:
        yield stub


@cases("stream", [True, False])
@cases("wire", PATHS)
@cases("status", [400, 401, 403, 429, 500, 503, 529])
def test_failure_before_the_first_byte_has_its_status(
    failing_stub: StubServer, wire: str, status: int, stream: bool
) -> None:
    answer = send_message(failing_stub, wire, str(status), stream=stream)
    assert answer.status == status
    assert message_of(wire, answer)[0] == "no such luck"
    assert answer.headers["x-mine"] == "1"
    assert answer.headers.get("retry-after") == ("1" if status == 429 else None)


@cases(
    ("wire", "kinds"),
    [
        ("chat", {400: "invalid_request_error", 429: "requests", 500: "server_error"}),
        (
            "message",
            {
                400: "invalid_request_error",
                429: "rate_limit_error",
                500: "api_error",
                529: "overloaded_error",
            },
        ),
        (
            "gemini",
            {
                400: "INVALID_ARGUMENT",
                429: "RESOURCE_EXHAUSTED",
                500: "INTERNAL",
                503: "UNAVAILABLE",
            },
        ),
    ],
)
def test_failures_have_the_names_of_the_provider(wire: str, kinds: dict[int, str]) -> None:
    for status, kind in kinds.items():
        with stub_replying(Reply([Failure("no", status)])) as stub:
            assert message_of(wire, send_message(stub, wire)) == ("no", kind)


def test_failure_can_set_its_own_retry_after() -> None:
    with stub_replying(
        Reply(
            [Failure("slow down", 429, (("Retry-After", "7"), ("x-ratelimit-limit-requests", "3")))]
        )
    ) as stub:
        chat, message, gemini = (send_message(stub, wire) for wire in ("chat", "message", "gemini"))
    assert [answer.headers["retry-after"] for answer in (chat, message, gemini)] == ["7", "7", "7"]
    assert (
        chat.headers["x-ratelimit-limit-requests"],
        "x-ratelimit-remaining-requests" in chat.headers,
    ) == (
        "3",
        False,
    )
    assert gemini.json["error"]["details"][0]["retryDelay"] == "7s"


@cases(
    ("wire", "path", "ending"),
    [
        (
            "chat",
            PATHS["chat"],
            b'data: {"error":{"message":"kaput","type":"server_error","param":null,"code":null}}\n\n',
        ),
        (
            "completion",
            PATHS["completion"],
            b'data: {"error":{"message":"kaput","type":"server_error","param":null,"code":null}}\n\n',
        ),
        (
            "gemini",
            PATHS["gemini stream"],
            b',\r\n{"error":{"code":503,"message":"kaput","status":"UNAVAILABLE"}}]',
        ),
        (
            "gemini",
            f"{PATHS['gemini stream']}?alt=sse",
            b'data: {"error":{"code":503,"message":"kaput","status":"UNAVAILABLE"}}\r\n\r\n',
        ),
    ],
)
def test_failure_in_mid_stream_is_the_last_event(wire: str, path: str, ending: bytes) -> None:
    with stub_replying(Reply([Text(("one",)), Failure("kaput", 503)])) as stub:
        answer = send_request(stub, "POST", path, body(wire, stream=True))
        assert (answer.status, stub.exchanges()[0].outcome) == (200, "failed")
    assert b"one" in answer.body
    assert answer.body.endswith(ending)


@cases(
    ("wire", "words"),
    [
        ("chat", "The model `nope` does not exist or you do not have access to it."),
        ("completion", "The model `nope` does not exist or you do not have access to it."),
        ("response", "The model `nope` does not exist or you do not have access to it."),
        ("message", "model: nope"),
        (
            "gemini",
            "models/nope is not found for API version v1beta, or is not supported for "
            "generateContent. Call ListModels to see the list of available models and their "
            "supported methods.",
        ),
    ],
)
def test_unknown_model_is_404_with_the_text_of_the_provider(
    stub: StubServer, wire: str, words: str
) -> None:
    answer = send_request(
        stub, "POST", PATHS[wire].replace("mochi", "nope"), {**body(wire), "model": "nope"}
    )
    assert (answer.status, message_of(wire, answer)[0]) == (404, words)


@cases(
    "data", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{}", b'{"model": "mochi"}', b"[" * 5000]
)
@cases("wire", [wire for wire in PATHS if wire != "ollama"])
def test_invalid_body_is_400_in_the_form_of_the_provider(
    stub: StubServer, wire: str, data: bytes
) -> None:
    if wire == "completion" and data.startswith(b"{") and data.endswith(b"}"):
        return  # an empty completion is valid
    answer = send_request(stub, "POST", PATHS[wire], data)
    assert answer.status == 400
    message, kind = message_of(wire, answer)
    assert message
    assert kind in ("invalid_request_error", "INVALID_ARGUMENT")


ODD: list[Any] = [
    *(
        None,
        True,
        -1,
        1.5,
        10**30,
        "",
        "\ud800",
        [],
        [None],
        {"a": 1},
        [{"role": "user"}],
        [{"type": "text"}],
    ),
    *([{"parts": 3}], [{"role": [], "content": {}}]),
]
DEEP = json.loads("[" * 300 + "]" * 300)
FIELDS = [
    *(
        "model",
        "messages",
        "contents",
        "input",
        "prompt",
        "tools",
        "tool_choice",
        "stop",
        "max_tokens",
        "n",
        "stream",
    ),
    *(
        "temperature",
        "response_format",
        "text",
        "reasoning",
        "stream_options",
        "system",
        "thinking",
        "stop_sequences",
    ),
    *(
        "output_config",
        "systemInstruction",
        "generationConfig",
        "toolConfig",
        "instructions",
        "metadata",
    ),
    *("previous_response_id", "include", "encoding_format", "dimensions"),
]


@pytest.mark.parametrize(
    "odd_values", [ODD[1::12], pytest.param(ODD, marks=pytest.mark.nightly)], ids=["two", "all"]
)
@pytest.mark.parametrize("wire", [wire for wire in PATHS if wire != "ollama"])
def test_odd_values_of_fields_do_not_crash_the_server(
    stub: StubServer, wire: str, odd_values: list[Any]
) -> None:
    with keep_alive(stub) as connection:
        for field, odd in product(FIELDS, odd_values):
            answer = send_on(connection, "POST", PATHS[wire], {**body(wire), field: odd})
            assert answer.status in (200, 400, 404), (field, odd, answer.body)
            assert answer.status == 200 or message_of(wire, answer)[0]


@cases(
    ("wire", "tool"),
    [
        ("chat", {"type": "function", "function": {"name": "x", "parameters": {"deep": DEEP}}}),
        ("response", {"type": "function", "name": "x", "parameters": {"deep": DEEP}}),
        ("message", {"name": "x", "input_schema": {"deep": DEEP}}),
        ("gemini", {"functionDeclarations": [{"name": "x", "parameters": {"deep": DEEP}}]}),
    ],
)
def test_deeply_nested_values_are_received_and_sent(
    stub: StubServer, wire: str, tool: dict[str, Any]
) -> None:
    plan = {"messages": [{"tool_call": [{"name": "x", "args": {"deep": DEEP}}]}]}
    answer = send_message(
        stub, wire, f"<|instruction_start|>{json.dumps(plan)}<|instruction_end|>", tools=[tool]
    )
    assert answer.status == 200
    assert b"[" * 300 in answer.body


@cases("wire", PATHS)
def test_script_that_raises_is_a_500(wire: str) -> None:
    def broken(_: Prompt) -> Reply:
        raise KeyError("oops")

    with stub_replying(broken) as stub:
        answer = send_message(stub, wire)
    assert answer.status == 500
    assert "KeyError('oops')" in message_of(wire, answer)[0]


GEMINI = {"x-goog-api-key": "secret"}
ANTHROPIC = {"anthropic-version": "2023-06-01"}


@cases(
    ("path", "headers", "key"),
    [
        ("/v1/models", {}, "object"),
        ("/v1/models", {"Authorization": "Bearer secret"}, "object"),
        ("/v1/models", GEMINI, "models"),
        ("/v1/models", {"x-goog-api-client": "google-genai-sdk/1"}, "models"),
        ("/v1/models?key=secret", {}, "models"),
        ("/v1/models", ANTHROPIC, "has_more"),
        ("/v1beta/models", {}, "models"),
        ("/v1alpha/models", {}, "models"),
        ("/v1/models/mochi", {}, "object"),
        ("/v1/models/mochi", GEMINI, "displayName"),
        ("/v1/models/mochi", ANTHROPIC, "display_name"),
        ("/v1/models/mochi-native:4b", {}, "object"),
        ("/v1/models/mochi:latest", {}, "object"),
        ("/v1beta/models/mochi-native:4b", {}, "displayName"),
    ],
)
def test_models_have_the_shape_of_the_provider(
    stub: StubServer, path: str, headers: dict[str, str], key: str
) -> None:
    answer = send_request(stub, "GET", path, headers=headers)
    assert answer.status == 200
    assert key in answer.json


@cases(
    ("request_line", "headers", "status", "words"),
    [
        ("GET /v1/chat/completions", {}, 405, "Not allowed to GET on /v1/chat/completions."),
        ("GET /v1/nope", {}, 404, "Invalid URL (GET /v1/nope)"),
        ("GET /v1/models/nope", {}, 404, "The model 'nope' does not exist"),
        ("DELETE /v1/models/mochi", {}, 405, "Not allowed to DELETE on /v1/models/mochi."),
        ("GET /v1/messages", {}, 405, "Method Not Allowed"),
        ("POST /v1/messages/batches", {}, 404, "Not Found"),
        ("GET /v1/models/nope", ANTHROPIC, 404, "model: nope"),
        ("POST /v1/complete", ANTHROPIC, 404, "Not Found"),
        (
            "GET /v1beta/models/nope",
            {},
            404,
            "Model is not found: models/nope for api version v1beta",
        ),
        (
            "POST /v1/models/mochi:fly",
            {},
            404,
            "The requested URL /v1/models/mochi:fly was not found on this server.",
        ),
        (
            "GET /v1beta/files",
            {},
            404,
            "The requested URL /v1beta/files was not found on this server.",
        ),
        (
            "PUT /v1beta/models",
            {},
            405,
            "The request method PUT is inappropriate for the URL /v1beta/models.",
        ),
    ],
)
def test_unknown_routes_have_the_errors_of_the_provider(
    stub: StubServer, request_line: str, headers: dict[str, str], status: int, words: str
) -> None:
    method, path = request_line.split(" ")
    answer = send_request(stub, method, path, headers=headers)
    assert (answer.status, answer.json["error"]["message"]) == (status, words)


def test_health_is_reported(stub: StubServer) -> None:
    assert send_request(stub, "GET", "/health").json == {"status": "ok"}
    assert send_request(stub, "HEAD", "/health").status == 200


@cases("path", [*PATHS.values(), "/v1/models", "/health"])
@cases("origin", ["http://localhost:3000", "https://example.com", "null"])
def test_all_pages_are_allowed(stub: StubServer, path: str, origin: str) -> None:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert send_request(stub, "OPTIONS", path, headers=headers).status == 204
    assert (
        send_request(stub, "POST", path, {}, headers).headers["access-control-allow-origin"] == "*"
    )


def test_api_keys_are_accepted_and_not_recorded(private_stub: StubServer) -> None:
    headers = {
        "Authorization": "Bearer sk-secret",
        "x-api-key": "sk-secret",
        "x-goog-api-key": "sk-secret",
    }
    for wire, path in PATHS.items():
        answer = send_request(private_stub, "POST", f"{path}?key=sk-secret", body(wire), headers)
        assert answer.status == 200
        assert b"sk-secret" not in answer.body
    assert "sk-secret" not in str(private_stub.exchanges())


def test_base_models_are_not_listed() -> None:
    models = [Model("_base"), Model("child")]
    with StubServer(models=models, speed=0) as stub:
        assert [model["id"] for model in send_request(stub, "GET", "/v1/models").json["data"]] == [
            "child"
        ]
        assert [
            model["name"] for model in send_request(stub, "GET", "/v1beta/models").json["models"]
        ] == ["models/child"]
        assert send_message(stub, "chat", model="_base").status == 200


@cases(
    ("wire", "field"),
    [
        ("chat", {"tools": [{"type": "function", "function": {"name": "now"}}]}),
        ("response", {"tools": [{"type": "function", "name": "now"}]}),
        ("message", {"tools": [{"name": "now", "input_schema": {}}]}),
        ("gemini", {"tools": [{"functionDeclarations": [{"name": "now"}]}]}),
    ],
)
def test_model_without_tools_refuses_them(
    stub: StubServer, wire: str, field: dict[str, Any]
) -> None:
    path = PATHS[wire].replace("mochi", "mochi-chat")
    answer = send_request(stub, "POST", path, {**body(wire), "model": "mochi-chat", **field})
    assert answer.status == 400
    assert send_message(stub, wire, **field).status == 200


@cases("wire", ["chat", "completion", "response", "message", "gemini"])
def test_embedding_model_does_not_chat(stub: StubServer, wire: str) -> None:
    answer = send_request(
        stub,
        "POST",
        PATHS[wire].replace("mochi", "mochi-embed"),
        {**body(wire), "model": "mochi-embed"},
    )
    assert answer.status in (400, 404)
    assert message_of(wire, answer)[0]


@cases("wire", ["chat", "completion", "response", "message", "gemini stream"])
def test_disconnect_cancels_the_reply(wire: str) -> None:
    data = json.dumps(body(wire, stream=True)).encode()
    head = f"POST {PATHS[wire]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    with stub_replying(Reply([Text(("one",)), Gate()])) as stub:
        with raw_connection(stub, head.encode() + data) as connection:
            stub.wait_for(lambda seen: bool(seen) and seen[0].chunks >= 1)
            assert connection.recv(16) == b"HTTP/1.1 200 OK\r"
        stub.wait_for(lambda seen: seen[0].outcome == "cancelled")


@pytest.mark.parametrize("number", [28, pytest.param(200, marks=pytest.mark.nightly)])
def test_servers_with_one_seed_send_the_same_bytes(number: int) -> None:
    wires = list(PATHS)
    mixed = [
        (wires[index % len(wires)], f"request {index % 50}\nReason: x", index % 2 == 0)
        for index in range(number)
    ]

    def one(stub: StubServer, index: int) -> bytes:
        wire, text, stream = mixed[index]
        return send_message(stub, wire, text, stream=stream).body

    with StubServer(speed=0) as stub:
        first = [one(stub, index) for index in range(number)]
    with StubServer(speed=0) as stub, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(partial(one, stub), reversed(range(number)))) == first[::-1]
    with StubServer(speed=0, seed=1) as stub:
        assert one(stub, 1) != first[1]


def test_only_the_table_of_apis_imports_a_provider() -> None:
    """A new provider is one module: no other module names a provider, and no provider imports
    another one.
    """
    folder = Path(mochi_stub.providers.__file__).parent
    names = {"ollama", "openai", "anthropic", "gemini"}
    importing = {}
    for file in folder.parent.rglob("*.py"):
        imported = set(
            re.findall(
                r"^(?:from|import) mochi_stub\.providers\.(\w+)", file.read_text(), re.MULTILINE
            )
        )
        own = file.parent.name if file.parent.name in names else file.stem
        importing[str(file.relative_to(folder.parent))] = (imported & names) - {own}
    assert importing.pop("providers/__init__.py") == names
    assert {file for file, imported in importing.items() if imported} == set()
