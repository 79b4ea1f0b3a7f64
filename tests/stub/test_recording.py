"""Recording of another server (here a stub) and replay of the recordings."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mochi_stub import Gate, Pause, Reply, StubServer, Text
from mochi_stub.config import validate_config
from mochi_stub.recorder import ResponseCapture, record
from mochi_stub.recording import request_key
from mochi_stub.replay import describe_nearest
from tests.stub.requests import RawResponse, open_stream, send_message, send_request
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import ollama
else:
    ollama = LazyModule("ollama")

TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
CALL = '<|instruction_start|>{"messages":[{"tool_call":[{"name":"now","args":{"at":"<1>"}}]}]}<|instruction_end|>'
HELLO = [{"role": "user", "content": "héllo\nReason: \U0001f361 why"}]
REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("GET", "/api/tags", None),
    ("POST", "/api/show", {"model": "mochi"}),
    ("GET", "/api/nothing", None),
    ("POST", "/api/chat", {"model": "mochi", "messages": HELLO}),
    ("POST", "/api/chat", {"model": "mochi", "messages": HELLO, "stream": False}),
    (
        "POST",
        "/api/chat",
        {"model": "mochi", "messages": [{"role": "user", "content": CALL}], "tools": TOOLS},
    ),
    ("POST", "/api/chat", {"model": "mochi", "messages": HELLO, "options": {"num_predict": 3}}),
    ("POST", "/api/chat", {"model": "nope", "messages": HELLO}),
    ("POST", "/api/generate", {"model": "mochi", "prompt": "hello"}),
    ("POST", "/api/embed", {"model": "mochi-embed", "input": ["a", "b"]}),
    ("POST", "/v1/chat/completions", {"model": "mochi", "messages": HELLO, "stream": True}),
    ("POST", "/v1/chat/completions", {"model": "mochi", "messages": HELLO}),
    ("POST", "/v1/responses", {"model": "mochi", "input": "hello", "stream": True}),
    (
        "POST",
        "/v1/messages",
        {"model": "mochi", "messages": HELLO, "max_tokens": 9, "stream": True},
    ),
    (
        "POST",
        "/v1beta/models/mochi:streamGenerateContent?alt=sse",
        {"contents": [{"parts": [{"text": "hello"}]}]},
    ),
    (
        "POST",
        "/v1beta/models/mochi:generateContent",
        {"contents": [{"parts": [{"text": "hello"}]}]},
    ),
]


@contextmanager
def start_recorder(upstream: StubServer, folder: Path) -> Iterator[StubServer]:
    with StubServer(record=record(upstream.url, folder), speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with recordings of all requests. Tests only read it."""
    made = tmp_path_factory.mktemp("recordings") / "made"
    with StubServer(speed=0) as upstream, start_recorder(upstream, made) as recorder:
        for method, path, body in REQUESTS:
            passed, direct = (
                send_request(recorder, method, path, body),
                send_request(upstream, method, path, body),
            )
            assert (passed.status, passed.body) == (direct.status, direct.body)
    return made


def replay_stub(folder: Path) -> StubServer:
    return StubServer(config=folder / "config.yaml", speed=0)


def parsed_content(answer: RawResponse) -> Any:
    """Return the parsed content of an answer, regardless of whitespace."""
    text = answer.body.decode()
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        data = [
            line.removeprefix("data:").strip()
            for line in text.splitlines()
            if line.startswith("data:")
        ]
        return [line if line == "[DONE]" else json.loads(line) for line in data]
    try:
        return [json.loads(line) for line in text.splitlines() if line]
    except json.JSONDecodeError:
        return text


def test_recording_is_replayed_without_loss(folder: Path, private_stub: StubServer) -> None:
    with replay_stub(folder) as replay:
        for method, path, body in REQUESTS:
            again, direct = (
                send_request(replay, method, path, body),
                send_request(private_stub, method, path, body),
            )
            assert again.status == direct.status, path
            assert parsed_content(again) == parsed_content(direct), path
            assert (
                again.headers["content-type"].partition(";")[0]
                == direct.headers["content-type"].partition(";")[0]
            )
            if path.startswith("/api"):
                assert again.body == direct.body
        assert all(exchange.rule.startswith("recording ") for exchange in replay.exchanges())


