"""Pipelined requests: answered in order."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.faults.raw_client import RawClient
from tests.faults.raw_client import request as post
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.server import RunningServer

pytestmark = pytest.mark.one_process("checks connections to the server process")

LIVE = b"GET /api/v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
ALIVE = b'{"status":"alive"}'


@pytest.fixture
def server(holding: GatedStub, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path, holding.stub.url) as server:
        yield server


@pytest.fixture
def session_id(server: RunningServer) -> str:
    return str(server.api().create_session("mochi")["session_id"])


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
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


@pytest.fixture(params=["declared", "chunked"])
def held_request(request: pytest.FixtureRequest, session_id: str) -> bytes:
    """Return a request whose answer waits for the gate."""
    path, body = f"/chat/{session_id}/stream", {"message": "hold"}
    return chunked(path, json.dumps(body).encode()) if request.param == "chunked" else post(path, body)


def test_pipelined_requests_are_answered_in_order(
    client: RawClient, held_request: bytes, session_id: str, holding: GatedStub
) -> None:
    client.send(held_request + LIVE * 50 + post(f"/chat/{session_id}", {"message": "Hi."}) + LIVE * 50)
    client.read_until(b"three ")
    holding.gate.open()
    data = read_count(client, ALIVE, 100)
    stream, _, rest = data.partition(b"event: done")
    assert ALIVE not in stream
    before, _, after = rest.partition(b'"Fine."')
    assert (before.count(ALIVE), after.count(ALIVE)) == (50, 50)
    assert rest.count(b"HTTP/1.1 200 OK") == 101


@cases("size", [1, 7, 1000])
def test_requests_can_be_split_anywhere(client: RawClient, session_id: str, size: int) -> None:
    body = post("/sessions", {"model": "mochi", "system_prompt": "\r\n\r\n" * 5})
    data = LIVE + body + chunked(f"/sessions/{session_id}/fork", b"{}") + b"\r\n" + LIVE
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    answers = read_count(client, ALIVE, 2)
    assert answers.count(b"HTTP/1.1 201 Created") == 2
