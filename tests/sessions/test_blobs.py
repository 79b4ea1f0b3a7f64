"""The images beside the sessions: what a crash, another process, a damaged file and a failing disk make of them."""

import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mochi_server.errors import BlobNotFound, SessionNotFound, StorageFailed
from mochi_server.sessions import FileSessionStore, Image, SessionManager
from mochi_server.sessions.directory import SessionDirectory
from mochi_server.sessions.session import user_message
from tests.sessions.processes import child
from tests.sessions.samples import file_of, new_session, read_count, said
from tests.support.images import GIF, KINDS, PNG

SHOWN = Image.of(PNG)
ROUNDS = 40


def show(directory: SessionDirectory, image: Image = SHOWN) -> str:
    """A new session in which an image is shown."""
    session = directory.create(new_session())
    directory.append(session.session_id, [user_message("see", [image])], images=[image])
    return session.session_id


def blobs(sessions_dir: Path) -> set[str]:
    return {path.name for path in (sessions_dir / "blobs").iterdir()}


@pytest.fixture
def directory(sessions_dir: Path) -> SessionDirectory:
    return SessionDirectory(sessions_dir)


async def test_what_a_crash_has_left_is_swept_at_the_start_and_nothing_else(
    directory: SessionDirectory, sessions_dir: Path
) -> None:
    show(directory)
    folder = sessions_dir / "blobs"
    for name in (Image.of(GIF).sha256, f".{'0' * 64}.1234.tmp", "mine.txt"):
        (folder / name).write_bytes(GIF)

    store = FileSessionStore(sessions_dir)
    await store.open()
    await store.aclose()

    assert blobs(sessions_dir) == {SHOWN.sha256, "mine.txt"}


def test_what_another_change_leaves_is_swept_with_the_next(directory: SessionDirectory, sessions_dir: Path) -> None:
    (sessions_dir / "blobs").mkdir(parents=True)
    (sessions_dir / "blobs" / Image.of(GIF).sha256).write_bytes(GIF)
    directory.delete(show(directory))
    assert blobs(sessions_dir) == set()


def test_a_session_put_there_by_hand_keeps_its_image(directory: SessionDirectory, sessions_dir: Path) -> None:
    session_id = show(directory)
    text = file_of(sessions_dir, session_id).read_text()
    file_of(sessions_dir, "00000000aa").write_text(text.replace('"sha256":"', '"sha256" : "'))
    directory.delete(session_id)
    assert directory.load_image(SHOWN.sha256) == PNG


def test_a_damaged_session_keeps_its_image_for_whoever_mends_it(
    directory: SessionDirectory, sessions_dir: Path
) -> None:
    damaged, other = show(directory), show(directory)
    path = file_of(sessions_dir, damaged)
    path.write_bytes(path.read_bytes()[:-5])
    os.utime(path, (0, 0))  # an editor would have finished by now
    with pytest.raises(SessionNotFound):
        directory.load(damaged)
    directory.delete(other)
    assert directory.load_image(SHOWN.sha256) == PNG


def test_where_a_session_cannot_be_read_no_image_goes(
    directory: SessionDirectory, sessions_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable, other = show(directory), show(directory)
    open_file = os.open

    def failing(path: str | Path, *arguments: int, **keywords: int) -> int:
        if str(path).endswith(f"{unreadable}.json"):
            raise OSError(5, "Input/output error")
        return open_file(path, *arguments, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", failing)
        directory.delete(other)
    assert "stay for now: Input/output error" in caplog.text
    assert directory.load_image(SHOWN.sha256) == PNG
    directory.delete(unreadable)
    assert blobs(sessions_dir) == set()


def test_an_image_that_was_cut_short_is_written_again(directory: SessionDirectory, sessions_dir: Path) -> None:
    show(directory)
    (sessions_dir / "blobs" / SHOWN.sha256).write_bytes(PNG[:20])
    show(directory)
    assert directory.load_image(SHOWN.sha256) == PNG


def test_without_room_for_the_image_nothing_is_said(directory: SessionDirectory, sessions_dir: Path) -> None:
    session = directory.create(new_session())
    (sessions_dir / "blobs").write_text("no folder")
    with pytest.raises(StorageFailed):
        directory.append(session.session_id, [user_message("see", [SHOWN])], images=[SHOWN])
    assert directory.load(session.session_id).messages == []


def test_sessions_without_images_are_neither_read_nor_locked_for_them(
    directory: SessionDirectory, sessions_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (directory.create(new_session()).session_id for _ in range(2))
    directory.append(one, [said("a")])
    reads = read_count(monkeypatch)
    directory.delete(two)
    assert reads() == 0
    assert not (sessions_dir / "blobs").exists()
    assert not (sessions_dir / ".locks" / "blobs.lock").exists()


def test_only_changed_sessions_are_read_for_a_second_sweep(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = [show(directory) for _ in range(2)]
    for _ in range(20):
        show(directory)
    directory.delete(doomed[0])
    reads = read_count(monkeypatch)
    directory.delete(doomed[1])
    assert reads() <= 2


def test_the_manager_sweeps_as_well(sessions_dir: Path) -> None:
    session_id = show(SessionDirectory(sessions_dir))
    SessionManager(sessions_dir).delete_session(session_id)
    assert blobs(sessions_dir) == set()


def come_and_go(say: Connection, sessions_dir: Path, rounds: int) -> None:
    """Sessions that show the image, look whether it is there, and go."""
    directory = SessionDirectory(sessions_dir)
    for _ in range(rounds):
        session_id = show(directory)
        try:
            say.send(directory.load_image(SHOWN.sha256) == PNG)
        except BlobNotFound:
            say.send(False)
        directory.delete(session_id)


def test_processes_that_share_an_image_never_take_it_from_each_other(sessions_dir: Path) -> None:
    with child(come_and_go, sessions_dir, ROUNDS) as one, child(come_and_go, sessions_dir, ROUNDS) as two:
        assert [*one.rest(), *two.rest()] == [True] * 2 * ROUNDS
    assert blobs(sessions_dir) == set()


@pytest.mark.parametrize("media_type", KINDS)
def test_an_image_is_known_by_its_first_bytes(media_type: str) -> None:
    assert Image.of(KINDS[media_type]).media_type == media_type


@pytest.mark.parametrize("data", [b"", b"BM", b"BMW is a brand of cars.", b"RIFF\0\0\0\0WAVE", b"<svg/>", b"\x89PNG"])
def test_anything_else_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an image"):
        Image.of(data)
