"""The list's index: never wrong, whatever happened to it or behind its back."""

import sqlite3
from pathlib import Path

import pytest

from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager, SessionQuery
from tests.sessions.samples import answered, file_of, log_of, read_count, said, stored_session


@pytest.fixture
def manager(sessions_dir: Path) -> SessionManager:
    return SessionManager(sessions_dir)


@pytest.fixture
def ids(manager: SessionManager) -> list[str]:
    """Three sessions, the newest first; the index knows them."""
    created = [manager.create_session(SessionCreationOptions(model="m")).session_id for _ in range(3)]
    manager.list_sessions()
    return created[::-1]


@pytest.fixture
def index(sessions_dir: Path) -> Path:
    return sessions_dir / ".index.sqlite"


def listed(manager: SessionManager) -> list[str]:
    return [entry["session_id"] for entry in manager.list_sessions()]


def test_an_unchanged_file_is_not_read_again_even_by_another_process(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = read_count(monkeypatch)
    assert listed(manager) == listed(SessionManager(sessions_dir)) == ids
    assert reads() == 0
    file_of(sessions_dir, ids[0]).touch()
    assert listed(manager) == ids
    assert reads() == 1


def test_a_file_changed_by_hand_is_listed_as_it_is_now(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    path = file_of(sessions_dir, ids[2])
    path.write_text(path.read_text().replace('"model": "m"', '"model": "n"'))
    assert [entry["model"] for entry in manager.list_sessions()] == ["m", "m", "n"]


def test_files_that_come_and_go_behind_its_back_are_noticed(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    file_of(sessions_dir, ids[1]).rename(sessions_dir.parent / "elsewhere.json")
    assert listed(manager) == [ids[0], ids[2]]
    (sessions_dir.parent / "elsewhere.json").rename(file_of(sessions_dir, ids[1]))
    assert listed(manager) == ids


@pytest.mark.parametrize("damage", [b"", b"no database", b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_index_is_made_again(manager: SessionManager, ids: list[str], index: Path, damage: bytes) -> None:
    index.write_bytes(damage)
    assert listed(manager) == ids
    with sqlite3.connect(index) as database:
        assert database.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    database.close()


def test_an_index_damaged_in_the_middle_is_made_again(manager: SessionManager, ids: list[str], index: Path) -> None:
    data = index.read_bytes()
    index.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))
    assert listed(manager) == ids


def test_an_entry_that_is_no_json_is_made_again(manager: SessionManager, ids: list[str], index: Path) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("UPDATE sessions SET entry = ?", (b"\xa5",))
    database.close()
    assert listed(manager) == ids


def test_the_index_can_be_deleted_at_any_time(manager: SessionManager, ids: list[str], index: Path) -> None:
    index.unlink()
    assert listed(manager) == ids
    assert index.exists()


def test_an_index_of_another_version_is_made_again(manager: SessionManager, ids: list[str], index: Path) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("DROP TABLE sessions")
        database.execute("CREATE TABLE sessions (other TEXT)")
        database.execute("PRAGMA user_version = 99")
    database.close()
    assert listed(manager) == ids


def test_a_table_of_another_shape_does_no_harm(manager: SessionManager, ids: list[str], index: Path) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute("DROP TABLE sessions")
    database.close()
    assert listed(manager) == ids


def test_without_a_place_for_the_index_the_list_works_from_memory(
    ids: list[str], index: Path, sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.unlink()
    index.mkdir()
    manager, reads = SessionManager(sessions_dir), read_count(monkeypatch)
    assert listed(manager) == listed(manager) == ids
    assert reads() == 3
    manager.delete_session(ids[0])
    assert listed(manager) == ids[1:]


def test_an_index_that_another_process_is_writing_is_not_waited_for_long(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    other = sqlite3.connect(index)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert listed(manager) == ids
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
    assert listed(manager) == sorted(ids)
    assert listed(SessionManager(sessions_dir)) == sorted(ids)
    assert [entry["session_id"] for entry in manager.list_sessions(limit=1, offset=1)] == sorted(ids)[1:2]


def test_naive_aware_and_senseless_times_are_sorted_together(manager: SessionManager, sessions_dir: Path) -> None:
    times = ["2026-01-01T12:00:00", "2026-01-01T13:30:00+02:00", "2026-01-01T11:00:00Z", "..."]
    sessions_dir.mkdir()
    for number, time in enumerate(times):
        session_id = f"{number:010x}"
        file_of(sessions_dir, session_id).write_text(
            f'{{"metadata": {{"session_id": "{session_id}", "model": "m", "updated_at": "{time}"}}, "messages": []}}'
        )
    assert [entry["updated_at"] for entry in manager.list_sessions()] == times


@pytest.mark.anyio
async def test_a_crashed_turns_interrupted_answer_is_counted_although_the_running_one_was_not(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [said("a")])
        await files.checkpoint(session.session_id, answered("so f"))
        (running,) = (await files.list(SessionQuery())).entries
        for process in (sessions_dir / ".locks").glob("*.process"):
            process.unlink()  # what others know this process by: to them it is dead now
        (crashed,) = SessionManager(sessions_dir).list_sessions()
    assert (running["message_count"], crashed["message_count"]) == (1, 2)
    (ended,) = (await files.list(SessionQuery())).entries
    assert ended["message_count"] == 1
    assert not log_of(sessions_dir, session.session_id).exists()


def test_foreign_files_are_no_sessions(manager: SessionManager, ids: list[str], sessions_dir: Path) -> None:
    for name in ("notes.json", f"{ids[0]}.json.bak", "ABCDEF0123.json", "README.md"):
        (sessions_dir / name).write_text("{}")
    assert listed(manager) == ids
    assert (sessions_dir / "notes.json").read_text() == "{}"
