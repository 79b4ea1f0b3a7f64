"""Errors before the first chunk of a stream: an HTTP status instead of an error in the stream."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import Message

from mochi_server.errors import OllamaError
from mochi_server.events import ContentDelta, Done, Status
from mochi_server.protocols.encoded_response import EncodedResponse
from mochi_server.protocols.openai_chat.encoder import ChunkEncoder
from mochi_server.protocols.openai_chat.routes import PROTOCOL
from mochi_stub import StubServer
from mochi_stub.reply import Failure, Reply
from tests.support.api import Event, error_of, types_of
from tests.support.cases import cases
from tests.support.raw_ollama import RawOllama, line, stream_head, whole
from tests.support.runs import run_of
from tests.support.server import RunningServer

HELLO: Any = [{"role": "user", "content": "Hello!"}]
BUSY = b'{"error":"server busy, please try again.  maximum pending requests exceeded"}'


def sends(*data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"".join(data))


def busy(status: str, retry_after: int | None = None) -> bytes:
    header = "" if retry_after is None else f"\r\nRetry-After: {retry_after}"
    return whole(BUSY, status=f"{status}{header}")


@pytest.fixture(scope="module")
def ollama() -> Iterator[RawOllama]:
    with RawOllama(sends()) as ollama:
        yield ollama


@pytest.fixture(scope="module")
def raw_server(
    ollama: RawOllama, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("early")
    with RunningServer(data_dir, ollama.url, summarization_enabled=False) as server:
        yield server


def post(server: RunningServer, **fields: Any) -> httpx.Response:
    body = {"model": "raw", "messages": HELLO, "stream": True, **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body)


@cases("stream", [True, False], ids=["streamed", "whole"])
@cases(
    ("answer", "expected"),
    [
        (whole(b'{"error":"kaput"}', status="500 Oh"), (502, "ollama_error", "server_error")),
        (stream_head() + b'{"error":"kaput"}\n', (502, "ollama_error", "server_error")),
        (busy("503 Service Unavailable"), (503, "ollama_busy", "server_error")),
        (busy("429 Too Many Requests"), (429, "ollama_busy", "rate_limit_error")),
    ],
    ids=["500", "an error line", "503", "429"],
)
def test_error_before_the_first_token_has_a_status(
    raw_server: RunningServer,
    ollama: RawOllama,
    answer: bytes,
    expected: tuple[int, str, str],
    stream: bool,
) -> None:
    ollama.chat = sends(answer)
    response = post(raw_server, stream=stream)
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == expected


@cases("stream", [True, False], ids=["streamed", "whole"])
@cases(("sent", "received"), [(17, "17"), (None, "2")])
def test_busy_ollama_says_when_to_retry(
    raw_server: RunningServer, ollama: RawOllama, sent: int | None, received: str, stream: bool
) -> None:
    ollama.chat = sends(busy("429 Too Many Requests", sent))
    assert post(raw_server, stream=stream).headers["Retry-After"] == received


def test_busy_ollama_is_503_on_the_own_api(raw_server: RunningServer, ollama: RawOllama) -> None:
    ollama.chat = sends(busy("429 Too Many Requests", 17))
    api = raw_server.client
    session_id = api.create_session("raw")["session_id"]

    response = api.http.post(f"/chat/{session_id}", json={"message": "Hello!"})
    assert error_of(response) == (503, "OLLAMA_BUSY")
    assert response.headers["Retry-After"] == "17"
    assert response.json()["error"]["details"] == {"upstream_status": 429, "retry_after": 17}

    events: list[Event] = api.stream_message(session_id, "Hello!")
    assert types_of(events) == ["error", "done"]
    assert (events[0].data["code"], events[0].data["retry_after"]) == ("OLLAMA_BUSY", 17)


def test_official_client_repeats_a_failed_stream(
    raw_server: RunningServer, ollama: RawOllama
) -> None:
    import openai

    answers = [
        busy("503 Service Unavailable", 0),
        whole(b"", status="500 Oh"),
        stream_head() + line("Fine.", done=True),
    ]

    def answer(connection: socket.socket) -> None:
        connection.sendall(answers.pop(0))

    ollama.chat = answer
    with openai.OpenAI(base_url=f"{raw_server.url}/v1", api_key="any", max_retries=2) as client:
        client._calculate_retry_timeout = lambda *_: 0
        stream = client.chat.completions.create(model="raw", messages=HELLO, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Fine."
    assert answers == []


def test_unreachable_ollama_has_a_status_on_a_stream(tmp_path: Path) -> None:
    with StubServer() as stub, RunningServer(tmp_path, stub.url) as server:
        stub.stop()
        assert post(server, model="mochi").status_code == 502


def test_failing_model_has_a_status_on_each_route(tmp_path: Path) -> None:
    requests: dict[str, dict[str, Any]] = {
        "chat/completions": {"messages": HELLO},
        "completions": {"prompt": "Hello!"},
        "responses": {"input": "Hello!"},
    }
    with (
        StubServer(speed=0, resolve=lambda _: Reply([Failure("kaput")])) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        for route, request in requests.items():
            response = httpx.post(
                f"{server.url}/v1/{route}", json={"model": "mochi", "stream": True, **request}
            )
            assert (response.status_code, response.json()["error"]["message"]) == (
                502,
                "Ollama failed (500): kaput",
            ), route


class Stream:
    """A stream of a run that a test controls, and the ASGI messages that the response has sent."""

    def __init__(self, ping_seconds: float) -> None:
        self.run = run_of()
        self.sent: list[Message] = []
        self.has_started = asyncio.Event()
        encoder = ChunkEncoder(self.run, "m", include_usage=False)
        self.response = EncodedResponse(encoder, ping_seconds=ping_seconds)

    async def respond(self) -> None:
        app = SimpleNamespace(state=SimpleNamespace(protocols=[PROTOCOL]))
        await self.response(
            {"type": "http", "path": "/v1/chat/completions", "app": app}, _never, self._send
        )

    def fail(self) -> None:
        self.run.result = replace(self.run.result, failure=OllamaError("kaput"))
        self.run.state = "failed"
        self.run.publish([Done("s")])

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        self.has_started.set()


async def _never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def chunks(messages: list[Message]) -> list[Any]:
    data = b"".join(
        message["body"] for message in messages if message["type"] == "http.response.body"
    )
    frames = [
        frame.removeprefix(b"data: ")
        for frame in data.split(b"\n\n")
        if frame and frame != b": ping"
    ]
    return [frame.decode() if frame == b"[DONE]" else orjson.loads(frame) for frame in frames]


async def test_late_error_is_in_the_stream() -> None:
    stream = Stream(ping_seconds=0.01)
    responding = asyncio.ensure_future(stream.respond())
    stream.run.publish([Status("queued", 1.0)])
    await stream.has_started.wait()
    assert stream.sent[0]["status"] == 200
    stream.fail()
    await responding
    opening, error, done = chunks(stream.sent)
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (error["error"]["message"], done) == ("kaput", "[DONE]")


async def test_stream_starts_with_the_first_chunk() -> None:
    stream = Stream(ping_seconds=60)
    responding = asyncio.ensure_future(stream.respond())
    stream.run.publish([Status("queued", 1.0)])
    for _ in range(5):  # let the response run
        await asyncio.sleep(0)
    assert stream.sent == []
    stream.run.publish([ContentDelta("Hi")])
    await stream.has_started.wait()
    assert [message["type"] for message in stream.sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks(stream.sent)] == [
        "",
        "Hi",
    ]
    stream.fail()
    await responding
    assert json.dumps(chunks(stream.sent)[-2]).count("kaput") == 1