def test_file_has_the_specified_form_and_times(folder: Path) -> None:
    (file,) = (
        one
        for one in folder.glob("api-chat-*.yaml")
        if CALL in one.read_text().replace("\n", "") or "tools:" in one.read_text()
    )
    recording = yaml.safe_load(file.read_text())
    assert list(recording) == ["timestamp", "duration_ms", "request", "response"]
    assert list(recording["request"]) == ["method", "url", "headers", "body"]
    assert recording["response"]["is_streaming"] is True
    (call,) = recording["response"]["body"][0]["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert recording["response"]["body"][-1]["eval_count"]
    at = recording["response"]["at_ms"]
    assert len(at) == len(recording["response"]["body"])
    assert at == sorted(at)
    assert at[-1] <= recording["duration_ms"]


def test_recording_is_replayed_in_the_other_mode(tmp_path: Path, stub: StubServer) -> None:
    with start_recorder(stub, tmp_path) as recorder:
        streamed = send_message(recorder, "one", stream=True).lines
        whole = send_message(recorder, "two", stream=False).json
    with replay_stub(tmp_path) as replay:
        reply = send_message(replay, "one", stream=False).json
        assert reply["message"]["content"] == "".join(
            line["message"]["content"] for line in streamed
        )
        assert reply["eval_count"] == streamed[-1]["eval_count"]
        assert reply["total_duration"] == streamed[-1]["total_duration"]
        lines = send_message(replay, "two", stream=True).lines
        assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
        assert len(lines) > 2


def test_same_request_is_recorded_once(tmp_path: Path, stub: StubServer) -> None:
    with start_recorder(stub, tmp_path) as recorder:
        for _ in range(3):
            send_message(recorder, "hello")
        send_message(recorder, "other")
    assert len(list(tmp_path.glob("api-chat-*.yaml"))) == 2


def test_stream_is_forwarded_while_it_arrives(tmp_path: Path) -> None:
    gate = Gate()
    reply = Reply([Text(("one",)), gate, Text((" two",))])
    body = {"model": "mochi", "messages": [{"role": "user", "content": "x"}]}
    with (
        StubServer(resolve=lambda _: reply, speed=0) as upstream,
        start_recorder(upstream, tmp_path) as recorder,
        open_stream(recorder, "/api/chat", body) as response,
    ):
        assert json.loads(response.readline())["message"]["content"] == "one"
        assert not list(tmp_path.glob("api-chat-*.yaml"))
        gate.open()
        assert len(response.readlines()) == 2
    assert len(list(tmp_path.glob("api-chat-*.yaml"))) == 1


def test_disconnect_cancels_the_request_and_its_recording(tmp_path: Path) -> None:
    body = {"model": "mochi", "messages": [{"role": "user", "content": "x"}]}
    with (
        StubServer(resolve=lambda _: Reply([Text(("one",)), Gate()]), speed=0) as upstream,
        start_recorder(upstream, tmp_path) as recorder,
    ):
        with open_stream(recorder, "/api/chat", body) as response:
            assert response.readline()
        upstream.wait_for(lambda seen: seen[0].outcome == "cancelled")
        recorder.wait_for(lambda seen: seen[0].outcome == "cancelled")
    assert not list(tmp_path.glob("api-chat-*.yaml"))


def test_credentials_are_masked_and_not_compared(tmp_path: Path, stub: StubServer) -> None:
    secret = "sk-very-secret-0123456789"
    body = {"model": "mochi", "messages": HELLO, "api_key": secret}
    headers = {"Authorization": f"Bearer {secret}", "x-api-key": secret, "Cookie": f"a={secret}"}
    with start_recorder(stub, tmp_path) as recorder:
        send_request(recorder, "POST", f"/v1/chat/completions?key={secret}", body, headers)
    (file,) = tmp_path.glob("v1-*.yaml")
    assert secret not in file.read_text()
    with replay_stub(tmp_path) as replay:
        other = {**body, "api_key": "another"}
        assert send_request(replay, "POST", "/v1/chat/completions?key=another", other).status == 200


def test_miss_names_the_nearest_recording(folder: Path) -> None:
    with replay_stub(folder) as stub:
        missed = send_message(stub, "hello", stream=False)
        assert missed.status == 404
        assert "no recording of this request; the nearest is api-chat-" in missed.json["error"]
        assert "requested 'hello'" in missed.json["error"]
        body = {
            "model": "mochi",
            "messages": [{"role": "user", "content": "other"}],
            "max_tokens": 9,
        }
        for path, name in (
            ("/v1/chat/completions", "v1-chat-completions-"),
            ("/v1/messages", "v1-messages-"),
        ):
            refused = send_request(stub, "POST", path, body)
            assert refused.status == 404
            assert f"nearest is {name}" in refused.json["error"]["message"]
        assert (
            "nearest is"
            in send_request(stub, "POST", "/api/show", {"model": "other"}).json["error"]
        )
        assert (
            "nearest is"
            in send_request(stub, "POST", "/api/embed", {"model": "m", "input": "c"}).json["error"]
        )
        assert stub.exchanges()[0].rule == "no recording"


def test_configured_models_answer_unrecorded_requests(tmp_path: Path, stub: StubServer) -> None:
    with start_recorder(stub, tmp_path) as recorder:
        send_message(recorder, "recorded")
    (tmp_path / "config.yaml").write_text(
        "recordings: .\nmodels: {mochi: [{_default: configured}]}"
    )
    with replay_stub(tmp_path) as replay:
        assert send_message(replay, "recorded").lines[0]["message"]["content"] != "configured"
        assert send_message(replay, "other").lines[0]["message"]["content"] == "configured"


def test_miss_names_unreadable_recordings(tmp_path: Path, stub: StubServer) -> None:
    with start_recorder(stub, tmp_path) as recorder:
        send_message(recorder, "recorded")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "broken.yaml").write_text("request: {")
    with replay_stub(tmp_path) as replay:
        assert (
            f"{tmp_path / 'below' / 'broken.yaml'}:1: expected YAML"
            in send_message(replay, "other").json["error"]
        )
        assert send_message(replay, "recorded").status == 200
    (problem,) = validate_config(tmp_path / "config.yaml")
    assert "broken.yaml:1: expected YAML" in problem


