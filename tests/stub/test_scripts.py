"""Scripted replies: chunks, failures, cuts, gates and limits, and their journal entries."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import IncompleteRead
from typing import Any

import pytest

from mochi_stub import (
    Choice,
    Cut,
    Durations,
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
from tests.stub.requests import contents, open_stream, raw_connection, send_message, send_request
from tests.support.cases import cases

HELLO = {"model": "mochi", "messages": [{"role": "user", "content": "hello"}]}


@contextmanager
def scripted_stub(
    reply: Reply, *, speed: float = 0, models: Sequence[Model] | None = None
) -> Iterator[StubServer]:
    with StubServer(resolve=lambda _: reply, speed=speed, models=models) as stub:
        yield stub


def test_script_gets_the_prompt_and_can_decline() -> None:
    seen: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply | None:
        seen.append(prompt)
        return Reply.of("scripted") if prompt.user_text == "script me" else None

    with StubServer(resolve=resolve, speed=0) as stub:
        assert (
            send_message(stub, "script me", options={"temperature": 0}).lines[0]["message"][
                "content"
            ]
            == "scripted"
        )
        assert contents(send_message(stub, "hello").lines).endswith(" hello")
    assert seen[0].includes_reasoning
    assert seen[0].options["temperature"] == 0
    assert [prompt.user_text for prompt in seen] == ["script me", "hello"]


def test_chunks_are_sent_unchanged() -> None:
    with scripted_stub(Reply.of(("a", " b  c d e f g", "\n"), reasoning=("x",))) as stub:
        lines = send_message(stub, "hello").lines
    assert [line["message"].get("thinking") for line in lines] == ["x", None, None, None, None]
    assert [line["message"]["content"] for line in lines] == ["", "a", " b  c d e f g", "\n", ""]


def test_usage_and_durations_are_computed_unless_given() -> None:
    given = Reply([Text("hi")], usage=Usage(3, 4), durations=Durations(9, 5, 6, 7), finish="length")
    with scripted_stub(given) as stub:
        final = send_message(stub, "hello").lines[-1]
    assert final["done_reason"] == "length"
    assert [
        final[key]
        for key in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    ] == [
        9,
        5,
        6,
        7,
    ]
    assert (final["prompt_eval_count"], final["eval_count"]) == (3, 4)


def test_tokens_are_characters_by_default() -> None:
    models = [Model("letters"), Model("words", chars_per_token=4)]
    with scripted_stub(Reply.of("0123456789"), models=models) as stub:
        letters, words = (
            send_message(stub, "hello", name, stream=False).json for name in ("letters", "words")
        )
    assert (letters["prompt_eval_count"], letters["eval_count"]) == (len("hello"), 10)
    assert (words["prompt_eval_count"], words["eval_count"]) == (2, 3)


def test_zero_counters_are_omitted() -> None:
    with scripted_stub(Reply([])) as stub:
        (final,) = send_message(stub, "hello").lines
    assert "eval_count" not in final
    assert "eval_duration" not in final


def test_failure_before_the_first_chunk_is_a_normal_error() -> None:
    with scripted_stub(Reply([Failure("overloaded", 503), Text("never")])) as stub:
        for stream, kind in (
            (True, "application/json"),
            (False, "application/json; charset=utf-8"),
        ):
            answer = send_message(stub, "hello", stream=stream)
            assert (answer.status, answer.json, answer.headers["content-type"]) == (
                503,
                {"error": "overloaded"},
                kind,
            )
        assert [exchange.outcome for exchange in stub.exchanges()] == ["failed", "failed"]


def test_failure_in_mid_stream_is_the_last_line() -> None:
    with scripted_stub(Reply([Text(("one", " two")), Failure("kaput")])) as stub:
        answer = send_message(stub, "hello")
        assert answer.status == 200
        assert answer.lines[-1] == {"error": "kaput"}
        assert contents(answer.lines[:-1]) == "one two"
        (exchange,) = stub.exchanges()
        assert (exchange.outcome, exchange.status, exchange.chunks) == ("failed", 200, 2)
        assert send_message(stub, "hello", stream=False).status == 500


def test_cut_ends_the_stream_without_a_last_object() -> None:
    with scripted_stub(Reply([Text(("one", " two")), Cut()])) as stub:
        lines = send_message(stub, "hello").lines
    assert [line["done"] for line in lines] == [False, False]


def test_gate_blocks_the_stream_until_it_opens() -> None:
    gate = Gate()
    with scripted_stub(Reply([Text(("one",)), gate, Text((" two",))])) as stub:
        with open_stream(stub, "/api/chat", HELLO) as response:
            assert json.loads(response.readline())["message"]["content"] == "one"
            (exchange,) = stub.wait_for(lambda seen: seen[0].chunks == 1)
            assert exchange.outcome == "running"
            gate.open()
            assert len(response.readlines()) == 2
        assert send_message(stub, "hello", stream=False).json["message"]["content"] == "one two"


def test_gate_at_the_start_delays_the_headers() -> None:
    gate = Gate()
    with scripted_stub(Reply([gate, Text("late")])) as stub:
        asking = threading.Thread(target=send_message, args=(stub, "hello"))
        asking.start()
        (exchange,) = stub.wait_for(lambda seen: len(seen) == 1)
        assert (exchange.status, exchange.outcome) == (0, "running")
        gate.open()
        asking.join()
        assert stub.exchanges()[0].outcome == "finished"


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_cancels_the_reply_at_once(stream: bool) -> None:
    body = json.dumps({**HELLO, "stream": stream}).encode()
    request = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    with scripted_stub(Reply([Text(("one",)), Gate()])) as stub:
        with raw_connection(stub, request) as connection:
            stub.wait_for(lambda seen: bool(seen) and (not stream or seen[0].chunks == 1))
            assert connection.recv(16) == b"HTTP/1.1 200 OK\r" if stream else True
        stub.wait_for(lambda seen: seen[0].outcome == "cancelled")
        assert send_request(stub, "GET", "/api/ps").json["models"][0]["name"] == "mochi:latest"


def test_unpaced_reply_is_fair_and_can_be_cancelled() -> None:
    body = json.dumps(HELLO).encode()
    request = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    with scripted_stub(Reply([Text(["word "] * 300_000)])) as stub:
        with raw_connection(stub, request):
            stub.wait_for(lambda seen: bool(seen) and seen[0].chunks > 0)
            assert send_request(stub, "GET", "/").body == b"Ollama is running"
            assert stub.exchanges()[0].outcome == "running"
        (exchange, _) = stub.wait_for(lambda seen: seen[0].outcome == "cancelled")
        assert exchange.chunks < 300_000


def test_stopping_the_server_closes_open_streams() -> None:
    with (
        scripted_stub(Reply([Text(("one",)), Gate()])) as stub,
        open_stream(stub, "/api/chat", HELLO) as response,
    ):
        assert response.readline()
        stub.stop()
        with pytest.raises((IncompleteRead, ConnectionError)):
            response.read()
        assert stub.exchanges()[0].outcome == "cancelled"


def test_num_predict_ends_a_reply_with_length() -> None:
    reply = Reply.of("0123456789", reasoning=("abc", "def"), tool_calls=[ToolCall("now")])
    with scripted_stub(reply) as stub:
        for budget, thinking, content, reason in (
            (4, "abcd", "", "length"),
            (8, "abcdef", "01", "length"),
            (16, "abcdef", "0123456789", "stop"),
            (-1, "abcdef", "0123456789", "stop"),
            (0, "abcdef", "0123456789", "stop"),
        ):
            lines = send_message(stub, "hello", options={"num_predict": budget}).lines
            assert contents(lines, "thinking") == thinking
            assert contents(lines) == content
            assert lines[-1]["done_reason"] == reason
            assert any("tool_calls" in line["message"] for line in lines) == (reason == "stop")


def test_stop_sequence_ends_a_reply_with_stop() -> None:
    with scripted_stub(Reply.of(("one t", "wo three"))) as stub:
        lines = send_message(stub, "hello", options={"stop": ["three", "two"]}).lines
    assert contents(lines) == "one "
    assert lines[-1]["done_reason"] == "stop"


def test_request_overrides_limits_of_the_modelfile() -> None:
    with scripted_stub(
        Reply.of("0123456789"), models=[Model("short", parameters={"num_predict": 3})]
    ) as stub:
        assert contents(send_message(stub, "hello", "short").lines) == "012"
        assert (
            contents(send_message(stub, "hello", "short", options={"num_predict": 5}).lines)
            == "01234"
        )
    with scripted_stub(
        Reply.of("0123456789"), models=[Model("short", parameters={"stop": "45"})]
    ) as stub:
        assert contents(send_message(stub, "hello", "short").lines) == "0123"


def test_tool_calls_get_ids_unless_given() -> None:
    reply = Reply([ToolCalls([ToolCall("a"), ToolCall("b", id="mine"), ToolCall("c")])])
    with scripted_stub(reply) as stub:
        lines = send_message(stub, "hello").lines[:-1]
    calls = [call for line in lines for call in line["message"]["tool_calls"]]
    assert [call["function"]["index"] for call in calls] == [0, 1, 2]
    assert calls[1]["id"] == "mine"
    assert len({call["id"] for call in calls}) == 3


def test_whole_reply_without_tools_keeps_only_the_last_calls() -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    with scripted_stub(Reply([Reasoning("hm"), ToolCalls([ToolCall("now")])])) as stub:
        assert "tool_calls" not in send_message(stub, "hello", stream=False).json["message"]
        assert (
            "tool_calls" in send_message(stub, "hello", stream=False, tools=tools).json["message"]
        )
        assert (
            "tool_calls"
            in send_message(stub, "hello", "mochi-native:4b", stream=False).json["message"]
        )


def test_script_that_raises_is_a_500() -> None:
    def broken(_: Prompt) -> Reply:
        raise KeyError("oops")

    with StubServer(resolve=broken, speed=0) as stub:
        answer = send_message(stub, "hello")
        assert answer.status == 500
        assert answer.json == {"error": "the stub failed: KeyError('oops')"}
        assert stub.exchanges()[0].outcome == "failed"


@cases(
    ("path", "body"),
    [
        ("/api/chat", HELLO),
        ("/api/generate", {"model": "mochi", "prompt": "hello"}),
        ("/v1/completions", {"model": "mochi", "prompt": "hello"}),
        ("/v1/responses", {"model": "mochi", "input": "hello", "stream": True}),
        ("/v1/messages", {**HELLO, "max_tokens": 9, "stream": True}),
        ("/v1beta/models/mochi:generateContent", {"contents": [{"parts": [{"text": "hello"}]}]}),
    ],
)
def test_choices_of_an_api_without_choices_are_a_500(path: str, body: dict[str, object]) -> None:
    with scripted_stub(Reply([Choice(0), Text("a"), Choice(1), Text("b")])) as stub:
        answer = send_request(stub, "POST", path, body)
    assert answer.status == 500
    assert b"this API has only one choice, so the reply must not contain a Choice" in answer.body


@pytest.mark.parametrize("path", ["generateContent", "streamGenerateContent"])
def test_unknown_finish_reason_is_a_500(path: str) -> None:
    finish: Any = "tool_calls"
    with scripted_stub(Reply([], finish=finish)) as stub:
        body = {"contents": [{"parts": [{"text": "hello"}]}]}
        answer = send_request(stub, "POST", f"/v1beta/models/mochi:{path}", body)
        assert (answer.status, answer.body) == (500, b"the stub failed: KeyError('tool_calls')")
        assert stub.exchanges()[0].outcome == "failed"


def test_choices_have_the_same_text_with_and_without_streaming() -> None:
    with scripted_stub(Reply([Text("a"), Choice(1), Text("b"), Choice(0), Text("c")])) as stub:
        whole = send_request(stub, "POST", "/v1/chat/completions", HELLO).json
        streamed = send_request(
            stub, "POST", "/v1/chat/completions", {**HELLO, "stream": True}
        ).body
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["ac", "b"]
    chunks = [
        json.loads(line[6:])["choices"][0]
        for line in streamed.split(b"\n\n")
        if line.startswith(b"data: {")
    ]
    assert [(chunk["index"], chunk["delta"].get("content")) for chunk in chunks] == [
        *((0, "a"), (1, "b"), (0, "c"), (0, None))
    ]


@pytest.mark.parametrize("stream", [True, False])
def test_lone_surrogates_become_replacement_characters(stream: bool) -> None:
    reply = Reply(
        [Reasoning("r\ud800"), Text("a\udfffb"), ToolCalls([ToolCall("f", {"x": "\ud83d"})])],
        sends_unoffered_calls=True,
    )
    with scripted_stub(reply) as stub:
        lines = send_message(stub, "hello", stream=stream, logprobs=True).lines
    assert (contents(lines, "thinking"), contents(lines)) == ("r\ufffd", "a\ufffdb")
    (call,) = next(
        line["message"]["tool_calls"] for line in lines if "tool_calls" in line["message"]
    )
    assert call["function"]["arguments"] == {"x": "\ufffd"}


def test_embeddings_can_be_scripted_and_can_fail() -> None:
    with scripted_stub(Reply(embedding=(3.0, 4.0))) as stub:
        answer = send_request(stub, "POST", "/api/embed", {"model": "mochi-embed", "input": "x"})
        assert answer.json["embeddings"] == [[0.6, 0.8]]
        assert send_request(
            stub, "POST", "/api/embeddings", {"model": "mochi-embed", "prompt": "x"}
        ).json["embedding"] == [3, 4]
    with scripted_stub(Reply([Failure("no", 429)])) as stub:
        answer = send_request(stub, "POST", "/api/embed", {"model": "mochi-embed", "input": "x"})
        assert (answer.json, answer.headers["retry-after"]) == ({"error": "no"}, "1")


def test_wait_for_times_out(private_stub: StubServer) -> None:
    with pytest.raises(TimeoutError, match="last exchanges"):
        private_stub.wait_for(lambda seen: len(seen) == 1, timeout=0)
