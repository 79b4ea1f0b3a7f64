"""Full-text search with the index: it may be missing, and the files take precedence over it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mochi_server.sessions import SessionCreationOptions, SessionManager
from tests.sessions.samples import assistant, file_of, read_count, user


@pytest.fixture
def index(sessions_dir: Path) -> Path:
    return sessions_dir / ".index.sqlite"


@pytest.fixture
def ids(manager: SessionManager) -> list[str]:
    """The ids of a session about apples and one about pears, both indexed."""
    made = []
    for text in ("apple", "pear"):
        made.append(manager.create_session(SessionCreationOptions(model="m")).session_id)
        manager.append_messages(made[-1], [user(f"{text} and fruit"), assistant("c++")])
    search(manager, "fruit")
    return made


def search(manager: SessionManager, text: str) -> list[str]:
    return [entry["session_id"] for entry in manager.list_sessions(text=text)]


def test_search_reads_only_changed_sessions(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = read_count(monkeypatch)
    assert search(manager, "apple") == search(SessionManager(sessions_dir), "apple") == ids[:1]
    assert reads() == 0
    file_of(sessions_dir, ids[0]).touch()
    assert search(manager, "apple") == ids[:1]
    assert reads() == 2  # for the list entry and for the texts


def test_list_does_not_read_texts_for_the_search(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = read_count(monkeypatch)
    file_of(sessions_dir, ids[0]).touch()
    assert len(manager.list_sessions()) == 2
    assert reads() == 1


def test_file_changed_by_hand_is_found_by_its_new_text(
    manager: SessionManager, ids: list[str], sessions_dir: Path
) -> None:
    path = file_of(sessions_dir, ids[0])
    path.write_text(path.read_text().replace("apple", "quince"))
    assert (search(manager, "apple"), search(manager, "quince")) == ([], ids[:1])


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE texts",
        "DROP TABLE trigrams",
        "DROP TABLE sessions",
        "PRAGMA user_version = 1",
        "DELETE FROM trigrams_data",
    ],
)
def test_search_works_with_a_damaged_index(
    manager: SessionManager, ids: list[str], index: Path, damage: str
) -> None:
    database = sqlite3.connect(index)
    with database:
        database.execute(damage)
    database.close()
    assert search(manager, "pple fruit") == ids[:1]
    assert search(manager, "c+ fruit") == ids[::-1]


def test_deleted_index_is_rebuilt(manager: SessionManager, ids: list[str], index: Path) -> None:
    index.unlink()
    assert search(manager, "apple") == ids[:1]
    assert index.exists()


def test_files_are_searched_without_an_index(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    index.unlink()
    index.mkdir()
    assert search(manager, "apple fruit") == ids[:1]


def test_every_text_is_searched_without_trigrams(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    index.unlink()
    with closing(sqlite3.connect(index)) as database:
        database.execute(
            "CREATE TABLE trigrams_data (a)"
        )  # SQLite then rejects the table, as before version 3.34
    assert search(manager, "apple fruit") == ids[:1]
    manager.append_messages(ids[1], [user("apple")])
    assert search(manager, "apple fruit") == ids[::-1]
    with closing(sqlite3.connect(index)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    assert ("texts" in tables, "trigrams" in tables) == (True, False)


def test_list_removes_texts_of_deleted_sessions(
    manager: SessionManager, ids: list[str], index: Path
) -> None:
    assert b"apple" in index.read_bytes()
    manager.delete_session(ids[0])
    manager.list_sessions()
    assert b"apple" not in index.read_bytes()