def test_time_to_first_token_is_recorded(tmp_path: Path) -> None:
    with (
        StubServer(resolve=lambda _: Reply([Pause(0.1), Text(("late",))])) as slow,
        start_recorder(slow, tmp_path) as stub,
    ):
        send_message(stub, "hello")
        send_message(stub, "hello", stream=False)
    made = [yaml.safe_load(file.read_text()) for file in tmp_path.glob("api-chat-*.yaml")]
    (streamed,) = [one for one in made if one["response"]["is_streaming"]]
    assert streamed["response"]["at_ms"][0] >= 100
    assert all(one["duration_ms"] >= 100 for one in made)


def test_unreachable_server_is_a_502(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        upstream = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with StubServer(record=record(upstream, tmp_path), speed=0) as recorder:
            answer = send_message(recorder, "hello")
            assert answer.status == 502
            assert answer.json["error"].startswith(f"{upstream} cannot be reached")
            routes: list[tuple[str, Any]] = [
                (
                    "/v1/chat/completions",
                    lambda body: (body["error"]["type"], body["error"]["message"]),
                ),
                ("/v1/messages", lambda body: (body["error"]["type"], body["error"]["message"])),
                (
                    "/v1beta/models/m:generateContent",
                    lambda body: (body["error"]["code"], body["error"]["message"]),
                ),
            ]
            errors = [
                words(send_request(recorder, "POST", path, {}).json) for path, words in routes
            ]
    assert [kind for kind, _ in errors] == ["server_error", "api_error", 502]
    assert all(message.startswith(f"{upstream} cannot be reached") for _, message in errors)
    assert not list(tmp_path.glob("*-*.yaml"))


def test_server_below_a_path_is_recorded(tmp_path: Path, stub: StubServer) -> None:
    with StubServer(record=record(f"{stub.url}/ollama", tmp_path), speed=0) as recorder:
        first = send_message(recorder, "hello")
    (file,) = tmp_path.glob("api-chat-*.yaml")
    assert yaml.safe_load(file.read_text())["request"]["url"] == f"{stub.url}/ollama/api/chat"
    with StubServer(
        record=record(f"http://me:secret@{stub.host}:{stub.port}/ollama", tmp_path)
    ) as recorder:
        assert send_request(recorder, "GET", "/api/version").status == 200
    assert not [one for one in tmp_path.iterdir() if "secret" in one.read_text()]
    with replay_stub(tmp_path) as replay:
        assert send_message(replay, "hello").lines == first.lines


def test_recorder_answers_preflight_requests(tmp_path: Path, stub: StubServer) -> None:
    page, foreign = {"Origin": "http://localhost:3000"}, {"Origin": "https://elsewhere.example"}
    with start_recorder(stub, tmp_path) as recorder:
        answer = send_request(recorder, "OPTIONS", "/api/chat", headers=page)
        refused = send_request(recorder, "GET", "/api/tags", headers=foreign)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, page["Origin"])
    assert (refused.status, refused.body) == (403, b"")
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]


