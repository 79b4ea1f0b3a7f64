"""Index of the session list: correct even if it is outdated, damaged or deleted."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from mochi_server.errors import StorageFailed
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager, SessionQuery
from mochi_server.storage.files import atomic_files, session_files, session_index
from tests.sessions.samples import assistant, file_of, log_of, read_count, stored_session, user


@pytest.fixture(autouse=True)
def untrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare all files for each list, as after the trusted time."""
    monkeypatch.setattr(session_index, "TRUSTED_SECONDS", 0)


@pytest.fixture
def index(sessions_dir: Path) -> Path:
    return sessions_dir / ".index.sqlite"


def join_names(manager: SessionManager) -> list[str]:
    return [entry["session_id"] for entry in manager.list_sessions()]


def test_unchanged_file_is_not_read_by_another_process(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = read_count(monkeypatch)
    assert join_names(manager) == join_names(SessionManager(sessions_dir)) == ids
    assert reads() == 0
    file_of(sessions_dir, ids[0]).touch()
    assert join_names(manager) == ids
    assert reads() == 1


def test_file_changed_by_hand_is_listed_anew(manager: SessionManager, ids: list[str], sessions_dir: Path) -> None:
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    assert [entry["model"] for entry in manager.list_sessions()] == ["m", "m", "n"]


def test_added_and_removed_files_are_noticed(manager: SessionManager, ids: list[str], sessions_dir: Path) -> None:
    file_of(sessions_dir, ids[1]).rename(sessions_dir.parent / "elsewhere.json")
    assert join_names(manager) == [ids[0], ids[2]]
    (sessions_dir.parent / "elsewhere.json").rename(file_of(sessions_dir, ids[1]))
    assert join_names(manager) == ids


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(5000)])
def test_damaged_index_is_rebuilt(manager: SessionManager, ids: list[str], index: Path, damage: bytes) -> None:
    index.write_bytes(damage)
    assert join_names(manager) == ids
    with sqlite3.connect(index) as database:
        assert database.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    database.close()


@pytest.mark.skipif(os.name == "nt", reason="there are no such pipes")
def test_pipe_in_place_of_the_index_does_not_block(manager: SessionManager, ids: list[str], index: Path) -> None:
    index.unlink()
    os.mkfifo(index)
    assert join_names(manager) == ids
    assert index.is_file()


def test_index_damaged_in_the_middle_is_rebuilt(manager: SessionManager, ids: list[str], index: Path) -> None:
    data = index.read_bytes()
    index.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    assert join_names(manager) == ids


def test_invalid_index_entry_is_rebuilt(manager: SessionManager, ids: list[str], index: Path) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("UPDATE sessions SET entry = ?", (b"\xa5",))
    database.close()
    assert join_names(manager) == ids


def test_index_can_be_deleted_at_any_time(manager: SessionManager, ids: list[str], index: Path) -> None:
    index.unlink()
    assert join_names(manager) == ids
    assert index.exists()


def test_index_of_another_version_is_rebuilt(manager: SessionManager, ids: list[str], index: Path) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("DROP TABLE sessions")
        database.execute("CREATE TABLE sessions (other TEXT)")
        database.execute("PRAGMA user_version = 99")
    database.close()
    assert join_names(manager) == ids


def test_index_table_with_other_columns_is_tolerated(manager: SessionManager, ids: list[str], index: Path) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("DROP TABLE sessions")
    database.close()
    assert join_names(manager) == ids


def test_list_works_without_an_index_file(
    manager: SessionManager, ids: list[str], index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.unlink()
    index.mkdir()
    reads = read_count(monkeypatch)
    another = SessionManager(index.parent)
    assert join_names(manager) == join_names(another) == join_names(another) == ids
    assert reads() == 3
    manager.delete_session(ids[0])
    assert join_names(another) == ids[1:]


def test_locked_index_delays_the_list_only_shortly(manager: SessionManager, ids: list[str], index: Path) -> None:
    other = sqlite3.connect(index)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert join_names(manager) == ids
    finally:
        other.close()


def test_equal_times_are_listed_in_a_stable_order(manager: SessionManager, ids: list[str], sessions_dir: Path) -> None:
    for session_id in ids:
        path = file_of(sessions_dir, session_id)
        lines = [
            '    "updated_at": "2026-01-01T00:00:00+00:00",' if '"updated_at"' in line else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines))
    assert join_names(manager) == sorted(ids)
    assert join_names(SessionManager(sessions_dir)) == sorted(ids)
    assert [entry["session_id"] for entry in manager.list_sessions(limit=1, offset=1)] == sorted(ids)[1:2]


def test_naive_aware_and_invalid_times_are_sorted_together(manager: SessionManager, sessions_dir: Path) -> None:
    times = ["2026-01-01T12:00:00", "2026-01-01T13:30:00+02:00", "2026-01-01T11:00:00Z", "..."]
    sessions_dir.mkdir()
    for number, moment in enumerate(times):
        session_id = f"{number:010x}"
        file_of(sessions_dir, session_id).write_text(
            f'{{"metadata": {{"session_id": "{session_id}", "model": "m", "updated_at": "{moment}"}}, "messages": []}}'
        )
    assert [entry["updated_at"] for entry in manager.list_sessions()] == times


