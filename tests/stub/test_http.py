"""Methods, paths, prefixes, HEAD and CORS: behavior of HTTP rather than of a route."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp.base_protocol import BaseProtocol

from mochi_stub import Model, StubServer
from mochi_stub.app import MAX_DECLARED_BYTES
from mochi_stub.connection import TolerantParser
from tests.stub.requests import raw_connection, send_request
from tests.support.cases import cases

PATHS = ("/api/version", "/api/tags", "/api/ps")


@cases(
    ("method", "path", "allow"),
    [
        ("POST", "/api/tags", "HEAD, GET"),
        ("DELETE", "/", "HEAD, GET"),
        ("HEAD", "/api/ps", "GET"),
        ("PUT", "/api/chat", "POST"),
        ("OPTIONS", "/api/chat", "POST"),
        ("GET", "/ollama/api/generate", "POST"),
    ],
)
def test_known_path_with_another_method_is_405(
    stub: StubServer, method: str, path: str, allow: str
) -> None:
    answer = send_request(stub, method, path)
    assert (answer.status, answer.headers["allow"], answer.headers["content-type"]) == (
        405,
        allow,
        "text/plain",
    )
    assert answer.body == (b"" if method == "HEAD" else b"405 method not allowed")


@cases(
    "path",
    [
        "/api",
        "/api/tags/",
        "//api/tags",
        "/api/me",
        "/api/chat/x",
        "/ollama/x",
        "/%E9",
        "/v2/models",
    ],
)
def test_unknown_path_is_404(stub: StubServer, path: str) -> None:
    answer = send_request(stub, "GET", path)
    assert (answer.status, answer.body) == (404, b"404 page not found")


@cases("path", PATHS)
def test_routes_are_also_served_below_ollama(stub: StubServer, path: str) -> None:
    assert send_request(stub, "GET", f"/ollama{path}").body == send_request(stub, "GET", path).body


@pytest.mark.parametrize("path", ["/ollama", "/"])
def test_root_reports_that_the_server_runs(stub: StubServer, path: str) -> None:
    assert send_request(stub, "GET", path).body == b"Ollama is running"


def test_head_has_the_headers_of_get_and_no_body(stub: StubServer) -> None:
    for path in ("/", "/api/version", "/api/tags"):
        head, get = send_request(stub, "HEAD", path), send_request(stub, "GET", path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        declared = str(len(get.body)) if len(get.body) <= MAX_DECLARED_BYTES else None
        assert head.headers.get("content-length") == get.headers.get("content-length") == declared


def test_large_bodies_use_chunked_encoding() -> None:
    with StubServer(models=[Model(f"model-{number}") for number in range(9)]) as stub:
        head, get = send_request(stub, "HEAD", "/api/tags"), send_request(stub, "GET", "/api/tags")
    assert len(get.body) > 2048
    assert get.headers["transfer-encoding"] == "chunked"
    assert not {"transfer-encoding", "content-length"} & head.headers.keys()


def test_authorization_is_accepted_and_ignored(stub: StubServer) -> None:
    assert (
        send_request(stub, "GET", "/api/tags", headers={"Authorization": "Bearer x"}).status == 200
    )


def test_upgrade_is_ignored_and_the_request_answered(stub: StubServer) -> None:
    headers = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABkAAQAoAAA",
    }
    assert send_request(stub, "GET", "/api/version", headers=headers).status == 200
    request = {"model": "map", "stream": False, "messages": [{"role": "user", "content": "hello"}]}
    assert (
        send_request(stub, "POST", "/api/chat", request, headers).json["message"]["content"]
        == "Hi there!"
    )


def test_body_of_a_request_of_java_is_kept(stub: StubServer) -> None:
    """The HttpClient of Java requests HTTP/2 with the first request of each connection."""
    body = b'{"model":"map","stream":false,"messages":[{"role":"user","content":"hello"}]}'
    head = (
        b"POST /api/chat HTTP/1.1\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\n"
        b"Content-Length: %d\r\n"
        b"Host: localhost\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
        b"Upgrade: h2c\r\n"
        b"User-Agent: Java-http-client/21.0.2\r\n\r\n" % len(body)
    )
    second = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with raw_connection(stub, head) as connection:
        connection.sendall(body)  # Java sends the body in its own packet
        stream = connection.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
        connection.sendall(second)
        answered = stream.read()
    assert b"Hi there!" in answered
    assert answered.endswith(b'{"version":"0.33.3"}')


def test_connection_works_after_an_ignored_upgrade(stub: StubServer) -> None:
    start = b"POST /api/show HTTP/1.1\r\nHost: localhost\r\n"
    upgrade = start + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 15\r\n\r\n"
    closing = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    with raw_connection(stub, upgrade + b'{"model":"map"}') as connection:
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.sendall(closing)
        answered = connection.makefile("rb").read()
    assert answered.count(b"HTTP/1.1 200 OK") == 1
    assert answered.endswith(b'{"version":"0.33.3"}')


def test_repeated_header_is_accepted(stub: StubServer) -> None:
    """Pydantic AI's Gemini client sends two `User-Agent` headers, which Go's server accepts."""
    head = (
        b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"User-Agent: google-genai-sdk/1.0\r\nUser-Agent: pydantic-ai/1.0\r\n\r\n"
    )
    with raw_connection(stub, head) as connection:
        answered = connection.makefile("rb").read()
    assert answered.startswith(b"HTTP/1.1 200 OK")
    assert answered.endswith(b'{"version":"0.33.3"}')


JAVA_UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEA\r\nUpgrade: h2c\r\n"


@cases(
    ("headers", "packets"),
    [
        (b"", [b'f\r\n{"model":"map"}\r\n0\r\n\r\n']),
        (b"", [b'f\r\n{"model":', b'"map"}\r\n0\r\n', b"\r\n"]),
        (b"", [b'5\r\n{"mod\r', b'\na\r\nel":"map"}\r', b"\n0\r", b"\n\r", b"\n"]),
        (b"", [b'f\r\n{"model":"map"}\r\n0\r\nX-Check', b"sum: 1\r", b"\n\r\n"]),
        (b"User-Agent: a\r\nUser-Agent: b\r\n", [b'f\r\n{"model":"map"}\r\n0\r\n\r\n']),
        (JAVA_UPGRADE, [b"f\r\n", b'{"model":"map"}\r\n', b"0\r\n\r\n"]),
    ],
)
def test_chunked_body_is_read(stub: StubServer, headers: bytes, packets: list[bytes]) -> None:
    start = b"POST /api/show HTTP/1.1\r\nHost: localhost\r\n"
    chunked = start + headers + b"Transfer-Encoding: chunked\r\n\r\n"
    declared = start + b"Connection: close\r\nContent-Length: 15\r\n\r\n" + b'{"model":"map"}'
    with raw_connection(stub, chunked + packets[0]) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for packet in packets[1:]:
            connection.sendall(packet)
        stream = connection.makefile("rb")
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
        connection.sendall(declared)
        assert stream.read().count(b"HTTP/1.1 200 OK") == 1


async def test_chunked_body_can_be_split_anywhere() -> None:
    request = (
        b"POST /api/show HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'5\r\n{"mod\r\na;x=y\r\nel":"map"}\r\n0\r\nX-Checksum: 1\r\n\r\n'
    )
    loop = asyncio.get_running_loop()
    for split in range(1, len(request)):
        parser = TolerantParser(BaseProtocol(loop), loop)
        messages, _, _ = parser.feed_data(request[:split])
        messages += parser.feed_data(request[split:])[0]
        [(_, body)] = messages
        assert await body.read() == b'{"model":"map"}'


def test_connect_method_is_refused(stub: StubServer) -> None:
    with raw_connection(stub, b"CONNECT x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        assert connection.recv(64).startswith(b"HTTP/1.1 404")


def test_invalid_http_does_not_stop_the_server(stub: StubServer) -> None:
    with raw_connection(stub, b"\x16\x03\x01 garbage\r\n\r\n") as connection:
        assert connection.recv(64).startswith(b"HTTP/1.0 400")
    assert send_request(stub, "GET", "/").status == 200


def test_disconnect_before_the_whole_body_is_not_recorded(private_stub: StubServer) -> None:
    with raw_connection(
        private_stub, b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    ) as connection:
        connection.shutdown(socket.SHUT_WR)
    assert send_request(private_stub, "GET", "/").status == 200
    assert [exchange.path for exchange in private_stub.exchanges()] == ["/"]


def test_journal_keeps_the_requests(private_stub: StubServer) -> None:
    send_request(private_stub, "POST", "/ollama/api/show", {"model": "mochi"})
    send_request(private_stub, "POST", "/api/show", b"{")
    first, second = private_stub.exchanges()
    assert (first.method, first.path, first.body) == (
        "POST",
        "/ollama/api/show",
        {"model": "mochi"},
    )
    assert (first.status, first.outcome) == (200, "finished")
    assert (second.body, second.status, second.outcome) == (None, 400, "failed")