def test_routes_of_the_stub_are_not_replayed(folder: Path) -> None:
    with replay_stub(folder) as stub:
        send_message(stub, "not recorded")
        assert send_request(stub, "GET", "/health").json == {"status": "ok"}
        assert send_request(stub, "GET", "/stub/state").json["in_flight"] == 0
        (row,) = [
            one
            for one in send_request(stub, "GET", "/stub/requests").json["requests"]
            if one["path"] == "/api/chat"
        ]
        assert (row["status"], row["rule"]) == (404, "no recording")


def test_reply_is_sent_even_if_it_cannot_be_recorded(
    tmp_path: Path, stub: StubServer, caplog: pytest.LogCaptureFixture
) -> None:
    with start_recorder(stub, tmp_path / "gone") as recorder:
        shutil.rmtree(tmp_path / "gone")
        assert send_message(recorder, "hello").lines[-1]["done"]
    assert "recording not written: method=POST path=/api/chat" in caplog.text


def test_unusual_streams_are_parsed() -> None:
    events = ResponseCapture("text/event-stream")
    events.add(
        b': wait\n\nevent: x\ndata: {"a":\r\ndata: 1}\r\n\r\ndata: "no object"\n\ndata: [DONE]', 0
    )
    assert events.finished(0)[0] == [{"a": 1}, '"no object"', {"done": True}]
    lines = ResponseCapture("application/x-ndjson")
    lines.add(b'{"half": "\\ud83d", "whole": "\\ud83d\\ude00"}\n\nnot JSON\n', 0)
    assert lines.finished(0)[0] == [{"half": "?", "whole": "\U0001f600"}, "not JSON"]


def test_line_that_is_not_json_is_replayed_unchanged(tmp_path: Path) -> None:
    recording = {
        "request": {"url": "http://x/api/chat", "body": {}},
        "response": {"body": [{"done": False}, "oops"]},
    }
    (tmp_path / "odd.json").write_text(json.dumps(recording))
    (tmp_path / "config.yaml").write_text("recordings: .\n")
    with replay_stub(tmp_path) as stub:
        assert send_request(stub, "POST", "/api/chat", {}).body == b'{"done":false}\noops\n'


def test_routes_of_the_stub_are_not_forwarded(tmp_path: Path, stub: StubServer) -> None:
    with start_recorder(stub, tmp_path) as recorder:
        send_message(recorder, "hello")
        assert send_request(recorder, "GET", "/health").json == {"status": "ok"}
        assert send_request(recorder, "GET", "/stub/requests").status == 200
    assert [file.name.split("-")[0] for file in sorted(tmp_path.iterdir())] == [
        "api",
        "config.yaml",
    ]


@pytest.mark.parametrize("upstream", ["", "localhost:11434", "ftp://x", "http://", "http://x:port"])
def test_invalid_server_url_is_refused(tmp_path: Path, upstream: str) -> None:
    with pytest.raises(ValueError, match="expected an http or https URL"):
        record(upstream, tmp_path)


@pytest.mark.parametrize("upstream", ["http://x/?key=secret", "http://x?", "https://x/base#top"])
def test_server_url_with_a_query_or_fragment_is_refused(tmp_path: Path, upstream: str) -> None:
    with pytest.raises(ValueError, match="without a query"):
        record(upstream, tmp_path)


def test_ollama_client_reads_recorded_and_replayed_streams(
    tmp_path: Path, stub: StubServer
) -> None:
    def stream_texts(replay: StubServer) -> list[str]:
        client = ollama.Client(replay.url)
        try:
            return [
                part.message.content or ""
                for part in client.chat("mochi", HELLO, stream=True, think=True)
            ]
        finally:
            client._client.close()

    with start_recorder(stub, tmp_path) as recorder:
        first = stream_texts(recorder)
    with replay_stub(tmp_path) as replay:
        assert stream_texts(replay) == first == stream_texts(stub)


def test_path_prefix_and_key_order_are_not_compared() -> None:
    one = request_key("POST", "/ollama/api/chat", "", b'{"model":"m","messages":[],"stream":true}')
    other = request_key("POST", "/api/chat", "", b'{"messages":[],  "model":"m"}')
    assert one.digest == other.digest
    whole = request_key("POST", "/api/chat", "", b'{"messages":[],"model":"m","stream":false}')
    assert replace(one, stream=False).digest == whole.digest


def test_miss_without_recordings_is_reported() -> None:
    wanted = request_key("POST", "/api/chat", "", b"{}")
    assert describe_nearest(wanted, []) == "there is no recording of any POST request"
