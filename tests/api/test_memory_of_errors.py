"""Memory of requests that end with an error: it is released without a garbage collection."""

import gc
import json
import logging
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import thread as executors
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mochi_stub import StubServer
from mochi_stub.connection import Connection
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Cut, Failure, Gate, Reply, Text
from tests.support.agents import delegate, write_agent
from tests.support.api import UNUSED_TLS
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.raw_http import connect
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

ROUNDS = 2
HTTP = httpx.Client(trust_env=False, verify=UNUSED_TLS)
MALFORMED = b'{"message": "' + b"x" * 100_000
RESET = struct.pack("ii", 1, 0)
TOOLS = '''
    def broken() -> str:
        """Print a page."""
        raise RuntimeError("out of paper")

    __all__ = ["broken"]
    __read_only__ = ["broken"]
'''

Url = str
Request = Callable[[Url], None]
"""Function that sends one request to a server and waits for its end."""


class EndedRequests(logging.Handler):
    """Log handler that counts the ended requests of each path."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Counter[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.count[vars(record)["fields"]["path"]] += 1


ENDED = EndedRequests()


UVICORN_LINES: list[str] = []


def keep_text(record: logging.LogRecord) -> bool:
    """Store the text of a line of uvicorn.

    Pytest would store the record, which refers to a traceback.
    """
    UVICORN_LINES.append(logging.Formatter().format(record))
    return False


@pytest.fixture(scope="module", autouse=True)
def _logs() -> Iterator[None]:
    request_log, uvicorn_log = (
        logging.getLogger("mochi_server.web.request_log"),
        logging.getLogger("uvicorn.error"),
    )
    before = request_log.level
    request_log.addHandler(ENDED)
    request_log.setLevel(logging.INFO)
    uvicorn_log.addFilter(keep_text)
    yield
    uvicorn_log.removeFilter(keep_text)
    request_log.setLevel(before)
    request_log.removeHandler(ENDED)


def post(
    path: str,
    body: Any = None,
    *,
    status: int,
    content: bytes | None = None,
    content_type: str = "application/json",
    others: Mapping[str, str] = MappingProxyType({}),
) -> Request:
    """Return a request whose response must have the status."""
    data = json.dumps(body).encode() if content is None else content

    def send(url: Url) -> None:
        response = HTTP.post(
            f"{url}{path}", content=data, headers={"Content-Type": content_type, **others}
        )
        assert response.status_code == status, response.text

    return send


def get(path: str, *, status: int, **headers: str) -> Request:
    def send(url: Url) -> None:
        response = HTTP.get(f"{url}{path}", headers=headers)
        assert response.status_code == status, response.text

    return send


def head(path: str, *fields: str) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        *fields,
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def abort_upload(path: str) -> Request:
    """Return a request whose client resets the connection in the middle of the body."""

    def send(url: Url) -> None:
        before = ENDED.count[path]
        with connect(url) as connection:
            connection.sendall(head(path, "Content-Length: 1000000") + MALFORMED)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        until(lambda: ENDED.count[path] > before)

    return send


def send_chunks(path: str, *, status: int) -> Request:
    """Return a request with a chunked body of 2.2 MB."""
    chunk = b"%x\r\n%s\r\n" % (len(MALFORMED), MALFORMED)

    def send(url: Url) -> None:
        with connect(url) as connection:
            connection.sendall(head(path, "Transfer-Encoding: chunked", "Connection: close"))
            with suppress(ConnectionError):  # the server need not read the whole body
                connection.sendall(chunk * 22 + b"0\r\n\r\n")
            assert connection.recv(20).split()[1] == str(status).encode()

    return send


def tracebacks() -> int:
    """Return the number of tracebacks in memory that may refer to the data of a request."""
    found = [each for each in gc.get_objects() if type(each) is TracebackType]
    # Since Python 3.13, each idle thread of an executor keeps the exception of its empty queue.
    return sum(each.tb_frame.f_code.co_filename != executors.__file__ for each in found)


@contextmanager
def without_collector() -> Iterator[None]:
    gc.freeze()  # so that counts skip all objects so far
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def assert_released(url: str, request: Request) -> None:
    """Fail if the memory of requests is only released by a garbage collection."""
    with without_collector():
        for _ in range(ROUNDS):
            request(url)
        until(lambda: tracebacks() <= 1)


MODEL = {"model": "mochi"}
HELLO = {"messages": [{"role": "user", "content": "Hello!"}]}
NATIVE_BODIES = (
    "/api/v1/sessions",
    "/api/v1/chat/0123456789/stream",
    "/api/v1/chat/0123456789",
    "/api/v1/chat/0123456789/ai-sdk",
    "/api/v1/chat/0123456789/ag-ui",
)
CLIENT_BODIES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
)
REFUSALS = {
    **{f"malformed {path}": post(path, content=MALFORMED, status=422) for path in NATIVE_BODIES},
    **{f"malformed {path}": post(path, content=MALFORMED, status=400) for path in CLIENT_BODIES},
    **{f"aborted {path}": abort_upload(path) for path in (*NATIVE_BODIES, *CLIENT_BODIES)},
    **{
        f"chunked {path}": send_chunks(path, status=413)
        for path in (*NATIVE_BODIES, *CLIENT_BODIES)
    },
    "unknown field": post("/api/v1/sessions", {"modle": "x" * 1000}, status=422),
    "unknown query": get("/api/v1/sessions?limits=5", status=422),
    "unknown model": post("/api/v1/sessions", {"model": "nowhere"}, status=404),
    "unknown model of a client": post(
        "/v1/chat/completions", {"model": "nowhere", **HELLO}, status=404
    ),
    "unknown model to count for": post(
        "/v1/messages/count_tokens", {"model": "nowhere", **HELLO}, status=404
    ),
    "unknown session": get("/api/v1/sessions/0123456789", status=404),
    "unknown route": get("/api/v1/nothing", status=404),
    "wrong method": post("/api/v1/health", {}, status=405),
    "no JSON": post("/api/v1/sessions", {}, status=422, content_type="text/plain"),
    "foreign origin": get("/api/v1/sessions", status=403, Origin="https://evil.example"),
    "too large": post("/api/v1/sessions", content=b"x" * 2_100_000, status=413),
    "no Ollama model": post("/v1/responses", {"model": "nowhere", "input": "x"}, status=404),
}


def reply_to(prompt: Prompt) -> Reply | None:
    """Return a reply that fails, ends early or never ends if the user asks for it."""
    text = prompt.user_text
    if "instruction_start" in text:
        return None
    if "fail" in text or "help" in text:
        return Reply([Failure("out of order", 500)])
    if "cut" in text:
        return Reply([Text(["Hi "]), Cut()])
    return (
        Reply([Text(["one ", "two ", "three "]), Gate()])
        if "hold" in text
        else Reply([Text(["Hi there."])])
    )


@pytest.fixture(scope="module")
def replies() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=reply_to) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, replies: StubServer
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("errors")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    with RunningServer(
        data_dir, replies.url, max_body_bytes=2_000_000, summarization_enabled=False
    ) as server:
        add_defects(server.app)
        yield server


class BrokenStream(Response):
    """Response that fails after its first part."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_part(message: Message) -> None:
            await send({**message, "more_body": True} if "body" in message else message)

        await super().__call__(scope, receive, send_part)
        raise RuntimeError("a defect")


