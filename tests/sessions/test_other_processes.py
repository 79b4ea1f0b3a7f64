"""Real processes that are killed, share a directory, or have a full disk."""

import random
import sys
from pathlib import Path

import pytest

from mochi_server.errors import SessionConflict
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager
from tests.faults.rounds import repeated
from tests.sessions.processes import (
    append_own_messages,
    child,
    create_forever,
    end_turn_on_full_disk,
    exceed_disk,
    list_forever,
    patch_own_field,
    run_turns_forever,
)
from tests.sessions.samples import appended, contents, file_of, log_of, stored_session, user

limits_files = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")


@pytest.mark.slow
@repeated(20)
def test_kill_keeps_every_acknowledged_message(manager: SessionManager, sessions_dir: Path, rounds: int) -> None:
    session_id, chance = manager.create_session(SessionCreationOptions(model="m")).session_id, random.Random(7)
    acknowledged: list[str] = []
    for _ in range(rounds):
        with child(run_turns_forever, sessions_dir, session_id) as talking:
            acknowledged += [talking.next() for _ in range(chance.randint(1, 12))]
            talking.process.kill()
            acknowledged += talking.rest()
        found = [
            message["content"]
            for message in manager.load_session(session_id).messages
            if not message.get("interrupted")
        ]
        assert found[: len(acknowledged)] == acknowledged
        assert len(found) <= len(acknowledged) + 1
        acknowledged = found
    manager.append_messages(session_id, [user("end")])
    assert not log_of(sessions_dir, session_id).exists()
    assert not list(sessions_dir.glob("*.corrupt-*"))


@repeated(5)
def test_kill_keeps_every_created_session(manager: SessionManager, sessions_dir: Path, rounds: int) -> None:
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


@repeated(60, once=5)
def test_two_processes_patch_one_session(manager: SessionManager, sessions_dir: Path, rounds: int) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    with (
        child(patch_own_field, sessions_dir, [session_id], "title", rounds) as one,
        child(patch_own_field, sessions_dir, [session_id], "summary_model", rounds) as other,
    ):
        assert (one.next(), other.next()) == (0, 0)
    metadata = manager.load_session(session_id).metadata
    assert (metadata.title, metadata.summary_model) == (f"title {rounds - 1}", f"summary_model {rounds - 1}")


@pytest.mark.parametrize("sessions", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_two_processes_patch_many_sessions(manager: SessionManager, sessions_dir: Path, sessions: int) -> None:
    ids = [manager.create_session(SessionCreationOptions(model="m")).session_id for _ in range(sessions)]
    with (
        child(patch_own_field, sessions_dir, ids, "title", 3) as one,
        child(patch_own_field, sessions_dir, ids, "summary_model", 3) as other,
        child(list_forever, sessions_dir, 20) as listing,
    ):
        assert (one.next(), other.next()) == (0, 0)
        assert set(listing.next()) == {sessions}
    for entry in manager.list_sessions():
        assert (entry["title"], entry["summary_model"]) == ("title 2", "summary_model 2")


@repeated(40, once=5)
def test_two_processes_append_to_one_session(manager: SessionManager, sessions_dir: Path, rounds: int) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    with (
        child(append_own_messages, sessions_dir, session_id, "one", rounds) as one,
        child(append_own_messages, sessions_dir, session_id, "other", rounds) as other,
    ):
        one.next(), other.next()
    found = contents(manager.load_session(session_id))
    assert len(found) == 2 * rounds
    for name in ("one", "other"):
        assert [text for text in found if text.startswith(name)] == [f"{name} {number}" for number in range(rounds)]


@pytest.mark.parametrize("run_id", ["a turn", None])
async def test_change_based_on_an_outdated_history_is_a_conflict(
    files: FileSessionStore, sessions_dir: Path, run_id: str | None
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id=run_id):
        session = await appended(files, session.session_id, [user("mine")])
        with child(append_own_messages, sessions_dir, session.session_id, "other", 1) as other:
            other.next()
        with pytest.raises(SessionConflict):
            await files.append(session.session_id, [user("late")], revision=session.revision)
        await files.append(session.session_id, [user("after all")])
    assert contents(await files.load(session.session_id)) == ["mine", "other 0", "after all"]


@limits_files
def test_full_disk_fails_only_the_change(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
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
    assert sorted(path.name for path in sessions_dir.iterdir()) == [".locks", f"{session_id}.json"]


@limits_files
def test_turn_ending_on_full_disk_is_recovered_from_its_log(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    fits_one_message_only = file_of(sessions_dir, session_id).stat().st_size + 500
    with child(end_turn_on_full_disk, sessions_dir, session_id, fits_one_message_only) as turn:
        assert turn.rest() == ["ended"]
    assert log_of(sessions_dir, session_id).exists()
    assert contents(manager.load_session(session_id)) == ["a" * 300, "b" * 300]
    manager.append_messages(session_id, [user("c")])
    assert not log_of(sessions_dir, session_id).exists()
    assert contents(manager.load_session(session_id)) == ["a" * 300, "b" * 300, "c"]
