"""`Transfer-Encoding` of requests: only `chunked` is accepted, and none in HTTP/1.0."""

from pathlib import Path

from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.raw_http import send_request
from tests.support.server import RunningServer

CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"


def request(session_id: str, version: str, encoding: str, method: str = "DELETE") -> bytes:
    head = f"{method} /api/v1/sessions/{session_id} HTTP/{version}\r\nHost: localhost\r\n"
    return f"{head}Content-Type: application/json\r\nTransfer-Encoding: {encoding}\r\n\r\n".encode() + CHUNKED


@cases(
    ("version", "encoding"),
    [
        *[("1.1", e) for e in ("gzip", "gzip, chunked", "deflate,chunked", "chunked, gzip", "identity", "xchunked")],
        *[("1.1", e) for e in ("chunked, chunked", ",chunked", "chunked;q=1", "", "\x0bchunked")],
        *[("1.0", e) for e in ("chunked", "Chunked", "gzip", "gzip, chunked", "identity")],
    ],
)
def test_other_transfer_encodings_are_refused(api: Api, server: RunningServer, version: str, encoding: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    answer = send_request(server.url, request(session_id, version, encoding))
    assert (answer.status, answer.error) == (400, "BAD_REQUEST")
    assert api.session(session_id)


@cases("version", ["1.0", "1.1"])
@cases("encoding", ["gzip", "gzip, chunked", "chunked, gzip", "identity", ""])
def test_error_message_names_the_header(server: RunningServer, version: str, encoding: str) -> None:
    answer = send_request(server.url, request("0123456789", version, encoding))
    assert b"`Transfer-Encoding`" in answer.body
    assert b"`Content-Length`" in answer.body


@cases("encoding", ["chunked", "Chunked", "chunked "])
def test_chunked_bodies_are_accepted(api: Api, server: RunningServer, encoding: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    assert send_request(server.url, request(session_id, "1.1", encoding, "PATCH")).status == 200


def test_encodings_are_refused_before_the_key_is_checked(stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("k" * 20,)) as server:
        assert send_request(server.url, request("0123456789", "1.0", "chunked")).status == 400