def add_defects(app: FastAPI) -> None:
    """Add routes that raise unexpected errors."""

    @app.get("/defects/thread")
    def fail_in_thread() -> None:
        raise RuntimeError("a defect")

    @app.get("/defects/stream")
    def fail_in_stream() -> Response:
        return BrokenStream(b"one")

    @app.post("/defects/body")
    async def fail_with_body(request: HttpRequest) -> None:
        await request.json()
        raise RuntimeError("a defect")


@cases("name", list(REFUSALS))
def test_refused_request_leaves_no_traceback(server: RunningServer, name: str) -> None:
    assert_released(server.url, REFUSALS[name])


def test_request_without_a_right_leaves_no_traceback(tmp_path: Path, replies: StubServer) -> None:
    write_keys(tmp_path / "keys.yaml", few={"turns_per_minute": 1})
    key = headers("few")
    with RunningServer(
        tmp_path, replies.url, api_keys_file="keys.yaml", summarization_enabled=False
    ) as server:
        post("/v1/chat/completions", MODEL | HELLO, status=200, others=key)(server.url)
        for path in ("/v1/chat/completions", "/v1/messages"):
            body = {**MODEL, **HELLO, "max_tokens": 99}
            assert_released(server.url, post(path, body, status=401))
            assert_released(server.url, post(path, body, status=429, others=key))
        session = HTTP.post(f"{server.url}/api/v1/sessions", json=MODEL, headers=key).json()[
            "session_id"
        ]
        assert_released(
            server.url, post(f"/api/v1/chat/{session}", {"message": "x"}, status=429, others=key)
        )


