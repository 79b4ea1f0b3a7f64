"""Where the system tells of changes only those are looked at, and all files now and then."""

import os
from pathlib import Path

import pytest

from mochi_server.inotify import DirectoryWatch
from mochi_server.sessions import SessionCreationOptions, SessionManager, folder
from tests.sessions.samples import file_of


@pytest.fixture(autouse=True)
def telling(tmp_path: Path) -> None:
    watch = DirectoryWatch(tmp_path)
    watch.changed()
    if watch.changed() is None:
        pytest.skip("this system does not tell of changes")


def models(manager: SessionManager) -> dict[str, str]:
    return {entry["session_id"]: entry["model"] for entry in manager.list_sessions()}


def test_only_notified_files_are_checked(
    manager: SessionManager, ids: list[str], sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(folder, "scanning")
    assert list(models(manager)) == ids
    by_hand = file_of(sessions_dir, ids[0])
    by_hand.write_text(by_hand.read_text().replace('"model": "m"', '"model": "n"'))
    file_of(sessions_dir, ids[1]).unlink()
    new = SessionManager(sessions_dir).create_session(SessionCreationOptions(model="o")).session_id
    assert models(manager) == {new: "o", ids[0]: "n", ids[2]: "m"}
    (sessions_dir / "0123456789.json").write_text("damaged")
    assert list(models(manager)) == [new, ids[0], ids[2]]


def test_change_without_notification_is_found_by_a_scan(
    manager: SessionManager, ids: list[str], sessions_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    os.link(file_of(sessions_dir, ids[0]), elsewhere)
    models(manager)
    elsewhere.write_text(elsewhere.read_text().replace('"model": "m"', '"model": "n"'))
    monkeypatch.setattr(folder, "_LOOK_AT_ALL_SECONDS", 0)
    assert models(manager)[ids[0]] == "n"


def test_watch_reports_names_once_and_stops_with_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "watched"
    directory.mkdir()
    watch = DirectoryWatch(directory)
    assert watch.changed() is None
    assert watch.changed() == set()
    (directory / "a").touch()
    (directory / "a").rename(directory / "b")
    assert watch.changed() == {"a", "b"}
    assert watch.changed() == set()
    directory.rename(tmp_path / "another")
    assert watch.changed() is None
    directory.mkdir()
    assert watch.changed() is None
    assert watch.changed() == set()
