"""Sixty-four sessions in parallel, each with random changes: each matches its own model."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.faults.mirror import Mirror, resolve
from tests.faults.rounds import share
from tests.support.api import Api
from tests.support.server import RunningServer

LIST_FIELDS = ("session_id", "title", "message_count", "preview")
TEXTS = ["Hello!", "fail", "Good morning!", "x" * 400]


def run_session(api: Api, changes_each: int, seed: int) -> Mirror:
    """Create a session and change it in an order that the seed determines."""
    chance = random.Random(seed)
    mirror = Mirror(api, chance.choice([None, "Be brief."]), chance.choice([None, "t"]))
    for _ in range(changes_each):
        text = chance.choice(TEXTS)
        changes: list[Callable[[], None]] = [
            partial(mirror.send_message, text),
            partial(mirror.stream_message, text),
            mirror.regenerate,
            partial(mirror.edit, chance.randint(0, 5), text),
            partial(mirror.retitle, text),
            partial(mirror.set_system_prompt, text),
            mirror.remove_system_prompt,
        ]
        chance.choice(changes)()
        if chance.random() < 0.2:
            mirror.assert_matches()
    if chance.random() < 0.2:
        mirror.delete()
    return mirror


@pytest.mark.parametrize(
    ("sessions", "changes"),
    [(2, 2), pytest.param(64, share(12), id="many", marks=pytest.mark.slow)],
)
def test_sessions_in_parallel_do_not_affect_each_other(
    tmp_path: Path, sessions: int, changes: int
) -> None:
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
        ThreadPoolExecutor(sessions) as clients,
    ):
        api = server.api()
        mirrors = list(
            clients.map(run_session, [api] * sessions, [changes] * sessions, range(sessions))
        )
        for mirror in mirrors:
            mirror.assert_matches()
        entries = api.ok(api.http.get("/sessions"))["sessions"]

    expected = {mirror.id: mirror.entry() for mirror in mirrors if mirror.exists}
    assert 0 < len(expected) < sessions
    assert {
        entry["session_id"]: {name: entry[name] for name in LIST_FIELDS} for entry in entries
    } == expected
