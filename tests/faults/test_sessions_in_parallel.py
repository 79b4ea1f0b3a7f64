"""Sixty-four sessions at a time, each with a client that does as it likes: each is what its own model says."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mochi_stub import StubServer
from tests.faults.mirror import Mirror, resolve
from tests.faults.rounds import share
from tests.support.api import Api
from tests.support.server import RunningServer

SESSIONS = 64
LISTED = ("session_id", "title", "message_count", "preview")
TEXTS = ["Hello!", "fail", "Good morning!", "x" * 400]


def live(api: Api, seed: int) -> Mirror:
    """A session's life, as its number decides."""
    chance = random.Random(seed)
    mirror = Mirror(api, chance.choice([None, "Be brief."]), chance.choice([None, "t"]))
    for _ in range(share(12)):
        text = chance.choice(TEXTS)
        changes: list[Callable[[], None]] = [
            partial(mirror.chat, text),
            partial(mirror.stream, text),
            mirror.regenerate,
            partial(mirror.edit, chance.randint(0, 5), text),
            partial(mirror.retitle, text),
            partial(mirror.instruct, text),
            mirror.uninstruct,
        ]
        chance.choice(changes)()
        if chance.random() < 0.2:
            mirror.agrees()
    if chance.random() < 0.2:
        mirror.delete()
    return mirror


def test_sessions_in_parallel_do_not_touch_each_other(tmp_path: Path) -> None:
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
        ThreadPoolExecutor(SESSIONS) as clients,
    ):
        api = server.api()
        mirrors = list(clients.map(live, [api] * SESSIONS, range(SESSIONS)))
        for mirror in mirrors:
            mirror.agrees()
        entries = api.ok(api.http.get("/sessions"))["sessions"]

    kept = {mirror.id: mirror.entry() for mirror in mirrors if mirror.exists}
    assert 0 < len(kept) < SESSIONS
    assert {entry["session_id"]: {name: entry[name] for name in LISTED} for entry in entries} == kept
