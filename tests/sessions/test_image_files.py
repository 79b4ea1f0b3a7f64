"""Image files beside the sessions after crashes, with several threads, damaged files and full
disks.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, StorageFailed
from mochi_server.sessions import FileSessionStore, Image, SessionManager
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import user_message
from mochi_server.storage.files.backend import SessionDirectory
from tests.faults.rounds import repeated
from tests.sessions.samples import file_of, new_session, read_count, user
from tests.support.cases import cases
from tests.support.images import GIF, KINDS, PNG

SHOWN = Image.of(PNG)


def session_with_image(directory: SessionDirectory, image: Image = SHOWN) -> str:
    """Create a session with a message that has an image and return its id."""
    session = directory.create(new_session())
    directory.write(session.session_id, Change([user_message("see", [image])], images=[image]))
    return session.session_id


def blobs(sessions_dir: Path) -> set[str]:
    return {path.name for path in (sessions_dir / "blobs").iterdir()}


@pytest.fixture
def directory(locked_directory: SessionDirectory) -> SessionDirectory:
    return locked_directory


async def test_start_sweeps_only_images_left_by_a_crash(
    directory: SessionDirectory, sessions_dir: Path
) -> None:
    session_with_image(directory)
    folder = sessions_dir / "blobs"
    for name in (Image.of(GIF).sha256, f".{'0' * 64}.1234.tmp", "mine.txt"):
        (folder / name).write_bytes(GIF)

    store = FileSessionStore(sessions_dir)
    await store.open()
    await store.aclose()

    assert blobs(sessions_dir) == {SHOWN.sha256, "mine.txt"}


def test_unused_image_is_swept_by_the_next_change(
    directory: SessionDirectory, sessions_dir: Path
) -> None:
    (sessions_dir / "blobs").mkdir(parents=True)
    (sessions_dir / "blobs" / Image.of(GIF).sha256).write_bytes(GIF)
    directory.delete(session_with_image(directory))
    assert blobs(sessions_dir) == set()


@pytest.mark.parametrize("name", ["0" * 64, "a.tmp"])
def test_directory_among_the_images_prevents_no_sweep(
    directory: SessionDirectory, sessions_dir: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (sessions_dir / "blobs" / name).mkdir(parents=True)
    directory.delete(session_with_image(directory))
    assert blobs(sessions_dir) == {name}
    assert not caplog.records


def test_session_copied_by_hand_keeps_its_image(
    directory: SessionDirectory, sessions_dir: Path
) -> None:
    session_id = session_with_image(directory)
    text = file_of(sessions_dir, session_id).read_text()
    file_of(sessions_dir, "00000000aa").write_text(text.replace('"sha256":"', '"sha256" : "'))
    directory.delete(session_id)
    assert directory.load_image(SHOWN.sha256) == PNG


def test_damaged_session_keeps_its_image(directory: SessionDirectory, sessions_dir: Path) -> None:
    damaged, other = session_with_image(directory), session_with_image(directory)
    path = file_of(sessions_dir, damaged)
    path.write_bytes(path.read_bytes()[:-5])
    os.utime(path, (0, 0))  # older than the time after which a file counts as completely written
    with pytest.raises(SessionNotFound):
        directory.load(damaged)
    directory.delete(other)
    assert directory.load_image(SHOWN.sha256) == PNG


def test_unreadable_session_prevents_deletion_of_images(
    directory: SessionDirectory,
    sessions_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unreadable, other = session_with_image(directory), session_with_image(directory)
    open_file = os.open

    def failing(path: str | Path, *arguments: int, **keywords: int) -> int:
        if str(path).endswith(f"{unreadable}.json"):
            raise OSError(5, "Input/output error")
        return open_file(path, *arguments, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing)
        directory.delete(other)
    assert "unused images not removed, will retry: Input/output error" in caplog.text
    assert directory.load_image(SHOWN.sha256) == PNG
    directory.delete(unreadable)
    assert blobs(sessions_dir) == set()


def test_truncated_image_is_written_again(directory: SessionDirectory, sessions_dir: Path) -> None:
    session_with_image(directory)
    (sessions_dir / "blobs" / SHOWN.sha256).write_bytes(PNG[:20])
    session_with_image(directory)
    assert directory.load_image(SHOWN.sha256) == PNG


def test_message_is_not_stored_without_space_for_its_image(
    directory: SessionDirectory, sessions_dir: Path
) -> None:
    session = directory.create(new_session())
    (sessions_dir / "blobs").write_text("no folder")
    with pytest.raises(StorageFailed):
        directory.write(session.session_id, Change([user_message("see", [SHOWN])], images=[SHOWN]))
    assert directory.load(session.session_id).messages == []


def test_sweep_skips_sessions_without_images(
    directory: SessionDirectory, sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (directory.create(new_session()).session_id for _ in range(2))
    directory.write(one, Change([user("a")]))
    reads = read_count(monkeypatch)
    directory.delete(two)
    assert reads() == 0
    assert not (sessions_dir / "blobs").exists()


def test_second_sweep_reads_only_changed_sessions(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = [session_with_image(directory) for _ in range(2)]
    for _ in range(20):
        session_with_image(directory)
    directory.delete(doomed[0])
    reads = read_count(monkeypatch)
    directory.delete(doomed[1])
    assert reads() <= 2


def test_manager_sweeps_images(directory: SessionDirectory, sessions_dir: Path) -> None:
    session_id = session_with_image(directory)
    SessionManager(sessions_dir).delete_session(session_id)
    assert blobs(sessions_dir) == set()


@repeated(40, once=5)
def test_image_shared_by_threads_is_kept_while_in_use(
    directory: SessionDirectory, sessions_dir: Path, rounds: int
) -> None:
    def create_and_delete_sessions(_: int) -> None:
        for _ in range(rounds):
            session_id = session_with_image(directory)
            assert directory.load_image(SHOWN.sha256) == PNG
            directory.delete(session_id)

    with ThreadPoolExecutor() as threads:
        list(threads.map(create_and_delete_sessions, range(4)))
    assert blobs(sessions_dir) == set()


@cases("media_type", KINDS)
def test_image_type_is_detected_by_first_bytes(media_type: str) -> None:
    assert Image.of(KINDS[media_type]).media_type == media_type


@cases("data", [b"", b"BM", b"BMW is a brand of cars.", b"RIFF\0\0\0\0WAVE", b"<svg/>", b"\x89PNG"])
def test_other_data_is_not_an_image(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an image"):
        Image.of(data)
