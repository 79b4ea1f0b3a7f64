"""Incomplete requests time out; the time of an answer does not count."""

import socket
from collections.abc import Iterator

import pytest

from mochi_server.container import DEFAULT_COMPONENTS
from mochi_server.web.http_protocol import StrictHttpProtocol
from tests.api.test_metrics import read
from tests.api.test_request_ids import logged_by
from tests.faults.raw_client import RawClient, request
from tests.support.api import types_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.server import RunningServer

WHOLE = b"GET /api/v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_A_HEAD = WHOLE[:-10]
HALF_A_BODY = request("/sessions", {"model": "mochi"})[:-5]


class ImpatientProtocol(StrictHttpProtocol):
    """The protocol with a shorter stall timeout."""

    stall_seconds = 0.2


@pytest.fixture(scope="module")
def server(
    shared_holding: GatedStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server for the module."""
    data_dir = tmp_path_factory.mktemp("hanging")
    with RunningServer(
        data_dir, shared_holding.stub.url, DEFAULT_COMPONENTS, ImpatientProtocol
    ) as server:
        yield server


def address(server: RunningServer) -> tuple[str, int]:
    url = server.api().http.base_url
    return url.host, url.port or 0


@cases("sent", [HALF_A_HEAD, HALF_A_BODY], ids=["half a head", "half a body"])
@cases("before", [b"", WHOLE], ids=["first", "second on its connection"])
def test_incomplete_request_times_out(server: RunningServer, before: bytes, sent: bytes) -> None:
    with RawClient(address(server)) as client:
        if before:
            client.send(before)
            client.read_until(b'{"status":"alive"}')
        client.send(sent)
        answer = client.read_until(b"}}")
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b'"REQUEST_TIMED_OUT"' in answer
        assert client.read(1) == b""


@cases("path", ["/api/v1/sessions", "/v1/chat/completions"])
def test_stalled_body_is_one_request_with_its_id(server: RunningServer, path: str) -> None:
    sent = HALF_A_BODY.replace(b"/api/v1/sessions", path.encode())
    sent = sent.replace(b"Host:", b"X-Request-ID: mine\r\nHost:")
    before = read(server.api())
    with logged_by("mochi_server.web.request_log") as lines:
        with RawClient(address(server)) as client:
            client.send(sent)
            answer = client.read_until(b"}}")
            assert client.read(1) == b""
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"x-request-id: mine\r\n" in answer
        line = lines.wait_for("mine")
    assert (line["method"], line["path"]) == ("POST", path)
    assert (line["status"], line["error"]) == (408, "REQUEST_TIMED_OUT")
    after = read(server.api())
    for name in (
        "mochi_http_requests_total{method=POST,status=408}",
        "mochi_errors_total{code=REQUEST_TIMED_OUT,of=request}",
    ):
        assert after[name] == before[name] + 1
    assert after["mochi_http_requests_total{method=POST,status=499}"] == 0


def test_idle_connection_is_closed(server: RunningServer) -> None:
    with socket.create_connection(address(server), timeout=60) as client:
        assert client.recv(1) == b""


def test_slow_answer_does_not_time_out(server: RunningServer, holding: GatedStub) -> None:
    api = server.api()
    with api.open_stream(api.create_session("mochi")["session_id"], "hold") as events:
        assert [next(events).data["content"] for _ in range(3)] == ["one ", "two ", "three "]
        for _ in range(2):
            with socket.create_connection(address(server), timeout=60) as other:
                assert other.recv(1) == b""
        holding.gate.open()
        assert types_of(events) == ["content_delta", "message_complete", "done"]
