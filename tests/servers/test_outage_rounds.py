"""PostgreSQL stops in mid-turn repeatedly: received text is stored, or the client receives an
error.

A test run has one round for each length of an outage; MOCHI_FAULT_ROUNDS=400 makes it twenty.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import httpx
import pytest

from mochi_stub import StubServer
from tests.faults.rounds import share
from tests.servers.conftest import Start
from tests.support import postgres
from tests.support.api import Api, Event, text_of
from tests.support.instructions import instruct, words
from tests.support.postgres import Postgres
from tests.support.waiting import until

pytestmark = pytest.mark.slow

logger = logging.getLogger(__name__)

CLIENTS = 8
WORDS = (20, 400)
IN_MID_TURN_SECONDS = 1.5


@dataclass(frozen=True)
class Received:
    """Data that a client received of one turn."""

    session_id: str
    text: str
    error: str | None
    whole: bool


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=1) as stub:
        yield stub


@pytest.fixture
def cluster() -> Iterator[Postgres]:
    with postgres.private_cluster() as cluster:
        yield cluster


@pytest.mark.parametrize(
    "seconds", [1, 3, *(pytest.param(long, marks=pytest.mark.nightly) for long in (8, 20))]
)
def test_received_text_is_stored_or_reported_as_lost(
    start: Start, stub: StubServer, cluster: Postgres, seconds: float
) -> None:
    counts: Counter[str] = Counter()
    with (
        Api(start(stub.url, store_url=cluster.url()).url, timeout=120) as api,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        for number in range(share(1)):
            until(lambda: api.http.get("/health/ready").status_code == 200)
            over = threading.Event()
            turns: list[Received] = []
            talking = [pool.submit(run_turns, api, over, turns) for _ in range(CLIENTS)]
            until(partial(has_whole_turn, turns))
            time.sleep(random.uniform(0.5, 1) * IN_MID_TURN_SECONDS)
            cluster.stop("immediate" if number % 2 else "fast")
            time.sleep(seconds)
            cluster.start()
            over.set()
            for client in talking:
                client.result(150)
            for received in turns:
                counts[outcome(api, received)] += 1
    logger.info("outage seconds=%s outcomes=%s", seconds, dict(counts))
    assert counts["lost"] == 0
    assert counts["whole"] > 0


def has_whole_turn(turns: Sequence[Received]) -> bool:
    return any(received.whole for received in turns)


def run_turns(api: Api, over: threading.Event, turns: list[Received]) -> None:
    """Run turns in separate sessions until the outage is over, and add each that has ended."""
    while not over.is_set():
        created = api.http.post("/sessions", json={"model": "mochi"})
        if created.status_code == 201:
            turns += turn(api, created.json()["session_id"])


def turn(api: Api, session_id: str) -> Iterator[Received]:
    """Run a turn and return what the client received, if the server began one."""
    try:
        with api.open_stream(session_id, instruct(words(random.randint(*WORDS)))) as stream:
            events = list(stream)
    except AssertionError:  # refused with an error status
        return
    assert events[-1].type == "done"
    error = next((event.data["code"] for event in events if event.type == "error"), None)
    yield Received(session_id, text_of(events), error, is_complete(events))


def is_complete(events: list[Event]) -> bool:
    return any(event.type == "message_complete" for event in events)


def outcome(api: Api, received: Received) -> str:
    """Classify a turn: complete, partial text stored, loss reported, or lost without an error."""
    stored = ""
    for _ in range(20):
        try:
            stored = "".join(
                m["content"] for m in api.messages(received.session_id) if m["role"] == "assistant"
            )
            break
        except (AssertionError, httpx.HTTPError):  # the database has just restarted
            time.sleep(0.5)
    if stored == received.text:
        return "whole" if received.whole else "stored"
    return "told" if received.error else "lost"
