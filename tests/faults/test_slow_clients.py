"""Clients that read or write as slowly as they can, or not at all: they wait, and nobody else does."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.rude_clients import RudeClient, request
from tests.faults.world import LONG, World, world
from tests.sessions.processes import DEADLINE
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
CLIENTS = 10
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("data")) as here:
        yield here


def test_unread_streams_stop_nobody_and_cost_little_more_than_their_text(here: World) -> None:
    before, sessions = here.memory(), [here.session() for _ in range(CLIENTS)]
    with ExitStack() as clients:
        for session_id in sessions:
            client = clients.enter_context(RudeClient(here.address, buffer=4096))
            client.posts(f"/chat/{session_id}/stream", {"message": "long"})
            assert here.is_healthy()
        for session_id in sessions:
            until(lambda session_id=session_id: here.state(session_id) == "completed", DEADLINE)  # type: ignore[misc]
        assert here.api.send_message(here.session(), "Hello!")["message"]["content"]
        assert here.is_healthy()
        text = CLIENTS * sum(map(len, LONG))
        assert here.memory() - before < 8 * text + 32 * MEGABYTE
    here.comes_to_rest()
    assert [here.api.messages(session_id)[-1]["content"] for session_id in sessions] == ["".join(LONG)] * CLIENTS


def test_a_client_that_reads_byte_by_byte_gets_every_event(here: World) -> None:
    with RudeClient(here.address) as client:
        client.posts(f"/chat/{here.session()}/stream", {"message": "Hello!"})
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += client.reads(1)
    assert data.count(b"event: done") == 1
    assert data.index(b"event: content_delta") < data.index(b"event: message_complete") < data.index(b"event: done")


def test_half_bodies_that_hang_hinder_nobody(here: World) -> None:
    with ExitStack() as clients:
        for session_id in [here.session() for _ in range(CLIENTS)]:
            client = clients.enter_context(RudeClient(here.address))
            client.posts(f"/chat/{session_id}/stream", {"message": "Hello!"}, share=0.9)
            assert here.is_healthy()
        assert here.api.send_message(here.session(), "Hello!")["message"]["content"]
        assert here.descriptors() >= CLIENTS
    here.comes_to_rest()


def test_requests_sent_byte_by_byte_are_answered_and_hinder_nobody(here: World) -> None:
    sessions = [here.session() for _ in range(CLIENTS)]
    requests = [request(f"/chat/{session_id}/stream", {"message": "Hello!"}) for session_id in sessions]
    with ExitStack() as stack:
        clients = [stack.enter_context(RudeClient(here.address)) for _ in sessions]
        for position in range(max(map(len, requests))):
            for client, data in zip(clients, requests, strict=True):
                client.sends(data[position : position + 1])
            if position % 50 == 0:
                assert here.is_healthy()
        for client in clients:
            assert client.reads_until(b"event: done").startswith(b"HTTP/1.1 200 OK\r\n")
    here.comes_to_rest()
