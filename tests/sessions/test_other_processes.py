"""Processes that are killed, that share a directory, that find the disk full: real ones."""

import random
import sys
from pathlib import Path

import pytest

from mochi_server.errors import SessionConflict
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager
from tests.sessions.processes import (
    append_own_messages,
    child,
    create_forever,
    end_a_turn_on_a_full_disk,
    list_forever,
    outgrow_the_disk,
    patch_own_field,
    talk_forever,
)
from tests.sessions.samples import contents, file_of, log_of, said, stored_session

limits_files = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")


def test_no_kill_loses_or_damages_what_was_acknowledged(manager: SessionManager, sessions_dir: Path) -> None:
    session_id, chance = manager.create_session(SessionCreationOptions(model="m")).session_id, random.Random(7)
    acknowledged: list[str] = []
    for _ in range(20):
        with child(talk_forever, sessions_dir, session_id) as talking:
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
    manager.append_messages(session_id, [said("end")])
    assert not log_of(sessions_dir, session_id).exists()
    assert not list(sessions_dir.glob("*.corrupt-*"))


def test_sessions_created_before_a_kill_are_whole_and_listed(manager: SessionManager, sessions_dir: Path) -> None:
    acknowledged: list[str] = []
    for _ in range(5):
        with child(create_forever, sessions_dir, "m") as creating:
            acknowledged += [creating.next() for _ in range(10)]
            creating.process.kill()
            acknowledged += creating.rest()
    listed = {entry["session_id"] for entry in manager.list_sessions()}
    assert listed >= set(acknowledged)
    assert len(listed) <= len(acknowledged) + 5
    assert not list(sessions_dir.glob("*.corrupt-*"))


def test_two_processes_patching_one_session_lose_nothing(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    with (
        child(patch_own_field, sessions_dir, [session_id], "title", 60) as one,
        child(patch_own_field, sessions_dir, [session_id], "summary_model", 60) as other,
    ):
        assert (one.next(), other.next()) == (0, 0)
    metadata = manager.load_session(session_id).metadata
    assert (metadata.title, metadata.summary_model) == ("title 59", "summary_model 59")


def test_two_processes_patching_many_sessions_lose_nothing(manager: SessionManager, sessions_dir: Path) -> None:
    ids = [manager.create_session(SessionCreationOptions(model="m")).session_id for _ in range(30)]
    with (
        child(patch_own_field, sessions_dir, ids, "title", 3) as one,
        child(patch_own_field, sessions_dir, ids, "summary_model", 3) as other,
        child(list_forever, sessions_dir, 20) as listing,
    ):
        assert (one.next(), other.next()) == (0, 0)
        assert set(listing.next()) == {30}
    for entry in manager.list_sessions():
        assert (entry["title"], entry["summary_model"]) == ("title 2", "summary_model 2")


def test_two_processes_appending_to_one_session_keep_every_message_in_order(
    manager: SessionManager, sessions_dir: Path
) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    with (
        child(append_own_messages, sessions_dir, session_id, "one", 40) as one,
        child(append_own_messages, sessions_dir, session_id, "other", 40) as other,
    ):
        one.next(), other.next()
    found = contents(manager.load_session(session_id))
    assert len(found) == 80
    for name in ("one", "other"):
        assert [text for text in found if text.startswith(name)] == [f"{name} {number}" for number in range(40)]


@pytest.mark.parametrize("run_id", ["a turn", None])
async def test_a_change_decided_before_another_process_changed_the_history_is_a_conflict(
    files: FileSessionStore, sessions_dir: Path, run_id: str | None
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id=run_id):
        session = await files.append(session.session_id, [said("mine")])
        with child(append_own_messages, sessions_dir, session.session_id, "other", 1) as other:
            other.next()
        with pytest.raises(SessionConflict):
            await files.append(session.session_id, [said("late")], revision=session.revision)
        await files.append(session.session_id, [said("after all")])
    assert contents(await files.load(session.session_id)) == ["mine", "other 0", "after all"]


@limits_files
def test_a_full_disk_fails_the_change_and_nothing_else(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    with child(outgrow_the_disk, sessions_dir, session_id, 3000) as writing:
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
def test_a_turn_that_ends_on_a_full_disk_stays_in_its_log_and_is_brought_in_later(
    manager: SessionManager, sessions_dir: Path
) -> None:
    session_id = manager.create_session(SessionCreationOptions(model="m")).session_id
    fits_one_message_only = file_of(sessions_dir, session_id).stat().st_size + 500
    with child(end_a_turn_on_a_full_disk, sessions_dir, session_id, fits_one_message_only) as turn:
        assert turn.rest() == ["ended"]
    assert log_of(sessions_dir, session_id).exists()
    assert contents(manager.load_session(session_id)) == ["a" * 300, "b" * 300]
    manager.append_messages(session_id, [said("c")])
    assert not log_of(sessions_dir, session_id).exists()
    assert contents(manager.load_session(session_id)) == ["a" * 300, "b" * 300, "c"]
