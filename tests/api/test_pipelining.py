"""Pipelined requests: answered in order."""

import gc
import json
from collections.abc import Iterator

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tests.faults.raw_client import RawClient
from tests.faults.raw_client import request as post
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.server import RunningServer
from tests.support.waiting import until

LIVE = b"GET /api/v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
ALIVE = b'{"status":"alive"}'


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    """The worker's server, in front of `holding`."""
    return holding_server


@pytest.fixture
def session_id(server: RunningServer) -> str:
    return str(server.client.create_session("mochi")["session_id"])


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    with RawClient(address(server.url)) as client:
        yield client


def address(url: str) -> tuple[str, int]:
    parts = httpx.URL(url)
    return parts.host, parts.port or 0


def read_count(client: RawClient, text: bytes, count: int) -> bytes:
    """Read until a text has arrived `count` times."""
    data = b""
    while data.count(text) < count:
        data += (more := client.read(65536))
        assert more, data[-1000:]
    return data


def chunked(path: str, body: bytes) -> bytes:
    """Build a request whose body has no declared length."""
    head = f"POST /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )


@pytest.fixture(params=["declared", "chunked"])
def held_request(request: pytest.FixtureRequest, session_id: str) -> bytes:
    """Return a request whose answer waits for the gate."""
    path, body = f"/chat/{session_id}/stream", {"message": "hold"}
    return (
        chunked(path, json.dumps(body).encode()) if request.param == "chunked" else post(path, body)
    )


def test_pipelined_requests_are_answered_in_order(
    client: RawClient, held_request: bytes, session_id: str, holding: GatedStub
) -> None:
    client.send(
        held_request + LIVE * 50 + post(f"/chat/{session_id}", {"message": "Hi."}) + LIVE * 49
    )
    client.read_until(b"three ")
    holding.gate.open()
    data = read_count(client, ALIVE, 99)
    stream, _, rest = data.partition(b"event: done")
    assert ALIVE not in stream
    before, _, after = rest.partition(b'"Fine."')
    assert (before.count(ALIVE), after.count(ALIVE)) == (50, 49)
    assert rest.count(b"HTTP/1.1 200 OK") == 100


def test_connection_with_too_many_waiting_requests_is_closed(
    client: RawClient, held_request: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client.send(held_request + LIVE * 101)
    while client.read(65536):  # until the server closes the connection
        pass
    lines = [
        record.getMessage()
        for record in caplog.records
        if "waiting requests" in record.getMessage()
    ]
    assert lines == ["closed a connection with more than 100 waiting requests client=127.0.0.1"]


def test_invalid_request_behind_a_stream_adds_nothing_to_it(
    client: RawClient, held_request: bytes
) -> None:
    client.send(held_request)
    client.read_until(b"three ")
    head = b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n"
    client.send(head + b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n")
    rest = b""
    while more := client.read(65536):  # until the server closes the connection
        rest += more
    assert b"HTTP/1.1" not in rest


def test_requests_of_a_closed_connection_leave_memory(
    server: RunningServer, held_request: bytes
) -> None:
    gc.freeze()  # so that counts skip all objects so far
    gc.disable()
    try:
        with RawClient(address(server.url)) as client:
            client.send(LIVE * 10 + held_request + LIVE * 90)
            client.read_until(b"three ")
            assert cycles() > 90  # the running request, and those that wait
        until(lambda: cycles() == 0)
    finally:
        gc.enable()


def cycles() -> int:
    """Return the number of new requests in memory, running, waiting or ended."""
    return sum(isinstance(each, RequestResponseCycle) for each in gc.get_objects())


@cases("waiting", [LIVE, b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_closed_connection_is_no_error(
    server: RunningServer,
    session_id: str,
    held_request: bytes,
    waiting: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RawClient(address(server.url)) as client:
        client.send(held_request + waiting * 2)
        client.read_until(b"three ")
    until(lambda: server.client.http.get(f"/chat/{session_id}/run").json()["state"] == "cancelled")
    assert [record for record in caplog.records if record.exc_info] == []


@cases("size", [1, 7, 1000])
def test_requests_can_be_split_anywhere(client: RawClient, session_id: str, size: int) -> None:
    body = post("/sessions", {"model": "mochi", "system_prompt": "\r\n\r\n" * 5})
    data = LIVE + body + chunked(f"/sessions/{session_id}/fork", b"{}") + b"\r\n" + LIVE
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    answers = read_count(client, ALIVE, 2)
    assert answers.count(b"HTTP/1.1 201 Created") == 2
