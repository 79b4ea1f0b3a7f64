"""Runs during the writes of a server, with corrupt files, and after a crash."""

import asyncio
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mochi_server.sessions import Change, ChatSession, FileSessionStore, SessionManager
from mochi_stub import Failure, Reply, StubServer
from tests.support.api import Api
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct
from tests.support.server import RunningServer
from tests.support.stores import with_store
from tests.support.tools import write_tools
from tests.support.waiting import until

TOOLS = """
def one() -> str:
    "One."
    return "1"

def two() -> str:
    "Two."
    return "2"

__all__ = ["one", "two"]
"""


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


class SlowStore(FileSessionStore):
    """Store that waits before it stores an answer, while `is_slow` is true, until `may_store` is
    set.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_slow = False
        self.is_storing, self.may_store = threading.Event(), threading.Event()

    async def write(self, session_id: str, change: Change) -> int:
        if self.is_slow and change.messages and change.messages[-1]["role"] == "assistant":
            self.is_storing.set()
            await asyncio.to_thread(self.may_store.wait, 10)
        return await super().write(session_id, change)


@pytest.mark.parametrize("regenerates", [False, True])
def test_stop_during_the_last_write_is_too_late(
    stub: StubServer, tmp_path: Path, regenerates: bool
) -> None:
    with RunningServer(tmp_path, stub.url, with_store(SlowStore)) as server:
        stop_during_the_last_write(server, regenerates)


def stop_during_the_last_write(server: RunningServer, regenerates: bool) -> None:
    api, other = server.api(), server.api()
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello")
    runs, store = server.app.state.services.turns, server.app.state.services.stores.chats
    store.is_slow = True
    with (
        ThreadPoolExecutor() as pool,
        api.open_stream(session_id, None if regenerates else "Again") as events,
    ):
        assert store.is_storing.wait(60)
        stopping = pool.submit(other.http.post, f"/chat/{session_id}/stop")
        until(lambda: runs.table.find(session_id).control.is_stopped)
        store.may_store.set()
        *_, complete, last = events
        assert stopping.result().json()["state"] == "completed"
    answer = api.messages(session_id)[-1]
    assert (complete.type, last.type) == ("message_complete", "done")
    assert complete.data["message_id"] == answer["message_id"]
    assert "interrupted" not in answer
    assert api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "completed"


class LateStore(FileSessionStore):
    """Store that waits before it loads a session, while `is_late` is true, until `may_load`
    is set.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_late = False
        self.is_loading, self.may_load = threading.Event(), threading.Event()

    async def load(self, session_id: str) -> ChatSession:
        if self.is_late:
            self.is_loading.set()
            await asyncio.to_thread(self.may_load.wait, 60)
        return await super().load(session_id)


def test_message_that_begins_to_wait_during_a_shutdown_is_refused(
    tmp_path: Path, holding: GatedStub
) -> None:
    with RunningServer(
        tmp_path, holding.stub.url, with_store(LateStore), shutdown_grace_seconds=5
    ) as server:
        api, other = server.api(), server.api()
        session_id = api.create_session("mochi")["session_id"]
        runs, store = server.app.state.services.turns, server.app.state.services.stores.chats
        body, key = {"message": "Hi", "if_busy": "wait"}, {"Idempotency-Key": "k"}
        with ThreadPoolExecutor() as pool, api.open_stream(session_id, "hold") as events:
            next(events)
            store.is_late = True
            waiting = pool.submit(other.http.post, f"/chat/{session_id}", json=body, headers=key)
            assert store.is_loading.wait(60)
            stopping = pool.submit(server.stop)
            until(runs.shutdown.is_set)
            store.may_load.set()
            assert waiting.result().json()["error"]["code"] == "SHUTTING_DOWN"
            assert runs.table.running(), "the message waited for the end of the turn"
            holding.gate.open()
            assert list(events)[-1].type == "done"
            stopping.result()


def test_turn_with_corrupt_file_can_be_stopped(
    api: Api, server: RunningServer, holding: GatedStub
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        next(events)
        file = server.settings.resolved_sessions_dir / f"{session_id}.json"
        file.write_text("{")
        os.utime(
            file, (0, 0)
        )  # older than the time after which a file counts as completely written
        assert api.ok(api.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
    assert len(holding.chats("cancelled")) == 1


def test_crash_recovery_keeps_the_open_calls_of_a_turn_that_waits(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi", tool_settings={"tools": ["one", "two"]})[
            "session_id"
        ]
        with api.open_stream(session_id, instruct(calls("one", "two"))) as events:
            next(event for event in events if event.type == "tool_call_confirmation_required")
            log = tmp_path / "chat_sessions" / f".{session_id}.turn.jsonl"
            until(lambda: b'"partial"' in log.read_bytes())
            shutil.copytree(log.parent, tmp_path / "crashed")
            assert [message["role"] for message in api.messages(session_id)] == [
                "user",
                "assistant",
            ]
    messages = SessionManager(tmp_path / "crashed").load_session(session_id).messages
    assert [message["role"] for message in messages] == ["user", "assistant"]


def test_repetition_after_a_failed_regeneration_can_be_resumed(tmp_path: Path) -> None:
    replies = iter([Reply.of("One."), Reply([Failure("out of order", 500)])])
    with (
        StubServer(speed=0, resolve=lambda _: next(replies)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        path = f"/chat/{session_id}"
        message, key = {"message": "Hi"}, {"Idempotency-Key": "5f2c"}
        api.ok(api.http.post(path, json=message, headers=key))
        assert api.http.post(path, json={}).status_code == 502
        server.app.state.services.turns.table.drop_session(session_id)
        again = {**message, "background": True}
        run_id = api.ok(api.http.post(path, json=again, headers=key), 202)["run_id"]
        stream = api.http.get(f"{path}/stream", headers={"Last-Event-ID": f"{run_id}:0"})
    assert "One." in stream.text