async def test_interrupted_answer_is_counted_after_a_crash(files: FileSessionStore, sessions_dir: Path) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [user("a")])
        await files.flush(session.session_id, assistant("so f"))
        (running,) = (await files.list(SessionQuery())).entries
        for process in (sessions_dir / ".locks").glob("*.process"):
            process.unlink()  # other processes identify this process by it, so they now treat it as dead
        (crashed,) = SessionManager(sessions_dir).list_sessions()
    assert (running["message_count"], crashed["message_count"]) == (1, 2)
    (ended,) = (await files.list(SessionQuery())).entries
    assert ended["message_count"] == 1
    assert not log_of(sessions_dir, session.session_id).exists()


def test_other_files_are_not_sessions(manager: SessionManager, ids: list[str], sessions_dir: Path) -> None:
    for name in ("notes.json", f"{ids[0]}.json.bak", "ABCDEF0123.json", "README.md"):
        (sessions_dir / name).write_text("{}")
    assert join_names(manager) == ids
    assert (sessions_dir / "notes.json").read_text() == "{}"


def test_unreadable_file_is_listed_once_it_is_readable(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of(sessions_dir, ids[1]).touch()
    with monkeypatch.context() as failing:
        failing.setattr(atomic_files, "read", _fail)
        assert join_names(manager) == [ids[0], ids[2]]
    assert join_names(manager) == ids


def test_change_notified_to_a_failed_list_is_in_the_next(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    with monkeypatch.context() as failing:
        failing.setattr(session_index, "encode", _fail)
        with pytest.raises(StorageFailed):
            manager.list_sessions()
    assert [entry["model"] for entry in manager.list_sessions()] == ["m", "m", "n"]


def test_replaced_directory_is_listed(manager: SessionManager, ids: list[str], sessions_dir: Path) -> None:
    sessions_dir.rename(sessions_dir.with_name("elsewhere"))
    assert join_names(manager) == []
    another = SessionManager(sessions_dir).create_session(SessionCreationOptions(model="m"))
    assert join_names(manager) == [another.session_id]


def test_unchanged_directory_is_not_scanned_again(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_index, "TRUSTED_SECONDS", 60)
    past = time.time() - 60
    file_of(sessions_dir, ids[1]).unlink()
    os.utime(sessions_dir, (past, past))
    assert join_names(manager) == [ids[0], ids[2]]
    with monkeypatch.context() as blind:
        blind.delattr(session_files, "scan_directory")
        assert join_names(manager) == [ids[0], ids[2]]
        assert [entry["session_id"] for entry in manager.list_sessions(limit=1, offset=1)] == [ids[2]]
        assert [entry["session_id"] for entry in manager.list_sessions(text="m")] == []
    new = SessionManager(sessions_dir).create_session(SessionCreationOptions(model="o")).session_id
    assert join_names(manager) == [new, ids[0], ids[2]]
    index = sessions_dir / ".index.sqlite"
    index.unlink()
    os.utime(sessions_dir, (past, past))
    assert join_names(manager) == [new, ids[0], ids[2]]


def test_own_changes_are_listed_without_a_scan(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_index, "TRUSTED_SECONDS", 60)
    os.utime(sessions_dir, (1e9, 1e9))
    assert join_names(manager) == ids
    with monkeypatch.context() as blind:
        blind.delattr(session_files, "scan_directory")
        manager.append_messages(ids[2], [user("Hello")])
        assert join_names(manager) == [ids[2], *ids[:2]]
        new = manager.create_session(SessionCreationOptions(model="o")).session_id
        manager.update_session(ids[1], title="Named")
        assert join_names(manager) == [ids[1], new, ids[2], ids[0]]
        manager.delete_session(new)
        assert join_names(manager) == [ids[1], ids[2], ids[0]]
    SessionManager(sessions_dir).update_session(ids[0], title="By another process")
    assert join_names(manager) == ids


def test_edit_in_place_is_listed_within_the_trusted_time(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_index, "TRUSTED_SECONDS", 0.2)
    past = time.time() - 60
    os.utime(sessions_dir, (past, past))
    assert len(join_names(manager)) == 3
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    until = time.monotonic() + 10
    while [entry["model"] for entry in manager.list_sessions()] != ["m", "m", "n"]:
        assert time.monotonic() < until


def _fail(*_: object) -> bytes:
    raise OSError(5, "Input/output error")


async def test_waiting_lists_do_not_delay_a_turn(sessions_dir: Path, ids: list[str], index: Path) -> None:
    store = FileSessionStore(sessions_dir)
    with closing(sqlite3.connect(index)) as other:
        other.execute("BEGIN EXCLUSIVE")
        lists = [asyncio.create_task(store.list(SessionQuery(limit=count))) for count in range(1, 9)]
        async with store.hold(ids[0], run_id="run"):
            await store.append(ids[0], [user("Hello")])
        assert not any(task.done() for task in lists)
    await asyncio.gather(*lists)
    await store.aclose()
