"""Webhooks and runs in the files of the server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_server.errors import StorageUnavailable
from mochi_server.sessions import Change, FileSessionStore
from mochi_stub import StubServer
from tests.api.test_webhooks import SHORT_PAUSES, TOOL, resolve
from tests.support.cases import cases
from tests.support.instructions import calls, instruct
from tests.support.server import RunningServer
from tests.support.stores import with_store
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def own_stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub


def test_call_of_a_changed_tool_is_reported_again(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    write_tools(tmp_path, TOOL)
    with RunningServer(tmp_path, own_stub.url, **receiver.settings, park_seconds=0) as server:
        api = server.client
        session_id = api.create_session("mochi", tool_settings={"tools": ["one"]})["session_id"]
        path = f"/chat/{session_id}"
        api.ok(
            api.http.post(path, json={"message": instruct(calls("one")), "background": True}), 202
        )
        receiver.wait(1)
        until(lambda: not server.app.state.services.turns.table.running())  # the turn is parked
        write_tools(tmp_path, TOOL.replace("one()", "one(text: str = '')"))
        api.ok(api.http.post("/tools/reload"))
        (call,) = api.ok(api.http.get(f"{path}/confirmations"))["confirmations"]
        decision = {"confirmation_id": call["confirmation_id"], "approved": True}
        assert api.http.post(f"{path}/confirm-tool", json=decision).status_code == 409
        assert [event["type"] for event in receiver.wait(2)] == ["run.waiting_for_approval"] * 2


class FailingStore(FileSessionStore):
    """Store whose first attempt to store a turn without messages fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failed: list[str] = []

    async def write(self, session_id: str, change: Change) -> int:
        if not self.failed and not change.messages:
            self.failed.append(session_id)
            raise StorageUnavailable("write", OSError(5, "I/O"))
        return await super().write(session_id, change)


def test_changed_call_is_reported_although_its_run_is_stored_late(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    """The first event of the run, which has the confirmation, waits for the second attempt to store
    the run.
    """
    write_tools(tmp_path, TOOL)
    settings: dict[str, Any] = {"park_seconds": 0, "summarization_enabled": False}
    with RunningServer(tmp_path, own_stub.url, **settings) as server:
        session_id = server.client.create_session("mochi", tool_settings={"tools": ["one"]})[
            "session_id"
        ]
        body = {"message": instruct(calls("one")), "background": True}
        server.client.ok(server.client.http.post(f"/chat/{session_id}", json=body), 202)
        until(lambda: not server.app.state.services.turns.table.running())
    file = tmp_path / "chat_sessions" / f"{session_id}.json"
    session = orjson.loads(file.read_bytes())
    turn = session["metadata"]["turn"]  # killed after the decision
    turn |= {"state": "running", "approval": turn["approval"] | {"decision": {"approved": True}}}
    file.write_bytes(orjson.dumps(session))
    write_tools(tmp_path, TOOL.replace("one()", "one(times: int = 1)"))
    settings |= receiver.settings
    with RunningServer(tmp_path, own_stub.url, with_store(FailingStore), **settings) as server:
        assert receiver.wait(1)[0]["type"] == "run.waiting_for_approval"
        assert server.app.state.services.stores.chats.failed == [session_id]


@cases(
    "damaged",
    [
        5,
        {},
        {"webhook_id": 1, "session_id": "", "body": None},
        {"webhook_id": "a\r\nhost: x", "session_id": "0", "body": "{}"},
    ],
)
def test_damaged_webhook_blocks_no_other(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver, damaged: Any
) -> None:
    with RunningServer(tmp_path, own_stub.url) as server:
        session_id = server.client.create_session("mochi")["session_id"]
    file = tmp_path / "chat_sessions" / f"{session_id}.json"
    session = orjson.loads(file.read_bytes())
    session["metadata"]["notices"] = [damaged]
    file.write_bytes(orjson.dumps(session))
    settings = {**receiver.settings, "summarization_enabled": False}
    with RunningServer(tmp_path, own_stub.url, SHORT_PAUSES, **settings) as server:
        server.client.send_message(server.client.create_session("mochi")["session_id"], "Hi")
        assert receiver.wait(1)[0]["type"] == "run.completed"


def test_damaged_webhook_prevents_no_removal(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    with RunningServer(tmp_path, own_stub.url) as server:
        session_id = server.client.create_session("mochi")["session_id"]
    file = tmp_path / "chat_sessions" / f"{session_id}.json"
    session = orjson.loads(file.read_bytes())
    replaced = {"webhook_id": "msg_1", "session_id": session_id, "body": "{}", "is_request": True}
    kept = {"webhook_id": "msg_2", "session_id": session_id, "body": "{}"}
    session["metadata"]["notices"] = [5, replaced, kept]
    file.write_bytes(orjson.dumps(session))
    settings = {**receiver.settings, "summarization_enabled": False}
    with RunningServer(tmp_path, own_stub.url, SHORT_PAUSES, **settings) as server:
        assert receiver.wait(1) == [{}]
        until(lambda: b"notices" not in file.read_bytes())
        server.client.send_message(session_id, "Hi")
        assert receiver.wait(2)[1]["type"] == "run.completed"
    assert len(receiver.received) == 2


def test_delivery_is_no_change_of_the_session(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    receiver.answering.clear()
    with RunningServer(
        tmp_path, own_stub.url, **receiver.settings, summarization_enabled=False
    ) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hi")
        receiver.wait(1)
        before = server.client.session(session_id)
        file = tmp_path / "chat_sessions" / f"{session_id}.json"
        assert b"notices" in file.read_bytes()
        receiver.answering.set()
        until(lambda: b"notices" not in file.read_bytes())
        assert server.client.session(session_id) == before
