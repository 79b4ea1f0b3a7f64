"""SIGKILL during a write: each session has its old or its new state, and no other files remain."""

import json
import os
import random
import time
from pathlib import Path

from mochi_server.errors import SessionNotFound
from mochi_server.sessions import SessionManager, SessionQuery
from mochi_server.sessions.types import blobs_in
from mochi_server.storage.files.backend import DirectoryUse
from tests.faults.killed_writer import State, Step, write_until_killed
from tests.faults.rounds import repeated
from tests.sessions.processes import child

Known = dict[str, State]


@repeated(20)
def test_killed_writer_leaves_every_session_whole(
    manager: SessionManager, sessions_dir: Path, rounds: int
) -> None:
    chance, known = random.Random(2026), Known()
    for number in range(rounds):
        sent = run_and_kill(
            chance.randint(1, 40), chance.random() * 0.005, sessions_dir, known, number
        )
        before, (session_id, after) = replay(known, sent)

        found = stored(manager, {*before, session_id})
        allowed = [state_of(before, session_id), after.after_crash() if after else None]
        assert found.pop(session_id, None) in allowed, (
            f"round {number}: {session_id} is neither old nor new"
        )
        others = {name: state.after_crash() for name, state in before.items() if name != session_id}
        assert found == others, f"round {number}: something that was acknowledged is gone"

        known = stored(manager, {*before, session_id})
        assert {entry["session_id"] for entry in manager.list_sessions()} == set(known)
        for path in sessions_dir.glob("*.json"):
            json.loads(path.read_bytes())
        for name in named_images(manager, known):
            assert (sessions_dir / "blobs" / name).stat().st_size > 100_000, (
                f"round {number}: an image is gone"
            )
    assert not list(sessions_dir.glob("*.corrupt-*"))
    assert_leftovers_are_swept(sessions_dir)
    assert {path.name for path in (sessions_dir / "blobs").iterdir()} == named_images(
        manager, known
    )


def run_and_kill(
    messages: int, seconds: float, directory: Path, known: Known, seed: int
) -> list[Step]:
    """Kill a writer `seconds` after so many messages.

    Return its messages; the last change may not be done.
    """
    with child(write_until_killed, directory, known, seed) as writer:
        sent: list[Step] = [writer.next() for _ in range(messages)]
        time.sleep(seconds)  # at a random time, so that every step of a write is hit eventually
        writer.process.kill()
        return sent + writer.rest()


def replay(known: Known, sent: list[Step]) -> tuple[Known, tuple[str, State | None]]:
    """Return the acknowledged states and the last change that was started, whether done or not."""
    states, started = dict(known), sent[0]
    for change in sent:
        if change is not None:
            started = change
            continue
        assert started is not None
        session_id, after = started
        if after is None:
            del states[session_id]
        else:
            states[session_id] = after
    assert started is not None
    return states, started


def state_of(known: Known, session_id: str) -> State | None:
    state = known.get(session_id)
    return state.after_crash() if state else None


def stored(manager: SessionManager, ids: set[str]) -> Known:
    found = Known()
    for session_id in ids:
        try:
            found[session_id] = State.of(manager.load_session(session_id))
        except SessionNotFound:
            continue
    return found


def named_images(manager: SessionManager, known: Known) -> set[str]:
    return {
        name for session_id in known for name in blobs_in(manager.load_session(session_id).messages)
    }


def assert_leftovers_are_swept(sessions_dir: Path) -> None:
    for path in sessions_dir.glob(".*.tmp"):
        os.utime(path, (0, 0))  # only files older than an hour are swept
    use = DirectoryUse(sessions_dir)
    use.directory.open()
    use.directory.list(SessionQuery())
    use.directory.sweep()
    use.close()
    assert not list(sessions_dir.glob(".*.tmp"))