def turn_request(
    url: Url, kind: str, text: str, session: Mapping[str, Any] = MappingProxyType({})
) -> tuple[str, Any]:
    """Return the path and the body of a request for a turn in a new session."""
    message = {"id": "m", "role": "user", "content": text}
    asked = {**MODEL, "messages": [{"role": "user", "content": text}]}
    chat = ""
    if kind in ("collected", "streamed", "ai-sdk", "ag-ui"):
        created = HTTP.post(f"{url}/api/v1/sessions", json={**MODEL, **session})
        chat = f"/api/v1/chat/{created.json()['session_id']}"
    requests: dict[str, tuple[str, Any]] = {
        "collected": (chat, {"message": text}),
        "streamed": (f"{chat}/stream", {"message": text}),
        "ai-sdk": (
            f"{chat}/ai-sdk",
            {"messages": [{**message, "parts": [{"type": "text", "text": text}]}]},
        ),
        "ag-ui": (f"{chat}/ag-ui", {"threadId": "t", "runId": "r", "messages": [message]}),
        "completion": ("/v1/chat/completions", asked),
        "streamed completion": ("/v1/chat/completions", {**asked, "stream": True}),
        "text completion": ("/v1/completions", {**MODEL, "prompt": text, "stream": True}),
        "response": ("/v1/responses", {**MODEL, "input": text}),
        "streamed response": ("/v1/responses", {**MODEL, "input": text, "stream": True}),
        "message": ("/v1/messages", {**asked, "max_tokens": 99}),
        "streamed message": ("/v1/messages", {**asked, "max_tokens": 99, "stream": True}),
    }
    return requests[kind]


STREAMS = (
    "streamed",
    "ai-sdk",
    "ag-ui",
    "streamed completion",
    "text completion",
    "streamed response",
    "streamed message",
)
KINDS = (*STREAMS, "collected", "completion", "response", "message")


