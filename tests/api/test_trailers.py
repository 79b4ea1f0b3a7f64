"""Trailers of chunked bodies: ignored, and limited like headers."""

from pathlib import Path

from mochi_stub import StubServer
from tests.faults.raw_client import RawClient
from tests.support.cases import cases
from tests.support.raw_http import send_request
from tests.support.server import RunningServer

KEY = "k" * 20
HEAD = (
    "POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nTransfer-Encoding: chunked"
)
BODY = b'{"model": "mochi"}'
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
LIVE = b"GET /api/v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def chunked(*headers: str, trailers: bytes = b"") -> bytes:
    head = "\r\n".join([HEAD, *headers, "", ""]).encode()
    return head + CHUNK + b"0\r\n" + trailers + b"\r\n"


def test_authorization_in_a_trailer_is_401(stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=(KEY,)) as server:
        trailers = f"Authorization: Bearer {KEY}\r\n".encode()
        assert send_request(server.url, chunked(trailers=trailers)).status == 401
        assert send_request(server.url, chunked(f"Authorization: Bearer {KEY}")).status == 201


@cases(
    "trailer", [b"Origin: https://evil.example", b"Host: evil.example", b"Content-Type: text/plain"]
)
def test_trailers_are_ignored(server: RunningServer, trailer: bytes) -> None:
    answer = send_request(
        server.url,
        chunked("X-Request-ID: head", trailers=trailer + b"\r\nX-Request-ID: trailer\r\n"),
    )
    assert (answer.status, answer.headers["x-request-id"]) == (201, "head")


def test_next_request_after_trailers_is_answered(server: RunningServer) -> None:
    with RawClient(address(server)) as client:
        client.send(chunked(trailers=b"X-Sum: 1\r\n" * 100) + LIVE)
        answers = client.read_until(b'{"status":"alive"}')
    assert b"HTTP/1.1 201 Created" in answers


@cases(
    ("start", "more"),
    [
        (CHUNK + b"0\r\n", b"X-Sum: 1\r\n" * 100),
        (CHUNK + b"0\r\nX-Sum: ", b"x" * 1000),
        (CHUNK + b"0\r\n", b"x" * 1000),
        (CHUNK + b"0;", b"x" * 1000),
        (b"2;", b"x" * 1000),
    ],
    ids=["many", "long value", "long name", "extension of the last chunk", "extension of a chunk"],
)
def test_endless_trailers_are_431(server: RunningServer, start: bytes, more: bytes) -> None:
    with RawClient(address(server)) as client:
        client.send(f"{HEAD}\r\n\r\n".encode() + start)
        answer = client.send_until_answered(more, at_most=2_000_000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"65536 bytes" in answer


def test_endless_trailers_close_an_answered_connection(stub: StubServer, tmp_path: Path) -> None:
    with (
        RunningServer(tmp_path, stub.url, api_keys=(KEY,)) as server,
        RawClient(address(server)) as client,
    ):
        client.send(f"{HEAD}\r\n\r\n".encode() + CHUNK + b"0\r\n")
        assert client.read_until(b"}}").startswith(b"HTTP/1.1 401 ")
        assert client.send_until_answered(b"X-Sum: 1\r\n" * 100, at_most=2_000_000) == b""


def address(server: RunningServer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)
