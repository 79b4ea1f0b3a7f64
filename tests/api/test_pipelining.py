"""Pipelined requests: answered in order, in bounded memory."""

import gc
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mochi_server.web.http_protocol import StrictHttpProtocol
from tests.faults.raw_client import RawClient
from tests.faults.raw_client import request as post
from tests.sessions.processes import DEADLINE
from tests.support.holding import GatedStub
from tests.support.process import Command
from tests.support.server import RunningServer
from tests.support.waiting import until

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


def send_until_blocked(client: RawClient, data: bytes) -> None:
    """Send until the server has read nothing for 0.2 s."""
    client.set_timeout(0.2)
    with suppress(TimeoutError):
        client.send(data)
    client.set_timeout(DEADLINE)


def read_to_end(client: RawClient) -> bytes:
    data = b""
    while more := client.read(65536):
        data += more
    return data


def read_count(client: RawClient, text: bytes, count: int) -> bytes:
    """Read until a text has arrived `count` times."""
    data = b""
    while data.count(text) < count:
        data += (more := client.read(65536))
        assert more, data[-1000:]
    return data


def count_open_requests() -> int:
    """Return the number of requests that uvicorn holds in this process."""
    gc.collect()
    return sum(type(each) is RequestResponseCycle for each in gc.get_objects())


def connections() -> list[StrictHttpProtocol]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is StrictHttpProtocol and each.parser is not None]


def chunked(path: str, body: bytes) -> bytes:
    """Build a request whose body has no declared length."""
    head = f"POST /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


@pytest.fixture(params=["declared", "chunked"])
def held_request(request: pytest.FixtureRequest, session_id: str) -> bytes:
    """Return a request whose answer waits for the gate."""
    path, body = f"/chat/{session_id}/stream", {"message": "hold"}
    return chunked(path, json.dumps(body).encode()) if request.param == "chunked" else post(path, body)


@pytest.mark.slow
def test_waiting_requests_take_bounded_memory(client: RawClient, held_request: bytes, holding: GatedStub) -> None:
    before = count_open_requests()
    send_until_blocked(client, held_request + LIVE * 5_000)
    client.read_until(b"three ")
    assert count_open_requests() - before <= 17
    assert sum(len(each._unread) for each in connections()) < 1_000_000
    holding.gate.open()


def test_pipelined_requests_are_answered_in_order(
    client: RawClient, held_request: bytes, session_id: str, holding: GatedStub
) -> None:
    client.send(held_request + LIVE * 200 + post(f"/chat/{session_id}", {"message": "Hi."}) + LIVE * 200)
    client.read_until(b"three ")
    holding.gate.open()
    data = read_count(client, ALIVE, 400)
    stream, _, rest = data.partition(b"event: done")
    assert ALIVE not in stream
    before, _, after = rest.partition(b'"Fine."')
    assert (before.count(ALIVE), after.count(ALIVE)) == (200, 200)
    assert rest.count(b"HTTP/1.1 200 OK") == 401


def test_answer_is_complete_if_garbage_follows_its_request(
    client: RawClient, session_id: str, holding: GatedStub
) -> None:
    client.send(post(f"/chat/{session_id}/stream", {"message": "hold"}) + LIVE + b"\0\0\0\0")
    client.read_until(b"three ")
    holding.gate.open()
    data = read_to_end(client)
    stream, _, rest = data.partition(b"event: done")
    assert b"HTTP/1.1" not in stream
    assert rest.count(b"HTTP/1.1 200 OK") == 1
    assert rest.endswith(b"}}")
    assert rest.count(b"HTTP/1.1 400 Bad Request") == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_requests_can_be_split_anywhere(client: RawClient, session_id: str, size: int) -> None:
    body = post("/sessions", {"model": "mochi", "system_prompt": "\r\n\r\n" * 5})
    data = LIVE + body + chunked(f"/sessions/{session_id}/fork", b"{}") + b"\r\n" + LIVE
    for start in range(0, len(data), size):
        client.send(data[start : start + size])
    answers = read_count(client, ALIVE, 2)
    assert answers.count(b"HTTP/1.1 201 Created") == 2


def test_bodies_full_of_blank_lines_are_complete(client: RawClient) -> None:
    body = b'{"model": "mochi"' + b"\r\n\r\n" * 500_000 + b"}"
    head = b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    declared = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for sent in (declared, chunked("/sessions", body)):
        client.send(sent + LIVE)
        assert read_count(client, ALIVE, 1).startswith(b"HTTP/1.1 201 Created")


def test_disconnect_is_noticed_while_requests_wait(
    client: RawClient, server: RunningServer, held_request: bytes, session_id: str
) -> None:
    client.send(held_request + LIVE * 100)
    client.read_until(b"three ")
    client.close()
    api = server.api()
    until(lambda: api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "cancelled")
    assert not any(each._unread for each in connections())


@pytest.mark.slow
def test_client_that_never_reads_costs_little_memory(tmp_path: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", "--log-level", "WARNING", cwd=tmp_path) as command:
        api = command.api()
        api.ok(api.http.get("/health/live"))
        before = resident_bytes(command.process.pid)
        with RawClient(address(str(api.http.base_url))) as client:
            send_until_blocked(client, LIVE * 240_000)
            assert resident_bytes(command.process.pid) - before < 50_000_000
        api.ok(api.http.get("/health/live"))


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])
