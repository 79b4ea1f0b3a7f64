"""A lock file that another process holds delays only the requests that need it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import pytest

from mochi_server.chat.conversation import StorageRetry
from mochi_server.errors import StorageBusy
from mochi_server.sessions import FileSessionStore, Image, SessionQuery
from mochi_server.storage.files.locks import SLOTS
from mochi_server.util.platform import exclusive_lock
from mochi_stub import StubServer
from tests.sessions.samples import appended, new_session, user
from tests.support.api import Api, error_of
from tests.support.images import PNG
from tests.support.server import RunningServer
from tests.support.waiting import until


def hold_lock(sessions_dir: Path, session_id: str) -> AbstractContextManager[None]:
    """Hold the lock of a session as another process would."""
    return exclusive_lock(sessions_dir / ".locks" / f"{int(session_id, 16) % SLOTS:02d}.lock", 1)


def other_session(api: Api, session_id: str) -> str:
    while True:
        other: str = api.create_session("mochi")["session_id"]
        if int(other, 16) % SLOTS != int(session_id, 16) % SLOTS:
            return other


def test_stuck_lock_delays_no_other_request(private_api: Api, tmp_path: Path) -> None:
    api = private_api
    session_id = api.create_session("mochi")["session_id"]
    other = other_session(api, session_id)
    with ThreadPoolExecutor(8) as threads:
        with hold_lock(tmp_path / "chat_sessions", session_id):
            waiting = [
                threads.submit(api.http.patch, f"/sessions/{session_id}", json={"title": f"{n}"}) for n in range(8)
            ]
            assert len(api.ok(api.http.get("/sessions"))["sessions"]) >= 2
            assert api.ok(api.http.patch(f"/sessions/{other}", json={"title": "other"}))["title"] == "other"
            api.create_session("mochi")
            api.send_message(other, "Hello!")
            assert not any(patch.done() for patch in waiting)
        assert {patch.result().status_code for patch in waiting} == {200}


def test_stuck_lock_is_an_error_after_the_wait(private_stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, private_stub.url, storage_wait_seconds=0.1) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with hold_lock(tmp_path / "chat_sessions", session_id):
            refused = api.http.patch(f"/sessions/{session_id}", json={"title": "stuck"})
        assert error_of(refused) == (503, "STORAGE_BUSY")
        assert "MOCHI_STORAGE_WAIT_SECONDS" in refused.json()["error"]["message"]
        assert api.ok(api.http.patch(f"/sessions/{session_id}", json={"title": "free"}))["title"] == "free"


def test_missing_session_needs_no_lock(private_api: Api, tmp_path: Path) -> None:
    api = private_api
    session_id = api.create_session("mochi")["session_id"]
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    with hold_lock(tmp_path / "chat_sessions", session_id):
        for response in (
            api.http.patch(f"/sessions/{session_id}", json={"title": "missing"}),
            api.http.delete(f"/sessions/{session_id}"),
            api.http.post(f"/chat/{session_id}", json={"message": "Hello!"}),
        ):
            assert error_of(response) == (404, "SESSION_NOT_FOUND")


async def test_write_waits_for_a_lock_that_is_released(tmp_path: Path) -> None:
    store = FileSessionStore(tmp_path)
    session_id = (await store.create(new_session())).session_id
    with hold_lock(tmp_path, session_id):
        writing = asyncio.ensure_future(appended(store, session_id, [user("Hello")]))
        reading = [store.load(session_id) for _ in range(8)]
        await asyncio.gather(*reading, store.list(SessionQuery()))
        assert not writing.done()
    assert [message["content"] for message in (await writing).messages] == ["Hello"]
    await store.aclose()


async def test_cancelled_write_that_waits_for_a_lock_is_finished(tmp_path: Path) -> None:
    store = FileSessionStore(tmp_path)
    session_id = (await store.create(new_session())).session_id
    with hold_lock(tmp_path, session_id):
        writing = asyncio.ensure_future(store.append(session_id, [user("Hello")]))
        await asyncio.sleep(0)
        writing.cancel()
        await store.list(SessionQuery())
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert len((await store.load(session_id)).messages) == 1
    await store.aclose()


async def test_new_session_avoids_a_stuck_lock(tmp_path: Path) -> None:
    store = FileSessionStore(tmp_path, wait_seconds=0)
    session = await store.create(new_session())
    session.metadata.session_id = f"{int(session.session_id, 16) ^ SLOTS:010x}"
    with hold_lock(tmp_path, session.session_id):
        created = await store.create(session)
        with pytest.raises(StorageBusy):
            await store.put(session)
    assert created.session_id != session.session_id
    await store.aclose()


async def test_turn_that_cannot_end_stays_in_its_log(tmp_path: Path) -> None:
    store = FileSessionStore(tmp_path, wait_seconds=0)
    session_id = (await store.create(new_session())).session_id
    async with store.hold(session_id, run_id="r"):
        await store.append(session_id, [user("Hello")])
        await store.append(session_id, [user("more")])
        lock = hold_lock(tmp_path, session_id)
        lock.__enter__()
    lock.__exit__(None, None, None)
    async with store.hold(session_id, run_id="s"):
        assert len((await store.load(session_id)).messages) == 2
    assert not list(tmp_path.glob("*.turn.jsonl"))
    await store.aclose()


@pytest.mark.parametrize("is_ollama_running", [True, False])
def test_message_that_cannot_be_stored_is_refused_after_the_wait(
    private_stub: StubServer, tmp_path: Path, is_ollama_running: bool
) -> None:
    with RunningServer(tmp_path, private_stub.url, storage_wait_seconds=0.5) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        if not is_ollama_running:
            private_stub.stop()
        with hold_lock(tmp_path / "chat_sessions", session_id):
            refused = api.http.post(f"/chat/{session_id}", json={"message": "Hello"}, timeout=5)
        assert error_of(refused) == (503, "STORAGE_BUSY")
        assert api.messages(session_id) == []


def test_stopped_turn_reports_a_message_that_cannot_be_stored(private_stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, private_stub.url, storage_wait_seconds=1) as server, ThreadPoolExecutor() as threads:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with hold_lock(tmp_path / "chat_sessions", session_id):
            sent = threads.submit(api.stream_message, session_id, "Hello")
            until(lambda: api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "running", 5)
            api.http.post(f"/chat/{session_id}/stop", timeout=5)
        assert [event.data["code"] for event in sent.result() if event.type == "error"] == ["STORAGE_BUSY"]


async def test_turn_retries_after_the_wait_for_a_stuck_lock(tmp_path: Path) -> None:
    store = FileSessionStore(tmp_path, wait_seconds=0)
    session_id = (await store.create(new_session())).session_id
    lock = hold_lock(tmp_path, session_id)

    async def append() -> None:
        try:
            await store.append(session_id, [user("Hello")])
        except StorageBusy:
            lock.__exit__(None, None, None)
            raise

    lock.__enter__()
    await StorageRetry().run(append)
    assert len((await store.load(session_id)).messages) == 1
    await store.aclose()


async def test_images_are_swept_when_their_lock_is_free(tmp_path: Path) -> None:
    store, image = FileSessionStore(tmp_path), Image.of(PNG)
    session = new_session()
    session.messages.append({**user("Look"), "images": [image.reference]})
    session_id = (await store.create(session, images=[image])).session_id
    with exclusive_lock(tmp_path / ".locks" / "blobs.lock", 1):
        deleting = asyncio.ensure_future(store.delete(session_id))
        while (await store.list(SessionQuery())).total:
            pass
        assert (tmp_path / "blobs" / image.sha256).exists()
        await deleting
    with anyio.fail_after(5):
        while (tmp_path / "blobs" / image.sha256).exists():
            await store.list(SessionQuery())
    await store.aclose()
