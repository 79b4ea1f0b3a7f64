"""Memory of requests that end with an error: it is released without a garbage collection."""

import gc
import json
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Cut, Failure, Reply, Text
from tests.support.api import UNUSED_TLS
from tests.support.cases import cases
from tests.support.raw_http import connect
from tests.support.server import RunningServer
from tests.support.waiting import until

ROUNDS = 6
HTTP = httpx.Client(trust_env=False, verify=UNUSED_TLS)
MALFORMED = b'{"message": "' + b"x" * 100_000

Url = str
Request = Callable[[Url], None]
"""Function that sends one request to a server and reads its response, if any."""


def post(
    path: str,
    body: Any = None,
    *,
    status: int,
    content: bytes | None = None,
    content_type: str = "application/json",
) -> Request:
    """Return a request whose response must have the status."""
    data = json.dumps(body).encode() if content is None else content

    def send(url: Url) -> None:
        headers = {"Content-Type": content_type}
        response = HTTP.post(f"{url}{path}", content=data, headers=headers)
        assert response.status_code == status, response.text

    return send


def get(path: str, *, status: int, **headers: str) -> Request:
    def send(url: Url) -> None:
        response = HTTP.get(f"{url}{path}", headers=headers)
        assert response.status_code == status, response.text

    return send


def abort_upload(path: str) -> Request:
    """Return a request whose client resets the connection in the middle of the body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    )

    def send(url: Url) -> None:
        with connect(url) as connection:
            connection.sendall(head.encode() + MALFORMED)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return send


def tracebacks() -> int:
    """Return the number of tracebacks in memory. Each refers to the data of a request."""
    return Counter(map(type, gc.get_objects()))[TracebackType]


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # so that later collections and counts skip all objects so far
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def assert_released(url: str, request: Request) -> None:
    """Fail if the memory of requests is only released by a garbage collection."""
    request(url)  # fills caches
    with without_collector():
        before = tracebacks()
        for _ in range(ROUNDS):
            request(url)
        until(lambda: tracebacks() < before + ROUNDS // 2, 3)


def cut(url: Url, path: str, body: Any) -> None:
    """Send a request and reset the connection after the first bytes of the response."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connect(url) as connection:
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


MODEL = {"model": "mochi"}
HELLO = {"messages": [{"role": "user", "content": "Hello!"}]}
NATIVE_BODIES = (
    "/api/v1/sessions",
    "/api/v1/chat/0123456789/stream",
    "/api/v1/chat/0123456789",
    "/api/v1/chat/0123456789/ai-sdk",
    "/api/v1/chat/0123456789/ag-ui",
)
OPENAI_BODIES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages")
REFUSALS = {
    **{f"malformed {path}": post(path, content=MALFORMED, status=422) for path in NATIVE_BODIES[:3]},
    **{f"malformed {path}": post(path, content=MALFORMED, status=400) for path in OPENAI_BODIES},
    **{f"aborted {path}": abort_upload(path) for path in (*NATIVE_BODIES, *OPENAI_BODIES)},
    "unknown field": post("/api/v1/sessions", {"modle": "x" * 1000}, status=422),
    "unknown query": get("/api/v1/sessions?limits=5", status=422),
    "unknown model": post("/api/v1/sessions", {"model": "nowhere"}, status=404),
    "unknown model of a client": post("/v1/chat/completions", {"model": "nowhere", **HELLO}, status=404),
    "unknown session": get("/api/v1/sessions/0123456789", status=404),
    "unknown route": get("/api/v1/nothing", status=404),
    "wrong method": post("/api/v1/health", {}, status=405),
    "no JSON": post("/api/v1/sessions", {}, status=422, content_type="text/plain"),
    "foreign origin": get("/api/v1/sessions", status=403, Origin="https://evil.example"),
    "too large": post("/api/v1/sessions", content=b"x" * 3_000_000, status=413),
    "no Ollama model": post("/v1/responses", {"model": "nowhere", "input": "x"}, status=404),
}


@pytest.fixture(scope="module")
def replies() -> Iterator[StubServer]:
    """A stub whose answers fail or end early if the user asks for it."""

    def reply(prompt: Prompt) -> Reply:
        if "fail" in prompt.user_text:
            return Reply([Failure("out of order", 500)])
        return Reply([Text(["Hi "]), Cut()]) if "cut" in prompt.user_text else Reply([Text(["Hi there."])])

    with StubServer(speed=0, resolve=reply) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, replies: StubServer) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("errors")
    with RunningServer(data_dir, replies.url, max_body_bytes=2_000_000, summarization_enabled=False) as server:
        yield server


@cases("name", list(REFUSALS))
def test_refused_request_leaves_no_traceback(server: RunningServer, name: str) -> None:
    assert_released(server.url, REFUSALS[name])


def turn(url: Url, kind: str, text: str) -> None:
    """Answer a message and read the response to its end, whatever its status."""
    message = {"role": "user", "content": text}
    session = HTTP.post(f"{url}/api/v1/sessions", json=MODEL).json()["session_id"]
    path, body = {
        "collected": (f"/api/v1/chat/{session}", {"message": text}),
        "streamed": (f"/api/v1/chat/{session}/stream", {"message": text}),
        "completion": ("/v1/chat/completions", {**MODEL, "messages": [message]}),
        "streamed completion": ("/v1/chat/completions", {**MODEL, "messages": [message], "stream": True}),
        "response": ("/v1/responses", {**MODEL, "input": text}),
        "message": ("/v1/messages", {**MODEL, "max_tokens": 9, "messages": [message]}),
    }[kind]
    HTTP.post(f"{url}{path}", json=body)


KINDS = ("collected", "streamed", "completion", "streamed completion", "response", "message")


@cases("text", ["fail", "cut"])
def test_failed_turn_leaves_no_traceback(server: RunningServer, text: str) -> None:
    for kind in KINDS:
        assert_released(server.url, partial(turn, kind=kind, text=text))


def left_stream(url: Url) -> None:
    """Close the connection while the answer is streamed."""
    session = HTTP.post(f"{url}/api/v1/sessions", json=MODEL).json()["session_id"]
    cut(url, f"/api/v1/chat/{session}/stream", {"message": "Hello!"})


def test_left_stream_leaves_no_traceback(server: RunningServer) -> None:
    assert_released(server.url, left_stream)


STUB_BODIES = ("/api/chat", "/api/generate", "/api/embed", "/v1/chat/completions", "/v1/messages", "/v1/responses")
STUB_REFUSALS = {
    **{f"malformed {path}": post(path, content=MALFORMED, status=400) for path in STUB_BODIES},
    **{f"aborted {path}": abort_upload(path) for path in STUB_BODIES},
    "unknown model": post("/api/chat", {"model": "nowhere", **HELLO}, status=404),
    "unknown route": get("/api/nothing", status=404),
    "failure": post("/api/chat", {**MODEL, "messages": [{"role": "user", "content": "fail"}]}, status=500),
}


@cases("name", list(STUB_REFUSALS))
def test_refused_request_to_the_stub_leaves_no_traceback(replies: StubServer, name: str) -> None:
    assert_released(replies.url, STUB_REFUSALS[name])
