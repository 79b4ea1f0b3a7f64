"""Import of many sessions: all are stored or none, whatever fails."""

import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mochi_server.errors import ShuttingDown, StorageFailed
from mochi_server.sessions import (
    ChatSession,
    FileSessionStore,
    Image,
    MemorySessionStore,
    SessionQuery,
    SessionStore,
)
from mochi_server.sessions.session import user_message
from mochi_server.sessions.store import NewSession
from mochi_server.storage.files.backend import SessionDirectory
from tests.sessions.processes import child
from tests.sessions.samples import new_session
from tests.support.images import PNG

SHOWN = Image.of(PNG)


def new_sessions(count: int) -> list[NewSession]:
    """Return sessions with one message each; the first has an image."""
    sessions = [new_session() for _ in range(count)]
    for session in sessions:
        images = [SHOWN] if session is sessions[0] else []
        session.messages.append(user_message("Hello", images))
    return [(session, [SHOWN] if session is sessions[0] else []) for session in sessions]


def ids_of(sessions: Sequence[ChatSession]) -> list[str]:
    return [session.session_id for session in sessions]


async def test_all_sessions_are_stored_in_their_order(store: SessionStore) -> None:
    sessions = new_sessions(5)
    stored = await store.create_all(sessions)
    assert ids_of(stored) == [session.session_id for session, _ in sessions]
    assert [await store.load(session.session_id) for session in stored] == list(stored)
    listed = {entry["session_id"]: entry for entry in (await store.list(SessionQuery())).entries}
    assert listed == {session.session_id: session.summary_object() for session in stored}
    assert await store.load_image(SHOWN.sha256) == PNG


async def test_taken_ids_are_replaced(store: SessionStore) -> None:
    first = await store.create(new_session())
    sessions = new_sessions(3)
    for session, _ in sessions:
        session.metadata.session_id = first.session_id
    stored = await store.create_all(sessions)
    assert len({first.session_id, *ids_of(stored)}) == 4


@pytest.mark.parametrize("system_prompt", [None, "Be brief."])
async def test_session_without_conversation_keeps_its_times(
    store: SessionStore, system_prompt: str | None
) -> None:
    session = new_session(system_prompt=system_prompt)
    session.metadata.created_at = "2024-05-06T07:08:09.123456+00:00"
    session.metadata.updated_at = "2024-05-07T07:08:09.123456+00:00"
    (stored,) = await store.create_all([(session, [])])
    assert stored == await store.load(session.session_id) == session


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999", "9999-12-31T23:00:00-14:00"]
)
async def test_sessions_with_extreme_times_are_stored(store: SessionStore, time: str) -> None:
    (session, images), *_ = new_sessions(1)
    session.metadata.updated_at = time
    (stored,) = await store.create_all([(session, images)])
    assert (await store.list(SessionQuery())).entries[0]["session_id"] == stored.session_id


async def test_interrupted_import_leaves_no_files(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    await interrupted_import(files)
    assert [path.name for path in sessions_dir.iterdir() if "import" in path.name] == []
    assert list((sessions_dir / "blobs").iterdir()) == []


async def test_interrupted_import_stores_nothing_in_any_store(store: SessionStore) -> None:
    if not isinstance(
        store, MemorySessionStore
    ):  # the memory store has no step that a check could interrupt
        await interrupted_import(store)


async def interrupted_import(store: SessionStore) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise ShuttingDown

    with pytest.raises(ShuttingDown):
        await store.create_all(new_sessions(5), check=check)
    assert (await store.list(SessionQuery())).total == 0


def import_slowly(connection: Connection, directory: Path, count: int) -> None:
    """Import sessions and report each before it is written."""
    SessionDirectory(directory).create_all(
        new_sessions(count), check=lambda: connection.send("next")
    )


@pytest.mark.slow
@pytest.mark.parametrize("written", [1, 4])
async def test_killed_import_leaves_nothing(sessions_dir: Path, written: int) -> None:
    with child(import_slowly, sessions_dir, 300) as importer:
        for _ in range(written):
            importer.next()
        importer.process.kill()
        importer.rest()
    store = FileSessionStore(sessions_dir)
    await store.open()
    assert (await store.list(SessionQuery())).total == 0
    assert not list(sessions_dir.glob(".import-*"))
    await store.aclose()


def publish_until_killed(
    connection: Connection, directory: Path, count: int, kill_after: int
) -> None:
    """Import sessions, and kill the process after `moved` files have been published."""
    rename, moved = Path.rename, []

    def count_and_rename(path: Path, target: Path) -> Path:
        if path.suffix == ".json":
            moved.append(path)
        if len(moved) > kill_after:
            signal.raise_signal(signal.SIGKILL)
        return rename(path, target)

    Path.rename = count_and_rename  # type: ignore[method-assign, assignment]  # the process has no other purpose
    stored = SessionDirectory(directory).create_all(new_sessions(count), check=lambda: None)
    connection.send(len(stored))


@pytest.mark.slow
@pytest.mark.parametrize("moved", [0, 1, 5])
async def test_import_killed_during_publication_is_completed(
    sessions_dir: Path, moved: int
) -> None:
    with child(publish_until_killed, sessions_dir, 6, moved) as importer:
        assert importer.rest() == []
    other = SessionDirectory(sessions_dir)
    other.sweep()
    store = FileSessionStore(sessions_dir)
    await store.open()
    assert (await store.list(SessionQuery())).total == 6
    assert await store.load_image(SHOWN.sha256) == PNG
    assert not list(sessions_dir.glob(".import-*"))
    await store.aclose()


@pytest.mark.slow
async def test_next_import_completes_a_killed_import(sessions_dir: Path) -> None:
    with child(publish_until_killed, sessions_dir, 6, 2) as importer:
        importer.rest()
    store = FileSessionStore(sessions_dir)
    await store.create_all(new_sessions(2))
    assert (await store.list(SessionQuery())).total == 8
    await store.aclose()


async def test_import_that_cannot_be_published_is_undone(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    obstacle: list[Path] = []

    def obstruct() -> None:
        """Before the publication, make a directory with the name of the fourth file that is
        moved.
        """
        staged = [path for staging in sessions_dir.glob(".import-*") for path in staging.iterdir()]
        if len(staged) == 6:
            obstacle.append(sessions_dir / staged[3].name)
            obstacle[-1].mkdir()

    with pytest.raises(StorageFailed):
        await files.create_all(new_sessions(6), check=obstruct)
    assert (await files.list(SessionQuery())).total == 0
    assert list(sessions_dir.glob("*.json")) == obstacle
    assert not list(sessions_dir.glob(".import-*"))
    assert list((sessions_dir / "blobs").iterdir()) == []
