"""Unusual directories and files: errors for the caller, no symlinks followed, no data lost."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, StorageFailed
from mochi_server.sessions import ChatSession, SessionCreationOptions, SessionManager
from mochi_server.sessions.session import user_message
from mochi_server.storage.files.store import FileStores
from tests.sessions.samples import contents, file_of, log_of, storage_warnings

ID = "a1b2c3d4e5"


@pytest.fixture
def session(manager: SessionManager) -> ChatSession:
    return manager.create_session(SessionCreationOptions(model="m", system_prompt="Be brief."))


def test_file_in_place_of_directory_fails_every_operation(
    manager: SessionManager, session: ChatSession, sessions_dir: Path
) -> None:
    shutil.rmtree(sessions_dir)
    sessions_dir.write_text("not a directory")
    for verb in (
        lambda: manager.load_session(session.session_id),
        lambda: manager.append_messages(session.session_id, [user_message("hi")]),
        lambda: manager.update_session(session.session_id, title="t"),
        lambda: manager.delete_session(session.session_id),
        lambda: manager.create_session(SessionCreationOptions(model="m")),
        manager.list_sessions,
    ):
        with pytest.raises(StorageFailed):
            verb()


def test_directory_that_cannot_be_created_fails_creation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match="create a session"):
        SessionManager(tmp_path / "file" / "sessions").create_session(
            SessionCreationOptions(model="m")
        )


def test_unavailable_lock_fails_writes_only(
    manager: SessionManager, session: ChatSession, sessions_dir: Path
) -> None:
    manager.close()
    replace_lock(sessions_dir)
    with pytest.raises(StorageFailed):
        manager.update_session(session.session_id, title="t")
    assert manager.load_session(session.session_id) == session
    assert [entry["session_id"] for entry in manager.list_sessions()] == [session.session_id]


def replace_lock(sessions_dir: Path) -> None:
    """Make it impossible to lock the directory."""
    (sessions_dir / ".lock").unlink()
    (sessions_dir / ".lock").symlink_to(sessions_dir / "elsewhere")


def test_damaged_file_that_stays_is_not_found_and_logged_once(
    manager: SessionManager,
    session: ChatSession,
    sessions_dir: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file_of(sessions_dir, ID).write_text("{")
    os.utime(
        file_of(sessions_dir, ID), (0, 0)
    )  # older than the time after which a file counts as completely written
    manager.close()
    replace_lock(sessions_dir)
    for _ in range(2):
        with pytest.raises(SessionNotFound):
            manager.load_session(ID)
        assert [entry["session_id"] for entry in manager.list_sessions()] == [session.session_id]
    assert len(storage_warnings(caplog)) == 1
    assert file_of(sessions_dir, ID).read_text() == "{"


def test_symlinks_directories_and_fifos_are_not_sessions(
    manager: SessionManager, session: ChatSession, sessions_dir: Path, tmp_path: Path
) -> None:
    outside = shutil.copy(file_of(sessions_dir, session.session_id), tmp_path / "outside.json")
    file_of(sessions_dir, ID).symlink_to(outside)
    file_of(sessions_dir, "0000000001").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(file_of(sessions_dir, "0000000002"))
    for session_id in (ID, "0000000001", "0000000002"):
        for verb in (manager.load_session, manager.delete_session, manager.update_session):
            with pytest.raises(SessionNotFound):
                verb(session_id)
    assert [entry["session_id"] for entry in manager.list_sessions()] == [session.session_id]
    assert file_of(sessions_dir, ID).is_symlink()
    assert not list(sessions_dir.glob("*.corrupt-*"))


def test_turn_log_symlink_is_not_followed(
    manager: SessionManager, session: ChatSession, sessions_dir: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_text('{"fields": {"title": "foreign"}, "updated_at": "2030-01-01"}\n')
    log_of(sessions_dir, session.session_id).symlink_to(outside)
    assert manager.load_session(session.session_id).metadata.title is None
    changed = manager.append_messages(session.session_id, [user_message("hi")])
    assert contents(changed) == ["Be brief.", "hi"]
    assert "foreign" in outside.read_text()


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_sessions_are_private_to_their_owner(
    manager: SessionManager, session: ChatSession, sessions_dir: Path
) -> None:
    manager.list_sessions()
    assert sessions_dir.stat().st_mode & 0o777 == 0o700
    assert file_of(sessions_dir, session.session_id).stat().st_mode & 0o777 == 0o600
    assert (sessions_dir / ".index.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    SessionManager(tmp_path).create_session(SessionCreationOptions(model="m"))
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_temporary_files_of_a_dead_process_are_removed(
    manager: SessionManager, session: ChatSession, sessions_dir: Path
) -> None:
    manager.close()
    kept = [log_of(sessions_dir, session.session_id), sessions_dir / ".hidden"]
    for path in [sessions_dir / f".{ID}.0f.tmp", *kept]:
        path.touch()
    manager.list_sessions()
    assert (sessions_dir / f".{ID}.0f.tmp").exists()  # a reader changes nothing
    manager.create_session(SessionCreationOptions(model="m"))
    assert not (sessions_dir / f".{ID}.0f.tmp").exists()
    assert all(path.exists() for path in kept)


async def test_temporary_files_of_a_dead_server_are_removed(tmp_path: Path) -> None:
    names = ("chats", "agents", "secrets", "usage")
    chats, agents, secrets, usage = (tmp_path / name for name in names)
    for directory in (secrets, usage):
        directory.mkdir()
        (directory / f".a.{'0' * 32}.tmp").touch()
        (directory / "kept.tmp").touch()
    stores = FileStores(chats, agents, secrets, usage)
    await stores.open()
    await stores.aclose()
    assert [path.name for path in secrets.iterdir()] == ["kept.tmp"]
    assert [path.name for path in usage.iterdir()] == ["kept.tmp"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_index_that_is_no_file_is_not_used(
    manager: SessionManager, session: ChatSession, sessions_dir: Path, make: Callable[[Path], None]
) -> None:
    (sessions_dir / ".index.sqlite").unlink(missing_ok=True)
    make(sessions_dir / ".index.sqlite")
    for _ in range(2):
        assert [entry["session_id"] for entry in manager.list_sessions()] == [session.session_id]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
@pytest.mark.parametrize("make", [os.mkfifo, Path.touch])
def test_file_with_the_name_of_an_import_prevents_no_start(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".import-mine")
    with SessionManager(tmp_path) as manager:
        assert manager.create_session(SessionCreationOptions(model="m"))