def turn(
    url: Url,
    kind: str,
    text: str,
    expected: str = "",
    session: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Answer a message and read the response to its end, whatever its status."""
    path, body = turn_request(url, kind, text, session)
    response = HTTP.post(f"{url}{path}", json=body)
    assert expected in response.text, response.text


@cases("kind", KINDS)
def test_failed_turn_leaves_no_traceback(server: RunningServer, kind: str) -> None:
    for text in ("fail", "cut"):
        assert_released(server.url, partial(turn, kind=kind, text=text))


def test_failed_tool_leaves_no_traceback(server: RunningServer) -> None:
    text = instruct(calls("broken"), words(3))
    settings = {"tool_settings": {"tools": ["broken"], "execution_policy": "never_confirm"}}
    assert_released(
        server.url,
        partial(turn, kind="streamed", text=text, expected="out of paper", session=settings),
    )


def test_failed_agent_leaves_no_traceback(server: RunningServer) -> None:
    text = instruct(delegate(), words(3))
    policy = {"execution_policy": "never_confirm"}
    settings = {
        "agent_settings": {"enabled_agents": ["helper"]},
        "tool_settings": {"tools": [], **policy},
    }
    assert_released(
        server.url,
        partial(turn, kind="streamed", text=text, expected="out of order", session=settings),
    )


def leave(url: Url, path: str, body: Any) -> None:
    """Send a request and reset the connection after the first bytes of the response."""
    data = json.dumps(body).encode()
    with connect(url) as connection:
        connection.sendall(head(path, f"Content-Length: {len(data)}") + data)
        received = b""
        while b"two" not in received:
            more = connection.recv(65536)
            assert more, received
            received += more
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@cases("kind", STREAMS)
def test_left_stream_leaves_no_traceback(
    server: RunningServer, replies: StubServer, kind: str
) -> None:
    def send(url: Url) -> None:
        replies.clear_exchanges()
        path, body = turn_request(url, kind, "hold")
        before = ENDED.count[path]
        leave(url, path, body)
        until(lambda: ENDED.count[path] > before)
        wait_until_cancelled(replies, "/api/chat")

    assert_released(server.url, send)


def wait_until_cancelled(stub: StubServer, path: str) -> None:
    stub.wait_for(
        lambda exchanges: any(e.path == path and e.outcome == "cancelled" for e in exchanges)
    )


def logged_defects() -> int:
    return sum("RuntimeError: a defect" in line for line in UVICORN_LINES)


@cases("name", ["thread", "stream", "body"])
def test_unexpected_error_leaves_no_traceback(server: RunningServer, name: str) -> None:
    close = {"Connection": "close"}  # uvicorn closes it after such an error
    requests = {
        "thread": get("/defects/thread", status=500, **close),
        "stream": get("/defects/stream", status=200, **close),
        "body": post("/defects/body", {"text": "x" * 1000}, status=500, others=close),
    }

    def send(url: Url) -> None:
        lines = logged_defects()
        requests[name](url)
        until(lambda: logged_defects() > lines)

    assert_released(server.url, send)


STUB_BODIES = (
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
)
STUB_REFUSALS = {
    **{f"malformed {path}": post(path, content=MALFORMED, status=400) for path in STUB_BODIES},
    "unknown model": post("/api/chat", {"model": "nowhere", **HELLO}, status=404),
    "unknown route": get("/api/nothing", status=404),
    "failure": post(
        "/api/chat", {**MODEL, "messages": [{"role": "user", "content": "fail"}]}, status=500
    ),
}


@cases("name", list(STUB_REFUSALS))
def test_refused_request_to_the_stub_leaves_no_traceback(replies: StubServer, name: str) -> None:
    assert_released(replies.url, STUB_REFUSALS[name])


@cases("path", ["/api/chat", "/v1/chat/completions", "/v1/messages"])
def test_left_stream_of_the_stub_leaves_no_traceback(replies: StubServer, path: str) -> None:
    body = {
        **MODEL,
        "messages": [{"role": "user", "content": "hold"}],
        "max_tokens": 99,
        "stream": True,
    }

    def send(url: Url) -> None:
        replies.clear_exchanges()
        leave(url, path, body)
        wait_until_cancelled(replies, path)

    assert_released(replies.url, send)


def connections() -> int:
    """Return the number of new connections of the stub in memory."""
    return Counter(map(type, gc.get_objects()))[Connection]


def test_closed_connection_to_the_stub_leaves_memory(replies: StubServer) -> None:
    with without_collector():
        with connect(replies.url) as connection:
            connection.sendall(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1000)
            assert connections() == 1
            connection.sendall(head("/api/chat", "Content-Length: 1000000") + MALFORMED)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        until(lambda: connections() == 0)
