"""A session file that an editor truncates and then writes is not treated as damaged."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, StorageBusy
from mochi_server.sessions import FileSessionStore, SessionQuery
from mochi_server.storage.files.backend import MIN_DAMAGED_SECONDS
from tests.sessions.samples import appended, file_of, stored_session, user


async def test_read_waits_for_a_file_that_is_being_written(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    path = file_of(sessions_dir, session.session_id)
    content = path.read_bytes()
    path.write_bytes(b"")
    reading = asyncio.ensure_future(files.load(session.session_id))
    changing = asyncio.ensure_future(appended(files, session.session_id, [user("Hello")]))
    await files.list(SessionQuery())
    path.write_bytes(content)
    assert (await reading).session_id == session.session_id
    assert (await changing).messages[-1]["content"] == "Hello"
    assert not list(sessions_dir.glob("*.corrupt-*"))


async def test_list_keeps_the_entry_of_a_file_being_written(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    path = file_of(sessions_dir, session.session_id)
    before = await files.list(SessionQuery())
    content = path.read_bytes()
    path.write_bytes(b"")
    during = [await files.list(SessionQuery()) for _ in range(2)]
    path.write_bytes(content.replace(b"qwen3:14b", b"qwen3:32b"))
    after = await files.list(SessionQuery())
    assert [page.entries for page in during] == [before.entries] * 2
    assert [entry["model"] for entry in after.entries] == ["qwen3:32b"]


async def test_unreadable_file_is_busy_at_first_and_then_set_aside(sessions_dir: Path) -> None:
    store = FileSessionStore(sessions_dir, edit_wait_seconds=0)
    session = await stored_session(store)
    path = file_of(sessions_dir, session.session_id)
    path.write_bytes(b"{")
    with pytest.raises(StorageBusy):
        await store.load(session.session_id)
    with pytest.raises(StorageBusy):
        await store.patch(session.session_id, {"title": "x"})
    assert path.read_bytes() == b"{"
    past = time.time() - MIN_DAMAGED_SECONDS
    os.utime(path, (past, past))
    with pytest.raises(SessionNotFound):
        await store.load(session.session_id)
    assert not path.exists()
    await store.aclose()


async def test_unreadable_file_from_the_future_is_busy_at_first_and_then_set_aside(
    sessions_dir: Path,
) -> None:
    store = FileSessionStore(sessions_dir, edit_wait_seconds=0)
    patient_store = FileSessionStore(sessions_dir, edit_wait_seconds=60)
    session = await stored_session(store)
    path = file_of(sessions_dir, session.session_id)
    path.write_bytes(b"{")
    future = time.time() + 3600
    os.utime(path, (future, future))
    with pytest.raises(StorageBusy):
        await store.load(session.session_id)
    assert path.read_bytes() == b"{"
    with pytest.raises(SessionNotFound):
        await patient_store.load(session.session_id)
    assert not path.exists()
    await patient_store.aclose()
    await store.aclose()
