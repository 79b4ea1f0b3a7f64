"""Replay of recordings: unchanged on their own API, translated for other APIs, streamed or
whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mochi_stub import Failure, Pause, Reasoning, Reply, StubServer, Text, ToolCall, Usage
from mochi_stub.recording import recorded
from mochi_stub.replies.chunks import planned_end
from tests.stub.requests import send_message, send_request
from tests.support.cases import cases

DATA = Path(__file__).parent / "data"
EXAMPLE = DATA / "fixtures" / "example.yaml"


def reply_of(path: Path) -> Reply:
    return recorded(path).reply


def write_recording(
    folder: Path, url: str, body: Any, name: str = "recorded.json", **response: Any
) -> Path:
    file = folder / name
    recording = {
        "duration_ms": 300,
        "request": {"method": "POST", "url": url, "body": {}},
        "response": {
            "status": 200,
            "body": body,
            "is_streaming": isinstance(body, list),
            **response,
        },
    }
    file.write_text(json.dumps(recording) if name.endswith("json") else yaml.safe_dump(recording))
    return file


def contents(reply: Reply) -> tuple[str, str, list[ToolCall]]:
    return reply.reasoning, reply.text, reply.tool_calls


@pytest.fixture
def start_replay(tmp_path: Path) -> Callable[[], StubServer]:
    (tmp_path / "config.yaml").write_text(
        "models: {any: [{_default: {type: file, path: recorded.json}}]}"
    )
    return lambda: StubServer(config=tmp_path / "config.yaml", speed=0)


def test_example_of_the_specification_is_replayed_exactly() -> None:
    with StubServer(config=DATA / "spec-config.yaml", speed=0) as stub:
        body = {
            "model": "gpt-4",
            "messages": [{"role": "user", "content": "load fixture"}],
            "stream": True,
        }
        answer = send_request(stub, "POST", "/v1/chat/completions", body)
    assert answer.headers["content-type"] == "text/event-stream"
    *events, done = answer.body.decode().removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    recorded = yaml.safe_load(EXAMPLE.read_text())["response"]["body"][:-1]
    for choice in (choice for chunk in recorded for choice in chunk["choices"]):
        choice.setdefault("index", 0)  # the last chunk has none, but clients require it
    assert [json.loads(event.removeprefix("data: ")) for event in events] == recorded


def test_example_is_translated_for_other_apis_and_modes() -> None:
    messages = [{"role": "user", "content": "load fixture"}]
    with StubServer(config=DATA / "spec-config.yaml", speed=0) as stub:
        whole = send_request(
            stub, "POST", "/v1/chat/completions", {"model": "gpt-4", "messages": messages}
        ).json
        assert whole["choices"][0]["message"]["content"] == "Hello!"
        assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (10, 5)
        anthropic = send_request(
            stub, "POST", "/v1/messages", {"model": "gpt-4", "messages": messages, "max_tokens": 9}
        ).json
        assert anthropic["content"][0]["text"] == "Hello!"
        assert anthropic["usage"]["output_tokens"] == 5
        lines = send_message(stub, "load fixture", "gpt-4").lines
        assert [line["message"]["content"] for line in lines] == ["Hello!", ""]
        assert lines[-1]["prompt_eval_count"] == 10


OLLAMA_CALL = {"id": "c1", "function": {"index": 0, "name": "now", "arguments": {"a": 1}}}


def responses_stream(text_delta: str) -> list[dict[str, Any]]:
    """Return the events of a response whose text has the event type `text_delta`."""
    return [
        {"type": "response.created", "response": {}},
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": text_delta, "delta": "Hi"},
        {
            "type": "response.output_item.added",
            "item": {"type": "function_call", "id": "i", "call_id": "c1", "name": "now"},
        },
        {"type": "response.function_call_arguments.delta", "item_id": "i", "delta": '{"a":1}'},
        {
            "type": "response.completed",
            "response": {"usage": {"input_tokens": 7, "output_tokens": 9}},
        },
    ]


EXCHANGES: dict[str, tuple[str, Any]] = {
    "ollama stream": (
        "http://x/api/chat",
        [
            {"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
            {"message": {"role": "assistant", "content": "Hi"}, "done": False},
            {
                "message": {"role": "assistant", "content": "", "tool_calls": [OLLAMA_CALL]},
                "done": False,
            },
            {"done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 9},
        ],
    ),
    "ollama whole": (
        "http://x/api/chat",
        {
            "message": {
                "role": "assistant",
                "content": "Hi",
                "thinking": "hm",
                "tool_calls": [OLLAMA_CALL],
            },
            **{"done": True, "prompt_eval_count": 7, "eval_count": 9},
        },
    ),
    "openai stream": (
        "https://x/v1/chat/completions",
        [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
            {"choices": [{"index": 0, "delta": {"content": "Hi"}}]},
            {
                "choices": [
                    {
                        "delta": {
                            "tool_calls": [
                                {
                                    "index": 0,
                                    "id": "c1",
                                    "function": {"name": "now", "arguments": ""},
                                }
                            ]
                        }
                    }
                ]
            },
            {
                "choices": [
                    {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}}
                ]
            },
            {
                "choices": [
                    {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}
                ]
            },
            {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}},
            {"done": True},
        ],
    ),
    "openai whole": (
        "https://x/v1/chat/completions",
        {
            "choices": [
                {
                    "message": {
                        "content": "Hi",
                        "reasoning": "hm",
                        "tool_calls": [
                            {"id": "c1", "function": {"name": "now", "arguments": '{"a":1}'}}
                        ],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 9},
        },
    ),
    "responses stream": (
        "https://x/v1/responses",
        responses_stream("response.output_text.delta"),
    ),
    "responses refusal stream": (
        "https://x/v1/responses",
        responses_stream("response.refusal.delta"),
    ),
    "responses whole": (
        "https://x/v1/responses",
        {
            "output": [
                {"type": "reasoning", "summary": [{"text": "hm"}]},
                {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
                {
                    "type": "function_call",
                    "id": "i",
                    "call_id": "c1",
                    "name": "now",
                    "arguments": '{"a":1}',
                },
            ],
            "usage": {"input_tokens": 7, "output_tokens": 9},
        },
    ),
    "anthropic stream": (
        "https://x/v1/messages",
        [
            {
                "type": "message_start",
                "message": {"usage": {"input_tokens": 7, "output_tokens": 1}},
            },
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "thinking_delta", "thinking": "hm"},
            },
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "text_delta", "text": "Hi"},
            },
            {
                "type": "content_block_start",
                "index": 2,
                "content_block": {"type": "tool_use", "id": "c1", "name": "now", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 2,
                "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'},
            },
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 9},
            },
            {"type": "message_stop"},
        ],
    ),
    "anthropic whole": (
        "https://x/v1/messages",
        {
            "type": "message",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Hi"},
                {"type": "tool_use", "id": "c1", "name": "now", "input": {"a": 1}},
            ],
            "usage": {"input_tokens": 7, "output_tokens": 9},
        },
    ),
    "gemini stream": (
        "https://x/v1beta/models/m:streamGenerateContent?alt=sse",
        [
            {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]},
            {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}]},
            {
                "candidates": [
                    {
                        "content": {
                            "parts": [
                                {"functionCall": {"id": "c1", "name": "now", "args": {"a": 1}}}
                            ]
                        }
                    }
                ],
                "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 9},
            },
        ],
    ),
    "gemini whole": (
        "https://x/v1beta/models/m:generateContent",
        {
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"text": "hm", "thought": True},
                            {"text": "Hi"},
                            {"functionCall": {"id": "c1", "name": "now", "args": {"a": 1}}},
                        ]
                    },
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 9},
        },
    ),
}


def test_recorded_thinking_tokens_and_stop_sequence_of_anthropic(tmp_path: Path) -> None:
    stop = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    usage = {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    whole = {"content": [], **stop, "usage": usage}
    stream = [{"type": "message_delta", "delta": stop, "usage": usage}, {"type": "message_stop"}]
    for body in (whole, stream):
        reply = reply_of(write_recording(tmp_path, "https://x/v1/messages", body))
        assert (reply.stop_sequence, reply.usage) == ("END", Usage(output=9, reasoning=4))


def test_recorded_calls_of_tools_that_anthropic_runs_are_ignored(tmp_path: Path) -> None:
    server_call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
    call = {"type": "tool_use", "id": "c1", "name": "now", "input": {}}
    whole = {"content": [server_call, {**call, "input": {"a": 1}}]}
    stream = [
        {"type": "content_block_start", "index": 0, "content_block": {**server_call, "input": {}}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"q":"x"}'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_stop"},
    ]
    for body in (whole, stream):
        reply = reply_of(write_recording(tmp_path, "https://x/v1/messages", body))
        assert reply.tool_calls == [ToolCall("now", {"a": 1}, "c1")]


@cases("name", EXCHANGES)
def test_recordings_of_all_apis_have_the_same_answer(tmp_path: Path, name: str) -> None:
    url, body = EXCHANGES[name]
    for ending in ("json", "yaml"):
        reply = reply_of(write_recording(tmp_path, url, body, f"{name}.{ending}".replace(" ", "-")))
        assert contents(reply) == ("hm", "Hi", [ToolCall("now", {"a": 1}, "c1")])
        assert reply.usage == Usage(7, 9)
        assert reply.finish == "stop"
        assert planned_end(reply) == pytest.approx(300e6)


@cases("name", EXCHANGES)
@cases("stream", [True, False])
def test_recordings_are_replayed_on_the_ollama_api(
    tmp_path: Path, start_replay: Callable[[], StubServer], name: str, stream: bool
) -> None:
    url, body = EXCHANGES[name]
    write_recording(tmp_path, url, body)
    with start_replay() as stub:
        lines = send_message(stub, "x", "any", stream=stream).lines
    messages = [line.get("message", {}) for line in lines]
    assert "".join(message.get("thinking", "") for message in messages) == "hm"
    assert "".join(message.get("content", "") for message in messages) == "Hi"
    (call,) = [call for message in messages for call in message.get("tool_calls", [])]
    assert call == OLLAMA_CALL
    assert (lines[-1]["prompt_eval_count"], lines[-1]["eval_count"]) == (7, 9)


def test_stream_is_replayed_in_its_recorded_time(tmp_path: Path) -> None:
    url, body = EXCHANGES["ollama stream"]
    spread = reply_of(write_recording(tmp_path, url, body, "spread.json"))
    assert [part.seconds for part in spread.parts if isinstance(part, Pause)] == [
        0.075,
        0.075,
        0.15,
    ]
    given = reply_of(write_recording(tmp_path, url, body, "given.json", at_ms=[10, 10, 200, 300]))
    assert [type(part) for part in given.parts][:3] == [Pause, Reasoning, Text]
    assert [part.seconds for part in given.parts if isinstance(part, Pause)] == [0.01, 0.29]


def test_replay_takes_the_recorded_time(tmp_path: Path) -> None:
    calls = {"message": {"content": "", "tool_calls": [OLLAMA_CALL]}, "done": True}
    for name, said in (("calls", calls), ("nothing", {"message": {"content": ""}, "done": True})):
        whole = reply_of(write_recording(tmp_path, "http://x/api/chat", said, f"{name}.json"))
        assert planned_end(whole) == pytest.approx(300e6)
    ending = [{"message": {"content": "Hi"}, "done": False}, {"done": True}]
    assert (
        planned_end(reply_of(write_recording(tmp_path, "http://x/api/chat", ending, "ending.json")))
        == 300_000_000
    )


def test_done_marker_of_openai_is_not_sent_on_other_apis(tmp_path: Path) -> None:
    for url, objects in (
        ("https://x/v1/messages", [{"type": "message_stop"}, {"done": True}]),
        (
            "https://x/v1beta/models/m:streamGenerateContent?alt=sse",
            [{"candidates": []}, {"done": True}],
        ),
    ):
        frames = reply_of(write_recording(tmp_path, url, objects, f"{len(url)}.json")).frames
        assert frames is not None
        assert "done" not in "".join(frames.texts)


def test_bodies_are_written_like_the_provider(tmp_path: Path) -> None:
    for name, url, text in (
        ("openai.json", "https://x/v1/chat/completions", '{"a":1.0,"b":"<é>"}'),
        ("ollama.json", "http://x/api/chat", '{"a":1,"b":"\\u003cé\\u003e"}'),
    ):
        frames = reply_of(write_recording(tmp_path, url, {"a": 1.0, "b": "<é>"}, name)).frames
        assert frames is not None
        assert frames.texts == (text,)


def test_recorded_error_is_an_error_on_every_api(
    tmp_path: Path, start_replay: Callable[[], StubServer]
) -> None:
    body = {"error": {"message": "Slow down", "type": "rate_limit_error"}}
    file = write_recording(
        tmp_path, "https://x/v1/chat/completions", body, status=429, headers={"Retry-After": "7"}
    )
    assert Failure("Slow down", 429, (("retry-after", "7"),)) in reply_of(file).parts
    request = {"model": "any", "messages": [{"role": "user", "content": "x"}]}
    with start_replay() as stub:
        same, other = (
            send_request(stub, "POST", "/v1/chat/completions", request),
            send_message(stub, "x", "any"),
        )
    assert (same.status, same.json, same.headers["retry-after"]) == (429, body, "7")
    assert (other.status, other.json, other.headers["retry-after"]) == (
        429,
        {"error": "Slow down"},
        "7",
    )


@cases(
    ("url", "last", "status"),
    [
        (
            "https://x/v1/chat/completions",
            {"error": {"message": "no", "code": "rate_limit_exceeded"}},
            429,
        ),
        (
            "https://x/v1/chat/completions",
            {"error": {"message": "no", "type": "server_error", "code": None}},
            500,
        ),
        (
            "https://x/v1/responses",
            {"type": "error", "code": "rate_limit_exceeded", "message": "no"},
            429,
        ),
        (
            "https://x/v1/responses",
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "no"}},
            },
            500,
        ),
        (
            "https://x/v1/messages",
            {"type": "error", "error": {"type": "overloaded_error", "message": "no"}},
            529,
        ),
        (
            "https://x/v1beta/models/m:streamGenerateContent",
            {"error": {"code": 429, "message": "no"}},
            429,
        ),
        ("http://x/api/chat", {"error": "no"}, 500),
    ],
)
def test_error_in_a_recorded_stream_has_a_status(
    tmp_path: Path, url: str, last: dict[str, Any], status: int
) -> None:
    assert reply_of(write_recording(tmp_path, url, [last])).parts[-1] == Failure("no", status)


@cases(
    ("text", "line", "expected"),
    [
        ("[]", 1, "a mapping, found a list"),
        ("response: {body: {}}", 1, "the key request"),
        ("request: {url: http://x/api/chat}\nresponse: 5", 2, "a mapping as response"),
        ("request: {}\nresponse: {body: {}}", 1, "the key url in request"),
        (
            "request: {url: http://x/api/chat}\nresponse: {status: 101, body: {}}",
            2,
            "a number greater than or equal to 200 as status",
        ),
        (
            "request: {url: http://x/api/chat}\nresponse:\n  body: {}\n  headers: {a b: c}",
            4,
            "a valid header",
        ),
        (
            "request: {url: http://x/api/chat}\nresponse: {body: {}, is_streaming: true}",
            2,
            "a list of objects as the body of a stream",
        ),
        (
            "request: {url: http://x/api/chat}\nresponse: {body: {}, status: x}",
            2,
            "a valid integer as status",
        ),
        ("request: {url: http://x/api/chat}\nresponse: {body: [1], at_ms: [1, 2]}", 2, "1 times"),
        (
            "duration_ms: -1\nrequest: {url: http://x/api/chat}\nresponse: {body: {}}",
            1,
            "a number greater than or equal to 0 as duration_ms",
        ),
    ],
)
def test_malformed_recording_is_reported_with_its_line(
    tmp_path: Path, start_replay: Callable[[], StubServer], text: str, line: int, expected: str
) -> None:
    write_recording(tmp_path, "http://x/api/chat", {})
    with start_replay() as stub:
        (tmp_path / "recorded.json").write_text(text)
        answer = send_message(stub, "x", "any")
    assert answer.status == 500
    assert answer.json["error"].startswith(
        f"{tmp_path / 'recorded.json'}:{line}: expected {expected}"
    )


@cases("arguments", ['{"a":', "[1]", '{"a":' + "9" * 5000 + "}"], ids=["part", "list", "digits"])
def test_invalid_recorded_arguments_are_sent_as_text(
    tmp_path: Path, start_replay: Callable[[], StubServer], arguments: str
) -> None:
    call = {"function": {"name": "now", "arguments": arguments}}
    body = {"choices": [{"message": {"tool_calls": [call]}}]}
    write_recording(tmp_path, "https://x/v1/chat/completions", body)
    with start_replay() as stub:
        [sent] = send_message(stub, "x", "any", stream=False).json["message"]["tool_calls"]
    assert sent["function"]["arguments"] == {"_raw": arguments}


NO_COUNT = {"usageMetadata": {"candidatesTokenCount": None, "thoughtsTokenCount": 5}}


@cases(
    "body",
    [5, "text", [], [1, None, "x"], {"choices": 7}, {"message": 5}, {"message": {}}, NO_COUNT],
)
@cases("url", sorted({url for url, _ in EXCHANGES.values()}))
def test_invalid_recorded_body_does_not_crash(tmp_path: Path, url: str, body: Any) -> None:
    assert isinstance(reply_of(write_recording(tmp_path, url, body)), Reply)


def test_gemini_stream_is_replayed_as_events_or_as_a_list(
    tmp_path: Path, start_replay: Callable[[], StubServer]
) -> None:
    url, body = EXCHANGES["gemini stream"]
    write_recording(tmp_path, url, body)
    request = {"contents": [{"parts": [{"text": "x"}]}]}
    with start_replay() as stub:
        path = "/v1beta/models/any:streamGenerateContent"
        events = (
            send_request(stub, "POST", f"{path}?alt=sse", request).body.decode().split("\r\n\r\n")
        )
        assert [json.loads(event.removeprefix("data: ")) for event in events if event] == body
        listed = send_request(stub, "POST", path, request).json
        assert "Hi" in [
            part.get("text") for one in listed for part in one["candidates"][0]["content"]["parts"]
        ]
    assert contents(reply_of(write_recording(tmp_path, url, body, is_streaming=False)))[:2] == (
        "hm",
        "Hi",
    )
    with start_replay() as stub:
        whole = send_request(stub, "POST", "/v1beta/models/any:generateContent", request).json
    assert "Hi" in [part.get("text") for part in whole["candidates"][0]["content"]["parts"]]


def test_unicode_separator_does_not_end_a_line(tmp_path: Path) -> None:
    frames = reply_of(
        write_recording(
            tmp_path, "https://x/v1/messages", [{"type": "ping", "a": "\u2028"}, "odd\nlines"]
        )
    ).frames
    assert frames is not None
    assert frames.texts[0] == 'event: ping\ndata: {"type":"ping","a":"\\u2028"}\n\n'
    assert frames.texts[1] == "data: odd\ndata: lines\n\n"


def test_recording_without_a_model_reply_is_refused(
    tmp_path: Path, start_replay: Callable[[], StubServer]
) -> None:
    write_recording(tmp_path, "http://x/api/chat", {})
    with start_replay() as stub:
        write_recording(tmp_path, "http://x/api/tags", {"models": []})
        answer = send_message(stub, "x", "any")
    assert answer.status == 500
    assert "/api/tags is not the reply of a model" in answer.json["error"]
