"""Real processes that are killed or have a full disk."""

import random
import sys
from pathlib import Path

import pytest

from mochi_server.sessions import SessionCreationOptions, SessionManager
from tests.faults.rounds import repeated
from tests.sessions.processes import (
    child,
    create_forever,
    end_turn_on_full_disk,
    exceed_disk,
    run_turns_forever,
)
from tests.sessions.samples import contents, file_of, log_of, user

limits_files = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")


@pytest.mark.slow
@repeated(20)
def test_kill_keeps_every_acknowledged_message(
    manager: SessionManager, sessions_dir: Path, rounds: int
) -> None:
    session_id, chance = (
        manager.create_session(SessionCreationOptions(model="m")).session_id,
        random.Random(7),
    )
    acknowledged: list[str] = []
    for _ in range(rounds):
        manager.close()  # so that the child can lock the directory
        with child(run_turns_forever, sessions_dir, session_id) as talking:
            acknowledged += [talking.next() for _ in range(chance.randint(1, 12))]
            talking.process.kill()
            acknowledged += talking.rest()
        found = [
            message["content"]
            for message in manager.load_session(session_id).messages
            if not dict(message).get("interrupted")
        ]
        assert found[: len(acknowledged)] == acknowledged
        assert len(found) <= len(acknowledged) + 1
        acknowledged = found
    manager.append_messages(session_id, [user("end")])
    assert not log_of(sessions_dir, session_id).exists()
    assert not list(sessions_dir.glob("*.corrupt-*"))


@repeated(5)
def test_kill_keeps_every_created_session(
    manager: SessionManager, sessions_dir: Path, rounds: int
) -> None:
    acknowledged: list[str] = []
    for _ in range(rounds):
        with child(create_forever, sessions_dir, "m") as creating:
            acknowledged += [creating.next() for _ in range(10)]
            creating.process.kill()
            acknowledged += creating.rest()
    listed = {entry["session_id"] for entry in manager.list_sessions()}
    assert listed >= set(acknowledged)
    assert len(listed) <= len(acknowledged) + rounds
    assert not list(sessions_dir.glob("*.corrupt-*"))


@limits_files
def test_full_disk_fails_only_the_change(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    manager.close()
    with child(exceed_disk, sessions_dir, session_id, 3000) as writing:
        assert writing.rest() == [
            "STORAGE_FAILED",
            True,
            "STORAGE_FAILED",
            "STORAGE_FAILED",
            "STORAGE_FAILED",
            ["fits", "fits, too", "fits at last"],
        ]
    assert contents(manager.load_session(session_id)) == ["fits", "fits, too", "fits at last"]
    assert sorted(path.name for path in sessions_dir.iterdir()) == [".lock", f"{session_id}.json"]


@limits_files
def test_turn_ending_on_full_disk_is_recovered_from_its_log(
    manager: SessionManager, sessions_dir: Path
) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    fits_one_message_only = file_of(sessions_dir, session_id).stat().st_size + 500
    manager.close()
    with child(end_turn_on_full_disk, sessions_dir, session_id, fits_one_message_only) as turn:
        assert turn.rest() == ["ended"]
    assert log_of(sessions_dir, session_id).exists()
    assert contents(manager.load_session(session_id)) == ["a" * 300, "b" * 300]
    manager.append_messages(session_id, [user("c")])
    assert not log_of(sessions_dir, session_id).exists()
    assert contents(manager.load_session(session_id)) == ["a" * 300, "b" * 300, "c"]
