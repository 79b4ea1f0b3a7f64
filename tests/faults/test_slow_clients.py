"""Clients that read or write slowly, or not at all, do not delay other clients."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.raw_client import RawClient, request
from tests.faults.world import LONG, World, world

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("thread"), in_thread=True) as environment:
        yield environment


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("process"), in_thread=False) as environment:
        yield environment


@pytest.fixture(params=["thread", pytest.param("process", marks=pytest.mark.slow)])
def environment(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(request.param)
    found.remember_idle()
    return found


@pytest.fixture
def clients(environment: World) -> int:
    """The number of slow clients."""
    return 2 if environment.in_thread else 10


@pytest.mark.slow
def test_unread_streams_block_no_client_and_use_bounded_memory(process: World) -> None:
    environment, clients = process, 5
    before, sessions = environment.memory(), [environment.create_session() for _ in range(clients)]
    with ExitStack() as stack:
        for session_id in sessions:
            client = stack.enter_context(RawClient(environment.address, buffer=4096))
            client.send_request(f"/chat/{session_id}/stream", {"message": "long"})
            assert environment.is_healthy()
        for session_id in sessions:
            environment.wait_until_ended(session_id, "completed")
        assert environment.api.send_message(environment.create_session(), "Hello!")["message"][
            "content"
        ]
        assert environment.is_healthy()
        text = clients * sum(map(len, LONG))
        assert environment.memory() - before < 8 * text + 32 * MEGABYTE
    environment.wait_until_idle()
    environment.wait_for_connections_to_stub(1)
    assert [environment.api.messages(session_id)[-1]["content"] for session_id in sessions] == [
        "".join(LONG)
    ] * clients


def test_client_that_reads_single_bytes_gets_every_event(environment: World) -> None:
    with RawClient(environment.address) as client:
        client.send_request(f"/chat/{environment.create_session()}/stream", {"message": "Hello!"})
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += client.read(1)
    assert data.count(b"event: done") == 1
    assert (
        data.index(b"event: content_delta")
        < data.index(b"event: message_complete")
        < data.index(b"event: done")
    )


def test_incomplete_request_bodies_block_no_client(environment: World, clients: int) -> None:
    with ExitStack() as stack:
        for session_id in [environment.create_session() for _ in range(clients)]:
            client = stack.enter_context(RawClient(environment.address))
            client.send_request(f"/chat/{session_id}/stream", {"message": "Hello!"}, share=0.9)
            assert environment.is_healthy()
        assert environment.api.send_message(environment.create_session(), "Hello!")["message"][
            "content"
        ]
        assert environment.descriptors() >= clients
    environment.wait_until_idle()


def test_requests_sent_in_single_bytes_are_answered(environment: World, clients: int) -> None:
    sessions = [environment.create_session() for _ in range(clients)]
    requests = [
        request(f"/chat/{session_id}/stream", {"message": "Hello!"}) for session_id in sessions
    ]
    with ExitStack() as stack:
        connected = [stack.enter_context(RawClient(environment.address)) for _ in sessions]
        for position in range(max(map(len, requests))):
            for client, data in zip(connected, requests, strict=True):
                client.send(data[position : position + 1])
            if position % 50 == 0:
                assert environment.is_healthy()
        for client in connected:
            assert client.read_until(b"event: done").startswith(b"HTTP/1.1 200 OK\r\n")
    environment.wait_until_idle()
