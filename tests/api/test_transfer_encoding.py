"""`Transfer-Encoding` of requests: only `chunked` is accepted, and none in HTTP/1.0."""

from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.support.cases import cases
from tests.support.raw_http import send_request
from tests.support.server import RunningServer

CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.fixture(scope="module")
def session_id(shared_server: RunningServer) -> str:
    """A session that no test deletes."""
    return str(shared_server.client.create_session("mochi")["session_id"])


def request(session_id: str, version: str, encoding: str, method: str = "DELETE") -> bytes:
    head = f"{method} /api/v1/sessions/{session_id} HTTP/{version}\r\nHost: localhost\r\n"
    return (
        f"{head}Content-Type: application/json\r\nTransfer-Encoding: {encoding}\r\n\r\n".encode()
        + CHUNKED
    )


@cases(
    ("version", "encoding"),
    [
        *[
            ("1.1", e)
            for e in (
                "gzip",
                "gzip, chunked",
                "deflate,chunked",
                "chunked, gzip",
                "identity",
                "xchunked",
            )
        ],
        *[("1.1", e) for e in ("chunked, chunked", ",chunked", "chunked;q=1", "")],
        *[("1.0", e) for e in ("chunked", "Chunked", "gzip", "gzip, chunked", "identity")],
    ],
)
def test_other_transfer_encodings_are_refused(
    server: RunningServer, session_id: str, version: str, encoding: str
) -> None:
    answer = send_request(server.url, request(session_id, version, encoding))
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")
    assert b"`Transfer-Encoding`" in answer.body
    assert b"`Content-Length`" in answer.body
    assert server.client.session(session_id)


def test_control_character_in_the_header_is_refused(server: RunningServer, session_id: str) -> None:
    answer = send_request(server.url, request(session_id, "1.1", "\x0bchunked"))
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")
    assert server.client.session(session_id)


@cases("encoding", ["chunked", "Chunked", "chunked "])
def test_chunked_bodies_are_accepted(server: RunningServer, session_id: str, encoding: str) -> None:
    assert send_request(server.url, request(session_id, "1.1", encoding, "PATCH")).status == 200


def test_encodings_are_refused_before_the_key_is_checked(stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("k" * 20,)) as server:
        assert send_request(server.url, request("0123456789", "1.0", "chunked")).status == 400
