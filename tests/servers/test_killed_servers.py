"""Servers are killed during streams.

The other servers continue the sessions, and no stored message is lost.

MOCHI_FAULT_ROUNDS sets the number of kills.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.faults.rounds import share
from tests.servers.conftest import Start
from tests.support.api import Api, error_of, read_events
from tests.support.balancer import Balancer
from tests.support.cluster import Member
from tests.support.instructions import instruct, words

pytestmark = pytest.mark.slow
SERVERS = 3
PAUSE_SECONDS = 2.5
LOCKED_SECONDS = 60.0
STARTING_SECONDS = 60.0


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=1) as stub:
        yield stub


class Conversation:
    """A client that sends messages to one session through the balancer, also while servers are
    killed.
    """

    def __init__(self, url: str) -> None:
        self.api = Api(url, limits=httpx.Limits(max_keepalive_connections=0))
        self.session_id = self._created()
        self.acknowledged: dict[str, str] = {}
        """Complete answers by message id, from the events that say that they are stored."""
        self.locked = 0.0
        """Longest time in seconds for which the session was busy without a running server."""

    def _created(self) -> str:
        while True:
            with suppress(httpx.HTTPError):
                return str(self.api.create_session("mochi")["session_id"])

    def run_until(self, over: threading.Event) -> None:
        while not over.is_set():
            with suppress(httpx.HTTPError, AssertionError):
                self._turn()

    def _turn(self) -> None:
        asked = time.monotonic()
        while True:
            body = {"message": instruct(words(150))}
            with self.api.http.stream(
                "POST", f"/chat/{self.session_id}/stream", json=body
            ) as response:
                if response.status_code == 409:
                    response.read()
                    assert error_of(response)[1] == "SESSION_BUSY"
                    self.locked = max(self.locked, time.monotonic() - asked)
                    time.sleep(0.1)
                    continue
                self._read(response)
                return

    def _read(self, response: httpx.Response) -> None:
        text = ""
        for event in read_events(response):
            if event.type == "content_delta":
                text += event.data["content"]
            elif event.type == "message_complete":
                self.acknowledged[event.data["message_id"]] = text


def test_killed_servers_lose_nothing_and_lock_no_session(
    start: Start, stub: StubServer, database: str
) -> None:
    kills, number = share(2), 100 if share(2) > 2 else 12
    members = [start(stub.url) for _ in range(SERVERS)]
    with (
        Balancer([member.port for member in members]) as balancer,
        ThreadPoolExecutor(number) as pool,
    ):
        over = threading.Event()
        conversations = list(pool.map(Conversation, [balancer.url] * number))
        running = [pool.submit(conversation.run_until, over) for conversation in conversations]
        kill = 0
        while kill < kills or not any(map(_was_interrupted, conversations)):
            time.sleep(PAUSE_SECONDS)
            balancer.ports[kill % SERVERS] = _replaced(members, kill % SERVERS, start, stub).port
            kill += 1
        time.sleep(PAUSE_SECONDS)
        over.set()
        for ended in running:
            ended.result(60)
        histories = {each.session_id: _history(each) for each in conversations}
    assert sum(len(each.acknowledged) for each in conversations) > number / 2
    assert max(each.locked for each in conversations) < LOCKED_SECONDS
    for each in conversations:
        stored = {
            message["message_id"]: message["content"] for message in histories[each.session_id]
        }
        assert {
            message_id: stored.get(message_id) for message_id in each.acknowledged
        } == each.acknowledged


def _was_interrupted(conversation: Conversation) -> bool:
    return any(message.get("interrupted") for message in _history(conversation))


def _replaced(members: list[Member], index: int, start: Start, stub: StubServer) -> Member:
    members[index].kill()
    members[index] = start(stub.url)
    return members[index]


def _history(conversation: Conversation) -> list[dict[str, Any]]:
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        try:
            return conversation.api.messages(conversation.session_id)
        except httpx.HTTPError:
            assert time.monotonic() < deadline
