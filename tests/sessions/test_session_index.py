"""Index of the session list: correct even if it is outdated, damaged or deleted."""

import asyncio
import math
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mochi_server.sessions import (
    FileSessionStore,
    SessionCreationOptions,
    SessionManager,
    SessionQuery,
)
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession
from mochi_server.storage.files.atomic_files import Signature
from mochi_server.storage.files.backend import SessionDirectory
from mochi_server.storage.files.session_index import SessionIndex
from tests.sessions.samples import assistant, file_of, log_of, read_count, stored_session, user


@pytest.fixture
def index(sessions_dir: Path) -> Path:
    return sessions_dir / ".index.sqlite"


def listed(manager: SessionManager) -> list[str]:
    return [entry["session_id"] for entry in manager.list_sessions()]


def test_unchanged_file_is_not_read_again(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = read_count(monkeypatch)
    assert listed(manager) == listed(SessionManager(sessions_dir)) == ids
    assert reads() == 0
    file_of(sessions_dir, ids[0]).touch()
    assert listed(manager) == ids
    assert reads() == 1


def test_start_builds_the_index_of_the_first_list(
    ids: list[str], sessions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sessions_dir, tmp_path / "copy", ignore=shutil.ignore_patterns(".*"))
    directory = SessionDirectory(tmp_path / "copy")
    directory.open()
    reads = read_count(monkeypatch)
    assert not directory.due_turns(math.inf)  # as a server at its start
    page = directory.list(SessionQuery())
    directory.close()
    assert [entry["session_id"] for entry in page.entries] == ids
    assert reads() == 3


def test_repeated_list_shows_changes_by_hand(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    assert listed(manager) == listed(manager) == ids
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    for _ in range(3):
        assert [entry["model"] for entry in manager.list_sessions()] == ["m", "m", "n"]
    path.unlink()
    assert listed(manager) == listed(manager) == ids[:2]


def test_file_changed_by_hand_is_listed_anew(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    assert [entry["model"] for entry in manager.list_sessions()] == ["m", "m", "n"]


def test_added_and_removed_files_are_noticed(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    file_of(sessions_dir, ids[1]).rename(sessions_dir.parent / "elsewhere.json")
    assert listed(manager) == [ids[0], ids[2]]
    (sessions_dir.parent / "elsewhere.json").rename(file_of(sessions_dir, ids[1]))
    assert listed(manager) == ids


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(5000)])
def test_damaged_index_is_rebuilt(
    manager: SessionManager, ids: list[str], index: Path, damage: bytes
) -> None:
    index.write_bytes(damage)
    assert listed(manager) == ids
    with sqlite3.connect(index) as database:
        assert database.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    database.close()


def test_index_damaged_in_the_middle_is_rebuilt(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    data = index.read_bytes()
    index.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    assert listed(manager) == ids


def test_index_can_be_deleted_at_any_time(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    index.unlink()
    assert listed(manager) == ids
    assert index.exists()


def test_index_of_another_version_is_rebuilt(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("DROP TABLE sessions")
        database.execute("CREATE TABLE sessions (other TEXT)")
        database.execute("PRAGMA user_version = 99")
    database.close()
    assert listed(manager) == ids


def test_index_without_a_version_is_rebuilt(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    with closing(sqlite3.connect(index)) as database:  # as a killed process has left it
        database.execute("PRAGMA user_version = 0")
    file_of(index.parent, ids[0]).touch()
    assert listed(manager) == ids
    with closing(sqlite3.connect(index)) as database:
        assert database.execute("PRAGMA user_version").fetchone() != (0,)


def test_index_table_with_other_columns_is_tolerated(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("DROP TABLE sessions")
    database.close()
    assert listed(manager) == ids


def test_list_works_without_an_index_file(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    index.unlink()
    index.mkdir()
    assert listed(manager) == listed(manager) == ids
    manager.delete_session(ids[0])
    assert listed(manager) == ids[1:]


def test_reader_reads_each_file_once_and_writes_nothing(
    ids: list[str], sessions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(
        shutil.copytree(sessions_dir, tmp_path / "copy", ignore=shutil.ignore_patterns(".*"))
    )
    with SessionManager(directory) as reader:
        reads = read_count(monkeypatch)
        assert listed(reader) == listed(reader) == ids
    assert reads() == 3
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        f"{session_id}.json" for session_id in ids
    )


def test_locked_index_delays_the_list_only_shortly(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    other = sqlite3.connect(index)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert listed(manager) == ids
    finally:
        other.close()


def test_equal_times_are_listed_in_a_stable_order(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    for session_id in ids:
        path = file_of(sessions_dir, session_id)
        lines = [
            '    "updated_at": "2026-01-01T00:00:00+00:00",' if '"updated_at"' in line else line
            for line in path.read_text().splitlines()
        ]
        path.write_text("\n".join(lines))
    assert listed(manager) == sorted(ids)
    assert listed(SessionManager(sessions_dir)) == sorted(ids)
    assert [entry["session_id"] for entry in manager.list_sessions(limit=1, offset=1)] == sorted(
        ids
    )[1:2]


def test_naive_aware_and_invalid_times_are_sorted_together(
    manager: SessionManager, sessions_dir: Path
) -> None:
    times = ["2026-01-01T12:00:00", "2026-01-01T13:30:00+02:00", "2026-01-01T11:00:00Z", "..."]
    sessions_dir.mkdir()
    for number, moment in enumerate(times):
        session_id = f"{number:010x}"
        file_of(sessions_dir, session_id).write_text(
            f'{{"metadata": {{"session_id": "{session_id}", "model": "m", "updated_at": '
            f'"{moment}"}}, "messages": []}}'
        )
    ids = [entry["session_id"] for entry in manager.list_sessions()]
    assert ids == [f"{number:010x}" for number in range(len(times))]


async def test_interrupted_answer_is_counted_after_a_crash(
    files: FileSessionStore, sessions_dir: Path, tmp_path: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change(partial=assistant("so f")))
        (running,) = (await files.list(SessionQuery())).entries
        (crashed,) = SessionManager(
            shutil.copytree(sessions_dir, tmp_path / "crashed")
        ).list_sessions()
    assert (running["message_count"], crashed["message_count"]) == (1, 2)
    (ended,) = (await files.list(SessionQuery())).entries
    assert ended["message_count"] == 1
    assert not log_of(sessions_dir, session.session_id).exists()


def test_other_files_are_not_sessions(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    for name in ("notes.json", f"{ids[0]}.json.bak", "ABCDEF0123.json", "README.md"):
        (sessions_dir / name).write_text("{}")
    assert listed(manager) == ids
    assert (sessions_dir / "notes.json").read_text() == "{}"


@pytest.mark.parametrize("signature", [Signature(2**64 - 1, 0, 1), Signature(1, 2**63, 1)])
def test_numbers_of_a_file_may_exceed_those_of_sqlite(
    ids: list[str], sessions_dir: Path, signature: Signature
) -> None:
    """Inodes of some file systems have 64 bits, and files can be dated after the year 2262."""
    directory = SessionDirectory(sessions_dir)
    index = SessionIndex(sessions_dir, lambda session_id: (directory.load(session_id), signature))
    (sessions_dir / ".index.sqlite").unlink()
    entries = index.list(SessionQuery(), use_file=True).entries
    assert [entry["session_id"] for entry in entries] == ids


def test_file_of_a_distant_year_is_not_read_again(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 10_413_792_000  # 2300-01-01
    os.utime(file_of(sessions_dir, ids[1]), (seconds, seconds))
    assert listed(manager) == ids
    reads = read_count(monkeypatch)
    assert listed(SessionManager(sessions_dir)) == ids
    assert reads() == 0


def test_unreadable_file_is_listed_once_it_is_readable(
    manager: SessionManager, ids: list[str], sessions_dir: Path, tmp_path: Path
) -> None:
    path = file_of(sessions_dir, ids[1])
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.mkdir()
    assert listed(manager) == [ids[0], ids[2]]
    path.rmdir()
    elsewhere.rename(path)
    assert listed(manager) == ids


def test_change_that_a_failed_list_found_is_in_the_next(ids: list[str], sessions_dir: Path) -> None:
    directory = SessionDirectory(sessions_dir)
    failures = [OSError(5, "Input/output error")]

    def read(session_id: str) -> tuple[ChatSession, None]:
        if failures:
            raise failures.pop()
        return directory.load(session_id), None

    index = SessionIndex(sessions_dir, read)
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    with pytest.raises(OSError, match="Input/output error"):
        index.list(SessionQuery(), use_file=True)
    entries = index.list(SessionQuery(), use_file=True).entries
    assert [entry["model"] for entry in entries] == ["m", "m", "n"]


def test_replaced_directory_is_listed(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    sessions_dir.rename(sessions_dir.with_name("elsewhere"))
    assert listed(manager) == []
    another = SessionManager(sessions_dir).create_session(SessionCreationOptions(model="m"))
    assert listed(manager) == [another.session_id]


async def test_waiting_lists_do_not_delay_a_turn(
    sessions_dir: Path, ids: list[str], index: Path
) -> None:
    store = FileSessionStore(sessions_dir)
    with closing(sqlite3.connect(index)) as other:
        other.execute("BEGIN EXCLUSIVE")
        lists = [
            asyncio.create_task(store.list(SessionQuery(limit=count))) for count in range(1, 9)
        ]
        async with store.hold(ids[0], run_id="run"):
            await store.write(ids[0], Change([user("Hello")]))
        assert not any(task.done() for task in lists)
    await asyncio.gather(*lists)
    await store.aclose()
