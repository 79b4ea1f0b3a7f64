"""Turns that wait for approval are stored with their session, and continue after a restart of the
server.
"""

import asyncio
import inspect
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_server.chat.approvals import ApprovalService
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.event_log import Batch
from mochi_server.chat.limits import RunLimits
from mochi_server.chat.run import Run
from mochi_server.chat.turn_control import ApprovalRequest, TurnControl
from mochi_server.chat.turn_input import TurnInput
from mochi_server.config import MochiServerSettings
from mochi_server.container import Components
from mochi_server.errors import ConfirmationResolved, SessionBusy, StorageFailed
from mochi_server.events import Done
from mochi_server.sessions import Change, ChatSession, FileSessionStore
from mochi_server.sessions.turn import Approval, Decision
from mochi_server.storage.files.store import FileStores
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.schema import make_schema
from mochi_server.tools.toolbox import BoundCall, FindTool, ToolInvocation
from mochi_stub import (
    Gate,
    Model,
    Prompt,
    Reasoning,
    Reply,
    StubServer,
    Text,
    ToolCall,
    ToolCalls,
)
from tests.frontends.chats import Frontend, of_type, read_chunks, response_to, types, user
from tests.support.agents import delegate, nested, notes, work_until, write_agent
from tests.support.api import Api, Event, error_of, read_events
from tests.support.cases import cases
from tests.support.images import PNG, base64_image
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer
from tests.support.stores import with_store
from tests.support.tools import write_tools
from tests.support.versions import full_file
from tests.support.waiting import until
from tests.wild.fake_ollama import MODEL, FakeOllama, call, lines

TOOLS = '''
    from pathlib import Path

    def note(text: str) -> str:
        """Write a note."""
        with (Path(__file__).parent / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return f"Noted {text}."

    def sign(text: str) -> str:
        """Sign a text."""
        return note(text)

    def gone() -> None:
        """Do something that the restarted server cannot do."""

    __all__ = ["note", "sign", "gone"]
'''
CHANGED = TOOLS.replace("def sign(text: str)", 'def sign(text: str, suffix: str = "!")').replace(
    ', "gone"]', "]"
)
A_SECOND_IN_HOURS = 1 / 3600  # also the interval of the search for expired sessions
ASKED = "tool_call_confirmation_required"
PLAN = instruct(calls("note", text="x"), words(2))
WITH_TOOLS = {"tool_settings": {"tools": ["note", "sign", "gone"]}}


def two(*texts: str) -> str:
    """Return a message whose answer calls the tool `note` twice."""
    return instruct(
        {"tool_call": [call for text in texts for call in calls("note", text=text)["tool_call"]]},
        words(2),
    )


def through(agent: str) -> tuple[str, dict[str, Any]]:
    """Return a message whose answer calls an agent that calls its tool `note`, and the settings of
    its session.
    """
    message = nested(delegate(words(1), calls("note", text="x"), words(2), agent=agent), words(3))
    return message, {"agent_settings": {"enabled_agents": [agent]}}


TURNS = {
    "two calls": (two("a", "b"), WITH_TOOLS),
    "remembered": (two("c", "d"), WITH_TOOLS),
    "repeated": (PLAN, WITH_TOOLS),
    "deleted": (PLAN, WITH_TOOLS),
    "followed": (PLAN, WITH_TOOLS),
    "message": (instruct(calls("note", text="message"), words(2)), WITH_TOOLS),
    "expired": (instruct(calls("note", text="expired"), words(2)), WITH_TOOLS),
    "unreadable": (PLAN, WITH_TOOLS),
    "changed tool": (instruct(calls("sign", text="changed"), words(2)), WITH_TOOLS),
    "stored decision": (instruct(calls("sign", text="stored"), words(2)), WITH_TOOLS),
    "missing tool": (instruct(calls("gone"), words(2)), WITH_TOOLS),
    "agent": through("helper"),
    "missing agent": through("lost"),
}
"""Turns that wait for approval when their server stops: message and settings of the session."""


def confirmations(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))[
        "confirmations"
    ]
    return listed


def noted(data_dir: Path) -> list[str]:
    file = data_dir / "tools" / "notes.txt"
    return file.read_text().split() if file.exists() else []


def run_until_asked(server: RunningServer, message: str = PLAN) -> tuple[str, dict[str, Any]]:
    """Run a turn until its call needs approval, then stop the server.

    Return session ID and event.
    """
    api = server.api()
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    with suppress(httpx.HTTPError), api.open_stream(session_id, message) as events:
        for event in events:
            if event.type == ASKED:
                asked = event
                stopping = threading.Thread(target=server.stop)
                stopping.start()
    stopping.join()
    return session_id, {**asked.data, "run_id": asked.id.partition(":")[0]}


def decide(api: Api, session_id: str, asked: Mapping[str, Any], **decision: Any) -> httpx.Response:
    body = {"confirmation_id": asked["confirmation_id"], "approved": True, **decision}
    return api.http.post(f"/chat/{session_id}/confirm-tool", json=body)


def finish(api: Api, session_id: str) -> list[Event]:
    """Return the events of the running turn until its end."""
    with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
        return list(read_events(response))


def results(api: Api, session_id: str) -> list[dict[str, Any]]:
    return [message for message in api.messages(session_id) if message["role"] == "tool"]


@dataclass(frozen=True)
class Restarted:
    """A server that has been restarted, its data directory, and for each of `TURNS` its session and
    waiting call.
    """

    server: RunningServer
    data_dir: Path
    turns: dict[str, tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def restarted(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Restarted]:
    """A server that was restarted while `TURNS` waited.

    The tool `sign` has changed, others have gone.
    """
    data_dir = tmp_path_factory.mktemp("restarted")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    lost = write_agent(data_dir, "lost")
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        turns = {name: start(server.client, *turn) for name, turn in TURNS.items()}
    write_tools(data_dir, CHANGED)
    shutil.rmtree(lost)
    with changed_record(data_dir, turns["expired"][0]) as record:
        record["approval"]["expires_at"] -= 300  # the default timeout has passed
    with changed_record(data_dir, turns["unreadable"][0]) as record:
        record["input"] = 7
    with changed_record(
        data_dir, turns["stored decision"][0]
    ) as record:  # the server was killed after the decision
        record |= {
            "state": "running",
            "approval": record["approval"] | {"decision": {"approved": True}},
        }
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield Restarted(server, data_dir, turns)


@pytest.fixture(scope="module")
def parking(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server that parks turns at once."""
    data_dir = tmp_path_factory.mktemp("parking")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    with RunningServer(
        data_dir, shared_stub.url, park_seconds=0, summarization_enabled=False
    ) as server:
        yield server


@pytest.fixture
def parked(parking: RunningServer, stub: StubServer) -> tuple[RunningServer, str, dict[str, Any]]:
    """Server that parks turns at once, a session whose turn is parked, and the call that waits."""
    del stub  # it checks the prompts of the test
    session_id = parking.client.create_session("mochi", **WITH_TOOLS)["session_id"]
    asked = park(parking.client, session_id)
    until_suspended(parking)
    return parking, session_id, asked


def until_suspended(server: RunningServer) -> None:
    """Wait until no turn is live.

    The request for approval is stored a moment before the turn is suspended, and a stop has another
    result for a live turn.
    """
    until(lambda: not server.app.state.services.turns.table.running())


def start(api: Api, message: str, settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Start a turn in a new session.

    Return the session ID, and the call that waits with the ID of the run.
    """
    session_id = api.create_session("mochi", **settings)["session_id"]
    asked = park(api, session_id, message)
    return session_id, {
        **asked,
        "run_id": api.ok(api.http.get(f"/chat/{session_id}/run"))["run_id"],
    }


def park(api: Api, session_id: str, message: str = PLAN) -> dict[str, Any]:
    """Start a turn, and wait until it is parked. Return the call that waits."""
    body, headers = {"message": message, "background": True}, {"Idempotency-Key": "k1"}
    api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
    until(lambda: confirmations(api, session_id))
    return confirmations(api, session_id)[0]


def turn_in(file: Path) -> dict[str, Any]:
    turn: dict[str, Any] = json.loads(file.read_text())["metadata"]["turn"]
    return turn


@contextmanager
def changed_record(data_dir: Path, session_id: str) -> Iterator[dict[str, Any]]:
    """Change the record of a waiting turn in the file of its session."""
    file = data_dir / "chat_sessions" / f"{session_id}.json"
    session = json.loads(file.read_text())
    yield session["metadata"]["turn"]
    file.write_text(json.dumps(session))


def test_decision_or_stop_after_a_restart_ends_the_wait(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        stopped_id, to_stop = start(server.client, PLAN, WITH_TOOLS)
        session_id, asked = run_until_asked(server)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        assert [entry["confirmation_id"] for entry in confirmations(api, session_id)] == [
            asked["confirmation_id"]
        ]
        run = api.ok(api.http.get(f"/chat/{session_id}/run"))
        assert (run["run_id"], run["state"]) == (asked["run_id"], "waiting_for_approval")
        assert "turn" not in api.session(session_id)
        api.ok(decide(api, session_id, asked))
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_RESOLVED")
        events = finish(api, session_id)
        assert next(e.data["continues"] for e in events if e.type == "status") == asked["run_id"]
        assert [e.data["result"] for e in events if e.type == "tool_result"] == ["Noted x."]
        assert events[-1].type == "done"
        run = api.ok(api.http.get(f"/chat/{session_id}/run"))
        assert (run["state"], run["continues"]) == ("completed", asked["run_id"])
        assert noted(tmp_path) == ["x"]
        roles = [message["role"] for message in api.messages(session_id)]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert confirmations(api, session_id) == []
        stopped = api.ok(api.http.post(f"/chat/{stopped_id}/stop"))
        assert (stopped["run_id"], stopped["state"]) == (to_stop["run_id"], "stopped")
        assert confirmations(api, stopped_id) == []
        metrics = api.http.get("/metrics").text
        assert [
            f'mochi_turns_total{{outcome="{end}"}} 1.0' in metrics
            for end in ("completed", "stopped")
        ] == [True] * 2
    with RunningServer(tmp_path, private_stub.url) as server:
        assert state(server.client, stopped_id) == "stopped"
        for decided_id, decided in ((stopped_id, to_stop), (session_id, asked)):
            refusal = (409, "CONFIRMATION_RESOLVED")
            assert error_of(decide(server.client, decided_id, decided)) == refusal
            server.client.send_message(decided_id, "Go on")
            assert error_of(decide(server.client, decided_id, decided)) == refusal


def test_turn_that_ends_while_it_is_parked_is_counted_once(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, park_seconds=0) as server:
        api = server.client
        stopped, deleted = (start(api, PLAN, WITH_TOOLS)[0] for _ in range(2))
        until_suspended(server)
        api.ok(api.http.post(f"/chat/{stopped}/stop"))
        for session_id in (stopped, deleted):
            assert api.http.delete(f"/sessions/{session_id}").status_code == 204
        assert 'mochi_turns_total{outcome="stopped"} 2.0' in api.http.get("/metrics").text


@cases("ends", ["stop", "message"])
def test_turn_whose_approval_has_just_expired_can_be_stopped(
    private_stub: StubServer, tmp_path: Path, ends: str
) -> None:
    components = Components(runs=RunLimits(scan_seconds=3600))  # the turn does not continue alone
    write_tools(tmp_path, TOOLS)
    settings: dict[str, Any] = {"park_seconds": 0, "tool_confirmation_timeout_seconds": 1}
    with RunningServer(tmp_path, private_stub.url, components, **settings) as server:
        api = server.client
        session_id, _ = start(api, PLAN, WITH_TOOLS)
        until(lambda: not confirmations(api, session_id))
        if ends == "stop":
            assert api.ok(api.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
        else:
            api.send_message(session_id, "Go on", if_waiting="deny")
        assert results(api, session_id)[0]["decided_by"] == "user"


class UndeletableStore(FileSessionStore):
    """Store on a disk that fails when a session is deleted."""

    async def delete(self, _: str) -> None:
        raise StorageFailed("delete", OSError(5, "I/O"))


def test_parked_turn_continues_after_a_failed_deletion(
    private_stub: StubServer, tmp_path: Path
) -> None:
    components = replace(with_store(UndeletableStore), runs=RunLimits(scan_seconds=0.05))
    write_tools(tmp_path, TOOLS)
    settings: dict[str, Any] = {"park_seconds": 0, "tool_confirmation_timeout_seconds": 1}
    with RunningServer(tmp_path, private_stub.url, components, **settings) as server:
        api = server.client
        session_id, _ = start(api, PLAN, WITH_TOOLS)
        until_suspended(server)
        assert error_of(api.http.delete(f"/sessions/{session_id}")) == (500, "STORAGE_FAILED")
        until(lambda: len(api.messages(session_id)) == 4)


class SlowStore(FileSessionStore):
    """Store whose changes wait, while `is_slow` is true, until `may_write` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_slow = False
        self.is_writing, self.may_write = threading.Event(), threading.Event()

    async def write(self, session_id: str, change: Change) -> int:
        if self.is_slow:
            self.is_writing.set()
            await asyncio.to_thread(self.may_write.wait, 10)
        return await super().write(session_id, change)


def test_decision_while_the_server_stops_is_kept_for_the_next_one(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    components = with_store(SlowStore)
    with (
        RunningServer(tmp_path, private_stub.url, components, park_seconds=0) as server,
        ThreadPoolExecutor() as pool,
    ):
        store: SlowStore = server.app.state.services.stores.chats
        session_id, asked = start(server.client, PLAN, WITH_TOOLS)
        until_suspended(server)
        store.is_slow = True
        deciding = pool.submit(decide, server.client, session_id, asked)
        assert store.is_writing.wait(60)
        stopped = pool.submit(server.stop)
        until(server.app.state.services.turns.shutdown.is_set)
        store.may_write.set()
        stopped.result()
        assert deciding.result().status_code == 202
        assert noted(tmp_path) == []
    with RunningServer(tmp_path, private_stub.url) as server:
        until(lambda: len(server.client.messages(session_id)) == 4)
        assert noted(tmp_path) == ["x"]


def test_decided_turn_no_longer_waits_while_the_server_stops(tmp_path: Path) -> None:
    gate = Gate()
    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=work_until(gate)) as stub,
        RunningServer(tmp_path, stub.url) as server,
        ThreadPoolExecutor() as pool,
    ):
        api, table = server.client, server.app.state.services.turns.table
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        held = api.create_session("mochi")["session_id"]
        body = {"message": "Work.", "background": True}
        api.ok(api.http.post(f"/chat/{held}", json=body), 202)
        with api.open_stream(session_id, PLAN) as events:
            asked = next(event.data for event in events if event.type == ASKED)
            stopping = pool.submit(server.stop)
            until(table.all_suspended)
            assert state(api, session_id) == "waiting_for_approval"
            assert decide(api, session_id, asked).status_code == 202
            decided = state(api, session_id)
            resuming = pool.submit(api.http.get, f"/chat/{session_id}/ai-sdk/any/stream")
            (run,) = table.all_suspended()
            until(lambda: run.subscribers == 2 or resuming.done())
            gate.open()
            stopping.result()
    assert decided == "running"
    resumed = types(read_chunks(resuming.result().content))
    assert resumed[-1] == "error"  # the server ended the stream, not the request for approval


def test_approval_that_expires_during_a_shutdown_counts_as_expired(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    settings: dict[str, Any] = {"tool_confirmation_timeout_seconds": 1, "shutdown_grace_seconds": 0}
    components = with_store(SlowStore)
    with (
        RunningServer(tmp_path, private_stub.url, components, **settings) as server,
        ThreadPoolExecutor() as pool,
    ):
        store: SlowStore = server.app.state.services.stores.chats
        session_id, asked = start(server.client, PLAN, WITH_TOOLS)
        store.is_slow = True
        assert store.is_writing.wait(60)  # the server stores that the approval has expired
        stopped = pool.submit(server.stop)
        until(server.app.state.services.turns.ending.is_set)
        store.may_write.set()
        stopped.result()
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        until(lambda: state(api, session_id) == "completed")
        assert results(api, session_id)[0]["decided_by"] == "timeout"
        assert len(api.messages(session_id)) == 4
        assert error_of(decide(api, session_id, asked)) == (408, "TOOL_CONFIRMATION_TIMEOUT")
    assert noted(tmp_path) == []


def test_all_calls_of_a_round_run_after_a_restart(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["two calls"]
    api.ok(decide(api, session_id, asked, arguments={"text": "edited"}, reason="Because."))
    until(lambda: confirmations(api, session_id))
    (second,) = confirmations(api, session_id)
    api.ok(decide(api, session_id, second))
    finish(api, session_id)
    assert {"edited", "b"} <= set(noted(restarted.data_dir))
    assert "a" not in noted(restarted.data_dir)
    first, last = results(api, session_id)
    assert "Because." in first["content"]
    assert first["arguments"] == {"text": "edited"}
    assert (first["decided_by"], last["decided_by"]) == ("user", "user")


def test_approval_expires_across_a_restart(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["expired"]
    until(lambda: len(api.messages(session_id)) == 4)
    assert results(api, session_id)[0]["decided_by"] == "timeout"
    assert error_of(decide(api, session_id, asked)) == (408, "TOOL_CONFIRMATION_TIMEOUT")
    assert "expired" not in noted(restarted.data_dir)


def test_decision_is_stale_if_the_tool_has_changed(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["changed tool"]
    assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_STALE")
    (again,) = confirmations(api, session_id)
    assert again["confirmation_id"] != asked["confirmation_id"]
    api.ok(decide(api, session_id, again))
    finish(api, session_id)
    assert noted(restarted.data_dir).count("changed") == 1


def test_kill_after_the_last_message_keeps_the_state_of_the_run(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, park_seconds=0) as server:
        session_id, asked = start(server.client, PLAN, WITH_TOOLS)
        file = tmp_path / "chat_sessions" / f"{session_id}.json"
        until(lambda: turn_in(file)["state"] == "waiting_for_approval")
        record = turn_in(file)
        server.client.ok(decide(server.client, session_id, asked))
        finish(server.client, session_id)
    session = json.loads(file.read_text())
    ended = session["metadata"]["turn"]
    decided = record["approval"] | {"decision": {"approved": True}}
    session["metadata"]["turn"] = record | {
        "run_ids": ended["run_ids"],
        "state": "running",
        "approval": decided,
    }
    file.write_text(json.dumps(session))
    with RunningServer(tmp_path, private_stub.url):
        until(lambda: turn_in(file)["state"] == "completed")
    with RunningServer(tmp_path, private_stub.url) as server:
        run = server.client.ok(server.client.http.get(f"/chat/{session_id}/run"))
    assert (run["state"], run["answer_id"]) == ("completed", ended["answer_id"])
    assert noted(tmp_path) == ["x"]


@cases(
    ("name", "message"),
    [
        ("missing tool", "There is no tool named 'gone'"),
        ("missing agent", "There is no agent named 'lost'"),
    ],
)
def test_call_of_what_is_missing_says_so(restarted: Restarted, name: str, message: str) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns[name]
    api.ok(decide(api, session_id, asked))
    finish(api, session_id)
    assert message in results(api, session_id)[0]["content"]
    assert api.messages(session_id)[-1]["role"] == "assistant"


def test_approved_call_of_a_disabled_tool_was_decided_by_the_user(
    parked: tuple[RunningServer, str, dict[str, Any]],
) -> None:
    server, session_id, asked = parked
    api = server.client
    until_suspended(server)
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"tool_settings": {"tools": ["sign"]}}))
    api.ok(decide(api, session_id, asked))
    finish(api, session_id)
    (result,) = results(api, session_id)
    assert (result["error_code"], result["decided_by"]) == ("TOOL_NOT_FOUND", "user")
    assert result["confirmation_id"] == asked["confirmation_id"]


def test_call_of_a_missing_model_says_so(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = run_until_asked(server)
    with StubServer(models=[Model("other")]) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        api.ok(decide(api, session_id, asked))
        (error,) = [event.data for event in finish(api, session_id) if event.type == "error"]
        assert error["code"] == "MODEL_NOT_FOUND"
        assert "'mochi'" in error["message"]
        (result,) = results(api, session_id)
        assert result["content"] == f"This call was not run: {error['message']}"
        assert (result["success"], result["decided_by"]) == (False, "user")
        assert state(api, session_id) == "failed"
        assert confirmations(api, session_id) == []
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": "other"}))
        api.send_message(session_id, "Go on")
    assert noted(tmp_path) == []


def test_decision_while_ollama_is_unreachable_counts_when_it_is_back(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        stopped_id, to_stop = start(server.client, PLAN, WITH_TOOLS)
        session_id, asked = run_until_asked(server)
    private_stub.stop()
    components = Components(runs=RunLimits(scan_seconds=0.05, retry_seconds=0.05))
    with RunningServer(tmp_path, private_stub.url, components) as server:
        api = server.api()
        assert decide(api, session_id, asked).status_code == 202
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_RESOLVED")
        assert confirmations(api, session_id) == []
        assert state(api, session_id) == "running"
        denies = {"message": "Hi", "if_waiting": "deny"}
        assert error_of(api.http.post(f"/chat/{session_id}", json=denies)) == (409, "SESSION_BUSY")
        refused = Frontend(api, session_id).post_ai_sdk(user("Hi"))
        assert error_of(refused) == (409, "SESSION_BUSY")
        assert decide(api, stopped_id, to_stop).status_code == 202
        assert api.ok(api.http.post(f"/chat/{stopped_id}/stop"))["state"] == "stopped"
        private_stub.start()
        assert finish(api, session_id)[-1].type == "done"
        assert state(api, session_id) == "completed"
    assert noted(tmp_path) == ["x"]


def test_stop_keeps_the_reason_of_a_stored_denial(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = run_until_asked(server)
    private_stub.stop()
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
            events = read_events(response)
            next(event for event in events if event.type == ASKED)
            denial = decide(api, session_id, asked, approved=False, reason="Not today.")
            assert denial.status_code == 202
            assert api.ok(api.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
            shown = next(event for event in events if event.type == "tool_result")
        result = api.messages(session_id)[-1]
    assert shown.data["error_message"].endswith("Reason: Not today.")
    assert result["content"].endswith("Reason: Not today.")
    assert result["decided_by"] == "user"


def test_stream_of_a_decision_continues_when_ollama_is_back(tmp_path: Path) -> None:
    def reply(prompt: Prompt) -> Reply:
        if prompt.messages[-1].role == "tool":
            return Reply([Text("It is noted.")])
        many_events: list[Reasoning | Text] = [Reasoning("Hm. "), Text("Well. ")] * 20
        return Reply([*many_events, ToolCalls([ToolCall("note", {"text": "x"})])])

    write_tools(tmp_path, TOOLS)
    components = Components(runs=RunLimits(scan_seconds=0.05, retry_seconds=0.05))
    with StubServer(speed=0, resolve=reply) as stub, ThreadPoolExecutor() as pool:
        with RunningServer(tmp_path, stub.url) as server:
            session_id, asked = run_until_asked(server)
        stub.stop()
        approval = {"approvalId": asked["confirmation_id"], "toolCallId": "any"}
        with RunningServer(tmp_path, stub.url, components) as server:
            frontend = Frontend(server.client, session_id)
            streaming = pool.submit(frontend.ai_sdk, user(PLAN), response_to(approval))
            until(lambda: state(server.client, session_id) == "running")
            stub.start()
            chunks = streaming.result()
    assert of_type(chunks, "tool-output-available")["output"] == "Noted x."
    assert types(chunks)[-7:] == [
        *("finish-step", "start-step", "text-start", "text-delta", "text-end"),
        *("finish-step", "finish"),
    ]
    text = [chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta"]
    assert "".join(text) == "It is noted."


@pytest.mark.parametrize(
    "damage",
    [
        {"input": {"model": 5}},
        {"input": None},
        {"first": 99},
        {"first": -5},
        {"replacement": [{"role": "alien"}]},
        {"replacement": [{"role": "assistant", "content": "No ID."}]},
    ],
    ids=str,
)
def test_decision_about_a_damaged_turn_ends_it(
    private_stub: StubServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: dict[str, Any],
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = run_until_asked(server)
    with changed_record(tmp_path, session_id) as record:
        record.update(damage)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        assert error_of(decide(api, session_id, asked)) == (404, "CONFIRMATION_NOT_FOUND")
        assert state(api, session_id) == "failed"
        assert [message["role"] for message in api.messages(session_id)] == [
            "user",
            "assistant",
            "tool",
        ]
        api.send_message(session_id, "Go on")
    reported = [line for line in caplog.messages if "stored turn cannot be read" in line]
    assert len(reported) == 1
    assert session_id in reported[0]
    assert noted(tmp_path) == []


class HeldChats(FileSessionStore):
    """Store whose sessions another process holds while ``is_held``."""

    is_held = False

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        if self.is_held:
            raise SessionBusy(session_id, None)
        async with super().hold(session_id, run_id=run_id, wait=wait):
            yield


def test_decision_about_a_session_that_stays_held_says_that_it_is_busy(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    components = with_store(HeldChats)
    with RunningServer(tmp_path, private_stub.url, components, park_seconds=0) as server:
        api, store = server.api(), server.app.state.services.stores.chats
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        asked = park(api, session_id, PLAN)
        until_suspended(server)
        store.is_held = True
        assert error_of(decide(api, session_id, asked)) == (409, "SESSION_BUSY")
        store.is_held = False
        api.ok(decide(api, session_id, asked))
        assert finish(api, session_id)[-1].type == "done"
    assert noted(tmp_path) == ["x"]


def test_full_queue_does_not_refuse_a_decision(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text(["one "]), gate]) if prompt.user_text == "hold" else None

    settings = {"ollama_slots": 1, "max_queue": 1, "park_seconds": 0}
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, **settings) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        api.ok(
            api.http.post(f"/chat/{session_id}", json={"message": PLAN, "background": True}), 202
        )
        until(lambda: state(api, session_id) == "waiting_for_approval")
        for _ in range(2):
            held = api.create_session("mochi")["session_id"]
            api.ok(
                api.http.post(f"/chat/{held}", json={"message": "hold", "background": True}), 202
            )
        until(lambda: api.ok(api.http.get("/hosts"))["hosts"][0]["queued"] == 1)
        refused = api.http.post(
            f"/chat/{api.create_session('mochi')['session_id']}", json={"message": "Hi"}
        )
        assert error_of(refused) == (503, "OLLAMA_BUSY")
        api.ok(decide(api, session_id, confirmations(api, session_id)[0]))
        gate.open()
        assert finish(api, session_id)[-1].type == "done"
        assert [message["role"] for message in api.messages(session_id)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


def test_stored_decision_does_not_approve_a_changed_tool(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["stored decision"]
    until(lambda: confirmations(api, session_id))
    (again,) = confirmations(api, session_id)
    assert again["confirmation_id"] != asked["confirmation_id"]
    assert "stored" not in noted(restarted.data_dir)


def test_remembered_approval_counts_after_a_restart(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["remembered"]
    api.ok(decide(api, session_id, asked, remember="session"))
    finish(api, session_id)
    assert {"c", "d"} <= set(noted(restarted.data_dir))
    assert [result["decided_by"] for result in results(api, session_id)] == ["user", "policy"]


def test_deleted_session_leaves_no_turn(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["deleted"]
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    assert error_of(decide(api, session_id, asked)) == (404, "SESSION_NOT_FOUND")


def test_repeated_request_finds_its_parked_turn(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["repeated"]
    headers, body = {"Idempotency-Key": "k1"}, {"message": PLAN, "background": True}
    again = api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
    assert (again["run_id"], again["state"]) == (asked["run_id"], "waiting_for_approval")
    reused = api.http.post(f"/chat/{session_id}", json={"message": "Other"}, headers=headers)
    assert error_of(reused) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_repeated_request_does_not_deny_its_own_calls(parking: RunningServer) -> None:
    api, headers = parking.client, {"Idempotency-Key": "k1"}
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    body = {"message": PLAN, "background": True, "if_waiting": "deny"}
    run = api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
    until(
        lambda: (
            confirmations(api, session_id) and not parking.app.state.services.turns.table.running()
        )
    )
    again = api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
    assert (again["run_id"], again["state"]) == (run["run_id"], "waiting_for_approval")
    assert len(confirmations(api, session_id)) == 1


def test_repeated_regeneration_finds_its_parked_turn(parking: RunningServer) -> None:
    api, headers = parking.client, {"Idempotency-Key": "k2"}
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    park(api, session_id)
    api.ok(api.http.post(f"/chat/{session_id}/stop"))
    body = {"background": True, "if_waiting": "deny"}

    def regenerate() -> dict[str, Any]:
        return api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)

    run = regenerate()
    table = parking.app.state.services.turns.table
    until(lambda: confirmations(api, session_id) and not table.running())
    (asked,) = confirmations(api, session_id)
    again = regenerate()
    assert (again["run_id"], again["state"]) == (run["run_id"], "waiting_for_approval")
    assert confirmations(api, session_id) == [asked]
    api.ok(decide(api, session_id, asked))
    until(lambda: state(api, session_id) == "completed")
    completed = api.ok(api.http.get(f"/chat/{session_id}/run"))
    assert regenerate()["run_id"] == completed["run_id"]


def test_repeated_request_finds_its_parked_turn_after_a_stop(parking: RunningServer) -> None:
    api, headers = parking.client, {"Idempotency-Key": "k1"}
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    message = instruct(calls("note", text="first"), calls("note", text="second"), words(2))
    api.ok(decide(api, session_id, park(api, session_id, message)))
    until(lambda: confirmations(api, session_id))
    stopped = api.ok(api.http.post(f"/chat/{session_id}/stop"))
    stored = api.messages(session_id)
    body = {"message": message, "background": True}
    again = api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
    assert (again["run_id"], again["state"]) == (stopped["run_id"], "stopped")
    assert api.messages(session_id) == stored


def test_malformed_call_stays_malformed_when_its_turn_continues(parking: RunningServer) -> None:
    api = parking.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    too_deep: dict[str, Any] = {}
    for _ in range(101):
        too_deep = {"value": too_deep}
    wanted = [*calls("note", text="x")["tool_call"], {"name": "gone", "args": too_deep}]
    asked = park(api, session_id, instruct({"tool_call": wanted}, words(2)))
    api.ok(decide(api, session_id, asked))
    until(lambda: api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "completed")
    results = [each["content"] for each in api.messages(session_id) if each["role"] == "tool"]
    assert results[0] == "Noted x."
    assert "100 levels" in results[1]


def test_imported_turn_that_was_running_is_left_out_with_this_reason(
    parked: tuple[RunningServer, str, dict[str, Any]],
) -> None:
    server, session_id, _ = parked
    exported = json.loads(server.client.http.get(f"/sessions/{session_id}/export").content)
    exported["metadata"]["turn"] |= {"state": "running", "approval": None}
    imported = server.client.http.post("/sessions/import", json=exported)
    (warning,) = server.client.ok(imported, 201)["warnings"]
    assert warning["code"] == "TURN_LEFT_OUT"
    assert "a turn was running. It does not continue." in warning["message"]


def test_message_to_a_parked_session(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["message"]
    fork = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)["session_id"]
    exported = json.loads(api.http.get(f"/sessions/{session_id}/export").content)
    assert exported["metadata"]["turn"]["approval"]["confirmation_id"] == asked["confirmation_id"]
    response = api.ok(api.http.post("/sessions/import", json=exported), 201)
    (imported,), (warning,) = response["sessions"], response["warnings"]
    assert warning["code"] == "TURN_LEFT_OUT"
    assert imported["session_id"] in warning["message"]
    assert confirmations(api, fork) == confirmations(api, imported["session_id"]) == []
    refused = api.http.post(f"/chat/{session_id}", json={"message": "Hello"})
    assert error_of(refused) == (409, "SESSION_BUSY")
    (waiting,) = refused.json()["error"]["details"]["confirmations"]
    assert waiting["confirmation_id"] == asked["confirmation_id"]
    api.send_message(session_id, "And now?", if_waiting="deny")
    (denied,) = results(api, session_id)
    assert (denied["error_code"], denied["decided_by"]) == ("TOOL_EXECUTION_DENIED", "user")
    assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_RESOLVED")
    assert "message" not in noted(restarted.data_dir)


def post_with_image(api: Api, session_id: str, route: str, image: str | None) -> httpx.Response:
    """Send a message that denies the call that waits, with an image in base64, if any."""
    if route == "ai_sdk":
        parts = [{"type": "text", "text": "Hi"}]
        if image is not None:
            url = f"data:image/png;base64,{image}"
            parts.append({"type": "file", "mediaType": "image/png", "url": url})
        return Frontend(api, session_id).post_ai_sdk(user("", parts=parts))
    images = [] if image is None else [image]
    body = {"message": "Hi", "if_waiting": "deny", "images": images}
    return api.http.post(f"/chat/{session_id}", json=body)


@pytest.mark.parametrize("route", ["native", "ai_sdk"])
@pytest.mark.parametrize(
    ("refusal", "status"), [("image", 422), ("limit", 429), ("running", 429), ("queue", 503)]
)
def test_refused_message_leaves_the_call_waiting(
    tmp_path: Path, route: str, refusal: str, status: int
) -> None:
    write_tools(tmp_path, TOOLS)
    few = {"turns_at_a_time": 1} if refusal == "running" else {"turns_per_minute": 1}
    keys = write_keys(tmp_path / "keys.yaml", few=few, root={"scope": "all"})
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text(["one "]), gate]) if prompt.user_text == "hold" else None

    models = [Model("blind", capabilities=("completion", "tools"))]
    settings = {"api_keys_file": str(keys), "ollama_slots": 1, "max_queue": 1, "park_seconds": 0}
    with (
        StubServer(speed=0, models=models, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, **settings) as server,
    ):
        key = "few" if refusal in ("limit", "running") else "root"
        api = server.api(headers=headers(key))
        session_id = api.create_session("blind", **WITH_TOOLS)["session_id"]
        asked = park(api, session_id)
        turns = {"queue": 2, "running": 1}.get(refusal, 0)
        held_turns = [api.create_session("blind")["session_id"] for _ in range(turns)]
        for held in held_turns:
            body = {"message": "hold", "background": True}
            api.ok(api.http.post(f"/chat/{held}", json=body), 202)
        if refusal == "queue":
            until(lambda: api.ok(api.http.get("/hosts"))["hosts"][0]["queued"] == 1)
        image = base64_image(PNG) if refusal == "image" else None
        assert post_with_image(api, session_id, route, image).status_code == status
        assert confirmations(api, session_id) == [asked]
        gate.open()
        for held in held_turns:
            finish(api, held)
        api.ok(decide(api, session_id, asked))
        assert finish(api, session_id)[-1].type == "done"
        assert noted(tmp_path) == ["x"]


def test_refused_message_does_not_end_a_turn_with_a_client(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    models = [Model("blind", capabilities=("completion", "tools"))]
    with (
        StubServer(speed=0, models=models) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("blind", **WITH_TOOLS)["session_id"]
        with api.open_stream(session_id, PLAN) as events:
            asked = next(event for event in events if event.type == ASKED)
            refused = post_with_image(server.client, session_id, "native", base64_image(PNG))
            assert error_of(refused) == (422, "VALIDATION_ERROR")
            api.ok(decide(server.client, session_id, asked.data))
            assert [*events][-1].type == "done"
        assert noted(tmp_path) == ["x"]


def test_message_of_a_key_with_one_turn_at_a_time_denies_its_own_call(
    tmp_path: Path, private_stub: StubServer
) -> None:
    write_tools(tmp_path, TOOLS)
    keys = write_keys(tmp_path / "keys.yaml", one={"turns_at_a_time": 1, "turns_per_minute": 2})
    with RunningServer(tmp_path, private_stub.url, api_keys_file=str(keys)) as server:
        api, other = (server.api(headers=headers("one")) for _ in range(2))
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        with api.open_stream(session_id, PLAN) as events:
            next(event for event in events if event.type == ASKED)
            other.send_message(session_id, "Hi", if_waiting="deny")
        assert results(api, session_id)[0]["error_code"] == "TOOL_EXECUTION_DENIED"


def test_one_of_several_simultaneous_decisions_continues_a_parked_turn(
    parking: RunningServer,
) -> None:
    api = parking.client
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
            asked = park(api, session_id)
            sent = [pool.submit(decide, api, session_id, asked) for _ in range(4)]
            assert sorted(each.result().status_code for each in sent) == [200, 409, 409, 409]


@pytest.mark.parametrize("park_seconds", [0, 30])
def test_repeated_decision_about_a_changed_tool_is_stale(
    private_stub: StubServer, tmp_path: Path, park_seconds: int
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, park_seconds=park_seconds) as server:
        api = server.client
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        asked = park(api, session_id)
        write_tools(tmp_path, TOOLS.replace("text: str", 'text: str, suffix: str = "!"'))
        api.ok(api.http.post("/tools/reload"))
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_STALE")
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_STALE")
        until(lambda: [entry for entry in confirmations(api, session_id) if entry != asked])
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_STALE")
        api.ok(decide(api, session_id, confirmations(api, session_id)[0]))
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_RESOLVED")


@pytest.mark.parametrize("park_seconds", [0, 30])
def test_turn_stores_the_earlier_requests_of_a_changed_tool_once(
    private_stub: StubServer, tmp_path: Path, park_seconds: int
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, park_seconds=park_seconds) as server:
        api = server.client
        session_id, asked = start(api, PLAN, WITH_TOOLS)
        earlier_ids = []
        for name in ("suffix", "end"):
            write_tools(tmp_path, TOOLS.replace("text: str", f'text: str, {name}: str = "!"'))
            api.ok(api.http.post("/tools/reload"))
            assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_STALE")
            earlier_ids.append(asked["confirmation_id"])
            asked = next_request(api, session_id, asked)
    approval = turn_in(tmp_path / "chat_sessions" / f"{session_id}.json")["approval"]
    assert approval["earlier_ids"] == earlier_ids
    assert approval["stale_ids"] == earlier_ids


@pytest.mark.parametrize("name", ["expired", "two calls", "agent"])
def test_decision_after_the_timeout_is_late_also_after_a_restart(
    private_stub: StubServer, tmp_path: Path, name: str
) -> None:
    write_tools(tmp_path, TOOLS)
    write_agent(tmp_path)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = start(server.client, *TURNS[name])
    with changed_record(tmp_path, session_id) as record:
        record["approval"]["expires_at"] -= 300  # the default timeout has passed
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        until(lambda: state(api, session_id) == "completed" or confirmations(api, session_id))
    with RunningServer(tmp_path, private_stub.url) as server:
        late = decide(server.client, session_id, asked)
        assert error_of(late) == (408, "TOOL_CONFIRMATION_TIMEOUT")


def test_unknown_decision_is_not_found_while_a_call_waits(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        session_id, changed = start(api, two("a", "b"), WITH_TOOLS)
        write_tools(tmp_path, TOOLS.replace("text: str", 'text: str, suffix: str = "!"'))
        api.ok(api.http.post("/tools/reload"))
        assert error_of(decide(api, session_id, changed)) == (409, "CONFIRMATION_STALE")
        first = next_request(api, session_id, changed)
        api.ok(decide(api, session_id, first))
        second = next_request(api, session_id, first)
        for confirmation_id in unknown_ids(second):
            unknown = decide(api, session_id, {"confirmation_id": confirmation_id})
            assert error_of(unknown) == (404, "CONFIRMATION_NOT_FOUND")
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        for confirmation_id in unknown_ids(second):
            unknown = decide(api, session_id, {"confirmation_id": confirmation_id})
            assert error_of(unknown) == (404, "CONFIRMATION_NOT_FOUND")
        for earlier in (changed, first):
            refused = decide(api, session_id, earlier)
            assert error_of(refused) == (409, "CONFIRMATION_RESOLVED")
        api.ok(decide(api, session_id, second))
        finish(api, session_id)
    assert noted(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("is_expired", [False, True])
def test_unknown_decision_is_not_found_before_the_turn_continues(
    private_stub: StubServer, tmp_path: Path, is_expired: bool
) -> None:
    """The turn continues later, because Ollama does not respond."""
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = run_until_asked(server)
    private_stub.stop()
    if is_expired:
        with changed_record(tmp_path, session_id) as record:
            record["approval"]["expires_at"] -= 300
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        if not is_expired:
            assert decide(api, session_id, asked).status_code == 202
        for confirmation_id in unknown_ids(asked):
            unknown = decide(api, session_id, {"confirmation_id": confirmation_id})
            assert error_of(unknown) == (404, "CONFIRMATION_NOT_FOUND")


def test_unknown_decision_is_not_found_while_the_approved_tool_runs(
    private_stub: StubServer, tmp_path: Path
) -> None:
    waits = 'while Path(__file__).with_name("wait").exists(): time.sleep(0.01)'
    tools = TOOLS.replace("return f", f"{waits}\n        return f")
    write_tools(tmp_path, "    import time\n" + tools)
    wait_file = tmp_path / "tools" / "wait"
    wait_file.touch()
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        session_id, asked = start(api, PLAN, WITH_TOOLS)
        api.ok(decide(api, session_id, asked))
        until(lambda: noted(tmp_path) == ["x"])
        for confirmation_id in unknown_ids(asked):
            unknown = decide(api, session_id, {"confirmation_id": confirmation_id})
            assert error_of(unknown) == (404, "CONFIRMATION_NOT_FOUND")
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_RESOLVED")
        wait_file.unlink()
        finish(api, session_id)


def next_request(api: Api, session_id: str, earlier: dict[str, Any]) -> dict[str, Any]:
    """Wait for the request that follows ``earlier``, and return its call."""

    def waiting() -> list[dict[str, Any]]:
        waiting_id = earlier["confirmation_id"]
        return [
            each for each in confirmations(api, session_id) if each["confirmation_id"] != waiting_id
        ]

    until(waiting)
    return waiting()[0]


def unknown_ids(asked: dict[str, Any]) -> list[str]:
    """Return IDs that name the run of a request, but no request."""
    run_part = asked["confirmation_id"].rpartition("_")[0]
    return [asked["confirmation_id"][:-1], f"{run_part}_0000000000"]


def test_call_that_is_announced_again_has_the_full_timeout(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, park_seconds=0) as server:
        api = server.client
        session_id, asked = start(api, PLAN, WITH_TOOLS)
        file = tmp_path / "chat_sessions" / f"{session_id}.json"
        until_suspended(server)
        first = turn_in(file)["approval"]["expires_at"]
        write_tools(tmp_path, TOOLS.replace("text: str", 'text: str, suffix: str = "!"'))
        api.ok(api.http.post("/tools/reload"))
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_STALE")
        assert turn_in(file)["approval"]["expires_at"] > first


def test_history_of_a_parked_session_cannot_be_changed(
    parked: tuple[RunningServer, str, dict[str, Any]],
) -> None:
    server, session_id, asked = parked
    until_suspended(server)
    assert_unchangeable(server.client, session_id, asked)
    server.client.ok(decide(server.client, session_id, asked))
    finish(server.client, session_id)
    assert [result["content"] for result in results(server.client, session_id)] == ["Noted x."]


def assert_unchangeable(api: Api, session_id: str, asked: dict[str, Any]) -> None:
    """Assert that the history cannot be changed, because the call ``asked`` waits."""
    for method, path in (
        ("PUT", "messages/0"),
        ("PUT", "system-prompt"),
        ("DELETE", "system-prompt"),
    ):
        body = {"content": "Other"} if method == "PUT" else None
        refused = api.http.request(method, f"/sessions/{session_id}/{path}", json=body)
        assert error_of(refused) == (409, "SESSION_BUSY"), (method, path)
        error = refused.json()["error"]
        assert error["details"].get("confirmations") == [asked], (method, path)
        assert f"POST /api/v1/chat/{session_id}/stop" in error["message"], (method, path)
        assert "if_waiting" not in error["message"], (method, path)


def test_history_of_a_session_whose_live_turn_waits_cannot_be_changed(restarted: Restarted) -> None:
    api = restarted.server.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    assert_unchangeable(api, session_id, park(api, session_id))
    api.ok(api.http.post(f"/chat/{session_id}/stop"))


def test_stream_of_a_parked_turn_shows_that_its_call_is_denied(
    parked: tuple[RunningServer, str, dict[str, Any]],
) -> None:
    server, session_id, _ = parked
    with server.client.http.stream("GET", f"/chat/{session_id}/stream") as response:
        events = read_events(response)
        assert next(events).type == ASKED
        server.api().ok(server.api().http.post(f"/chat/{session_id}/stop"))
        rest = list(events)
    assert [event.type for event in rest] == ["tool_result", "stopped", "done"]
    assert rest[0].data["error_code"] == "TOOL_EXECUTION_DENIED"


@cases("ends", ["stop", "message", "ai_sdk"])
def test_end_of_a_parked_turn_denies_only_the_call_that_waits(
    parking: RunningServer, ends: str
) -> None:
    api = parking.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    park(api, session_id, two("a", "b"))
    match ends:
        case "stop":
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
        case "message":
            api.send_message(session_id, "Hi", if_waiting="deny")
        case _:
            until_suspended(parking)
            Frontend(api, session_id).ai_sdk(user("Hi"))
    waiting, later = results(api, session_id)
    assert (waiting["decided_by"], "interrupted" in waiting) == ("user", False)
    assert (later["decided_by"], later["interrupted"]) == ("policy", True)


def test_stop_of_a_call_inside_an_agent_interrupts_the_call_of_the_agent(
    parking: RunningServer,
) -> None:
    api = parking.client
    session_id, _ = start(api, *through("helper"))
    api.ok(api.http.post(f"/chat/{session_id}/stop"))
    (result,) = results(api, session_id)
    assert (result["tool_name"], result["decided_by"]) == ("agent", "policy")
    assert result["interrupted"] is True
    chat_id = result["agent_session_id"]
    assert result["content"].startswith(
        f"Session ID: {chat_id}\n\nThe turn was interrupted while this call was running"
    )
    assert api.ok(api.http.get(f"/agents/chats/{chat_id}"))["agent_name"] == "helper"


@cases("ends", ["stop", "message", "delete", "expire"])
def test_end_of_a_parked_turn_ends_the_turn_of_its_agent(
    private_stub: StubServer, tmp_path: Path, ends: str
) -> None:
    data_dir = tmp_path / ends
    data_dir.mkdir()
    write_agent(data_dir)
    settings: dict[str, Any] = {"park_seconds": 0, "temporary_session_hours": A_SECOND_IN_HOURS}
    with RunningServer(data_dir, private_stub.url, **settings) as server:
        api = server.client
        session_id, _ = start(api, *through("helper"))
        until_suspended(server)
        file = agent_file(data_dir)
        match ends:
            case "stop":
                api.ok(api.http.post(f"/chat/{session_id}/stop"))
            case "message":
                api.send_message(session_id, "Hi", if_waiting="deny")
            case "delete":
                assert api.http.delete(f"/sessions/{session_id}").status_code == 204
            case _:
                soon = datetime.now(timezone.utc) + timedelta(seconds=3)
                api.ok(api.http.patch(f"/sessions/{session_id}", json={"expires_at": str(soon)}))
                until(lambda: turn_in(file)["state"] != "running")
        chat = api.ok(api.http.get(f"/agents/chats/{file.stem}"))["messages"]
    assert turn_in(file)["state"] == "stopped"
    assert [message["role"] for message in chat][-2:] == ["assistant", "tool"]
    denied = (chat[-1]["content"], chat[-1]["decided_by"], chat[-1]["error_code"])
    assert denied == ("The user denied this call.", "user", "TOOL_EXECUTION_DENIED")
    assert notes(data_dir) == []


MISSING_AGENTS = {
    "removed": ("AGENT_NOT_FOUND", "There is no agent named 'removed'"),
    "broken": ("AGENT_INVALID", "Agent 'broken' cannot be used: SKILL.md"),
}
"""Error code and message for agents of these names."""


@cases("agent", MISSING_AGENTS)
@cases("restarts", [True, False])
def test_agent_that_cannot_continue_ends_its_turn(
    private_stub: StubServer, tmp_path: Path, agent: str, restarts: bool
) -> None:
    code, reason = MISSING_AGENTS[agent]
    data_dir = tmp_path / f"{agent}-{restarts}"
    data_dir.mkdir()
    folder = write_agent(data_dir, agent)
    with ExitStack() as servers:
        server = RunningServer(data_dir, private_stub.url, park_seconds=0)
        servers.enter_context(server)
        session_id, asked = start(server.client, *through(agent))
        until_suspended(server)
        if agent == "removed":
            shutil.rmtree(folder)
        else:
            (folder / "SKILL.md").write_text("No front matter.")
        if restarts:
            servers.close()
            server = RunningServer(data_dir, private_stub.url)
            servers.enter_context(server)
        else:
            server.client.ok(server.client.http.post("/agents/reload"))
        api = server.client
        api.ok(decide(api, session_id, asked))
        finish(api, session_id)
        (result,) = results(api, session_id)
        file = agent_file(data_dir)
        assert (result["error_code"], result["agent_session_id"]) == (code, file.stem)
        chat = api.ok(api.http.get(f"/agents/chats/{file.stem}"))["messages"]
        plan = chat[-3]["content"]
        parts = result["content"].split("\n\n")
        assert parts[:2] == [f"Session ID: {file.stem}", plan]
        assert parts[-2].startswith("Result of note: ")
        assert parts[-1].startswith(f"The agent failed: {reason}")
        assert state(api, session_id) == "completed"
    *_, last = [each.body for each in private_stub.exchanges() if each.path == "/api/chat"]
    assert last is not None
    (tool,) = last["tools"]
    assert "Available agents:\n  none\n" in tool["function"]["description"]
    assert [message["role"] for message in chat][-2:] == ["assistant", "tool"]
    assert chat[-1]["interrupted"] is True
    assert turn_in(file)["state"] == "failed"


def test_missing_model_ends_the_turn_of_an_agent(private_stub: StubServer, tmp_path: Path) -> None:
    write_agent(tmp_path)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = start(server.client, *through("helper"))
    with StubServer(models=[Model("other")]) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.client
        api.ok(decide(api, session_id, asked))
        finish(api, session_id)
        assert state(api, session_id) == "failed"
        file = agent_file(tmp_path)
        chat = api.ok(api.http.get(f"/agents/chats/{file.stem}"))["messages"]
    assert chat[-1]["interrupted"] is True
    assert turn_in(file)["state"] == "failed"
    assert notes(tmp_path) == []


class FullStore(FileSessionStore):
    """Store on a full disk."""

    async def write(self, session_id: str, _: Change) -> int:
        raise StorageFailed(f"save session {session_id}", OSError(28, "No space left on device"))


def test_unstored_decision_does_not_end_the_turn_of_an_agent(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = start(server.client, *through("helper"))
    with (
        StubServer(models=[Model("other")]) as stub,
        RunningServer(tmp_path, stub.url, with_store(FullStore)) as server,
    ):
        refused = decide(server.client, session_id, asked)
        assert error_of(refused) == (500, "STORAGE_FAILED")
    with RunningServer(tmp_path, private_stub.url) as server:
        server.client.ok(decide(server.client, session_id, asked))
        finish(server.client, session_id)
    assert notes(tmp_path) == ["x"]


def test_unreadable_turn_ends_the_turn_of_its_agent(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    with RunningServer(tmp_path, private_stub.url, park_seconds=0) as server:
        session_id, asked = start(server.client, *through("helper"))
        until_suspended(server)
    with changed_record(tmp_path, session_id) as record:
        record["input"] = {"model": 5}
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        assert error_of(decide(api, session_id, asked)) == (404, "CONFIRMATION_NOT_FOUND")
        file = agent_file(tmp_path)
        chat = api.ok(api.http.get(f"/agents/chats/{file.stem}"))["messages"]
    assert turn_in(file)["state"] == "failed"
    assert (chat[-1]["role"], chat[-1]["interrupted"]) == ("tool", True)


def agent_file(data_dir: Path) -> Path:
    """Return the file of the only session of an agent."""
    (file,) = (data_dir / "agents" / "agent_chats").glob("*.json")
    return file


@cases("approved", [True, False])
def test_stop_keeps_the_decision_on_a_turn_that_is_about_to_continue(
    tmp_path: Path, approved: bool
) -> None:
    data_dir = tmp_path / str(approved)
    data_dir.mkdir()
    write_tools(data_dir, TOOLS)
    with StubServer(speed=0) as stub, RunningServer(data_dir, stub.url) as server:
        session_id, asked = start(server.client, PLAN, WITH_TOOLS)
    with RunningServer(data_dir, stub.url) as server:
        api = server.client
        assert decide(api, session_id, asked, approved=approved).status_code == 202
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        (result,) = results(api, session_id)
    assert (result["decided_by"], "interrupted" in result) == ("user", approved)


@cases("is_restarted", [False, True])
def test_stopped_turn_returns_what_it_has_stored(
    private_stub: StubServer, tmp_path: Path, is_restarted: bool
) -> None:
    write_tools(tmp_path, TOOLS)
    with ExitStack() as stack:
        server = stack.enter_context(RunningServer(tmp_path, private_stub.url, park_seconds=0))
        session_id, _ = start(server.client, two("a", "b"), WITH_TOOLS)
        until_suspended(server)
        if is_restarted:
            server.stop()
            server = stack.enter_context(RunningServer(tmp_path, private_stub.url))
        pool = stack.enter_context(ThreadPoolExecutor())
        api = server.client
        body, headers = {"message": two("a", "b")}, {"Idempotency-Key": "k1"}
        sending = pool.submit(
            server.api().http.post, f"/chat/{session_id}", json=body, headers=headers
        )
        until(lambda: subscribers(server, session_id))
        stopped = api.ok(api.http.post(f"/chat/{session_id}/stop"))
        answer = api.ok(sending.result())
        answered = api.messages(session_id)[1]["message_id"]
        assert stopped["answer_id"] == answered
        assert api.ok(api.http.get(f"/chat/{session_id}/run"))["answer_id"] == answered
    assert (answer["state"], answer["message"]["message_id"]) == ("stopped", answered)
    assert [
        (executed["arguments"]["text"], executed["error_code"])
        for executed in answer["tool_calls_executed"]
    ] == [("a", "TOOL_EXECUTION_DENIED"), ("b", "TOOL_EXECUTION_FAILED")]


def subscribers(server: RunningServer, session_id: str) -> int:
    """Return the number of clients that wait for the parked turn of a session."""
    runs = server.app.state.services.turns.table.all_suspended()
    return sum(run.subscribers for run in runs if run.session_id == session_id)


@cases(
    ("approved", "code", "message"),
    [(True, "TOOL_EXECUTION_FAILED", "interrupted"), (False, "TOOL_EXECUTION_DENIED", "denied")],
)
@pytest.mark.parametrize("caller", ["model", "agent"])
def test_stream_shows_the_result_of_a_decided_call_that_a_stop_ends(
    tmp_path: Path, caller: str, approved: bool, code: str, message: str
) -> None:
    write_tools(tmp_path, TOOLS)
    write_agent(tmp_path)
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        turn = (PLAN, WITH_TOOLS) if caller == "model" else through("helper")
        session_id, asked = start(server.client, *turn)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.client
        with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
            events = read_events(response)
            next(event for event in events if event.type == ASKED)
            assert decide(api, session_id, asked, approved=approved).status_code == 202
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
            rest = list(events)
    shown = ["tool_result"] if caller == "model" else ["agent_tool_result", "agent_complete"]
    assert [event.type for event in rest] == [*shown, "stopped", "done"]
    assert rest[0].data["error_code"] == code
    assert message in rest[0].data["error_message"]


@cases("answers", [0, 1])
def test_stopped_regeneration_keeps_what_it_has_produced(
    parking: RunningServer, answers: int
) -> None:
    api = parking.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    calling = instruct(calls("note", text="first"), calls("note", text="second"), words(2))
    park(api, session_id, calling)
    api.ok(api.http.post(f"/chat/{session_id}/stop"))
    old = api.messages(session_id)
    api.ok(api.http.post(f"/chat/{session_id}", json={"background": True}), 202)
    for number in range(answers + 1):
        until(lambda: confirmations(api, session_id))
        asked = confirmations(api, session_id)[0]
        if number < answers:
            api.ok(decide(api, session_id, asked))
    until_suspended(parking)
    assert api.ok(api.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
    stored = api.messages(session_id)
    assert [message["role"] for message in stored] == [
        "user",
        *["assistant", "tool"] * (answers + 1),
    ]
    assert stored[1]["message_id"] != old[1]["message_id"]
    assert stored[-1]["error_code"] == "TOOL_EXECUTION_DENIED"
    file = parking.settings.resolved_sessions_dir / f"{session_id}.json"
    assert turn_in(file)["answer_id"] == stored[-2]["message_id"]
    assert [each["count"] for each in api.session(session_id)["versions"].values()] == [2]


def test_stopped_regeneration_warns_about_versions_that_exceed_the_number(
    parking: RunningServer,
) -> None:
    api = parking.client
    file = full_file(PLAN, **WITH_TOOLS)
    imported = api.ok(api.http.post("/sessions/import", json=file), 201)
    session_id = imported["sessions"][0]["session_id"]
    api.ok(api.http.post(f"/chat/{session_id}", json={"background": True}), 202)
    until(lambda: confirmations(api, session_id))
    with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
        events = read_events(response)
        next(event for event in events if event.type == ASKED)
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        rest = list(events)
    assert [event.type for event in rest] == ["tool_result", "warning", "stopped", "done"]
    assert rest[1].data["code"] == "VERSIONS_REMOVED"


def test_agent_stream_shows_that_its_call_is_denied(parking: RunningServer) -> None:
    api, (message, settings) = parking.client, through("helper")
    session_id = api.create_session("mochi", **settings)["session_id"]
    park(api, session_id, message)
    with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
        events = read_events(response)
        next(event for event in events if event.type == ASKED)
        api.send_message(session_id, "Hello", if_waiting="deny")
        rest = list(events)
    assert [event.type for event in rest] == [
        "agent_tool_result",
        "agent_complete",
        "stopped",
        "done",
    ]
    assert (rest[0].data["agent_name"], rest[0].data["error_code"]) == (
        "helper",
        "TOOL_EXECUTION_DENIED",
    )
    completed = rest[1].data
    stored = results(api, session_id)[0]
    assert (completed["success"], completed["output"]) == (False, stored["content"])
    assert completed["parent_call_id"] == stored["tool_call_id"]


def test_restored_stream_of_a_stopped_turn_ends_its_agent(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, _ = start(server.client, *through("helper"))
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        events = finish(api, session_id)
    types = [event.type for event in events]
    assert types[types.index("agent_start") :] == [
        "agent_start",
        ASKED,
        "agent_tool_result",
        "agent_complete",
        "stopped",
        "done",
    ]


@cases(
    ("approved", "shown"),
    [
        (True, [ASKED, "agent_tool_call", "agent_tool_result"]),
        (False, [ASKED, "agent_tool_result"]),
    ],
)
def test_call_of_an_agent_starts_after_its_approval_in_a_continued_turn(
    parking: RunningServer, approved: bool, shown: list[str]
) -> None:
    api = parking.client
    session_id, asked = start(api, *through("helper"))
    until_suspended(parking)
    api.ok(decide(api, session_id, asked, approved=approved))
    seen = [event.type for event in finish(api, session_id)]
    assert [each for each in seen if each == ASKED or each.startswith("agent_tool")] == shown


@cases("enabled", [[], ["other"]])
def test_call_inside_an_agent_that_is_disabled_meanwhile_runs(
    private_stub: StubServer, tmp_path: Path, enabled: list[str]
) -> None:
    data_dir = tmp_path / "-".join(["enabled", *enabled])
    data_dir.mkdir()
    for name in ("helper", "other"):
        write_agent(data_dir, name)
    with RunningServer(data_dir, private_stub.url, park_seconds=0) as server:
        api = server.client
        session_id, asked = start(api, *through("helper"))
        until_suspended(server)
        changed = {"agent_settings": {"enabled_agents": enabled}}
        api.ok(api.http.patch(f"/sessions/{session_id}", json=changed))
        api.ok(decide(api, session_id, asked))
        seen = [event.type for event in finish(api, session_id)]
    assert notes(data_dir) == ["x"]
    assert [
        each for each in seen if each.startswith(("agent_start", "agent_complete", "tool_"))
    ] == [*("agent_start", ASKED, "agent_complete", "tool_continuation_start")]


def test_session_of_an_agent_whose_caller_is_parked_is_in_use(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    message = nested(delegate(words(1), calls("note", text="x"), words(2)), words(3))
    with RunningServer(tmp_path, private_stub.url, park_seconds=0) as server:
        api, settings = server.api(), {"agent_settings": {"enabled_agents": ["helper"]}}
        session_id, other = (
            api.create_session("mochi", **settings)["session_id"] for _ in range(2)
        )
        asked = park(api, session_id, message)
        until_suspended(server)
        (chat,) = api.ok(api.http.get("/agents/chats"))["sessions"]
        again = nested(delegate(words(1), words(1), session_id=chat["session_id"]), words(1))
        api.send_message(other, again)
        assert "is in use" in results(api, other)[0]["content"]
        completion = {"model": "agent:helper", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"X-Mochi-Session": chat["session_id"]}
        url = f"{server.url}/v1/chat/completions"
        busy = api.http.post(url, json=completion, headers=headers)
        assert busy.status_code == 409
        advice = f"Wait, or use POST /api/v1/chat/{session_id}/stop."
        assert busy.json()["error"]["message"].endswith(advice)
        api.ok(decide(api, session_id, asked))
        finish(api, session_id)
        assert notes(tmp_path) == ["x"]
        assert "Result of note: Noted." in results(api, session_id)[0]["content"]
        api.send_message(other, again)
        assert "is in use" not in results(api, other)[1]["content"]


def test_session_of_a_running_agent_names_the_calling_session(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    message = nested(delegate(words(1), calls("wait"), words(2)), words(3))
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        session_id = api.create_session(
            "mochi",
            agent_settings={"enabled_agents": ["helper"]},
            tool_settings={"execution_policy": "never_confirm"},
        )["session_id"]
        body = {"message": message, "background": True}
        api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
        until(lambda: api.ok(api.http.get("/agents/chats"))["sessions"])
        (chat,) = api.ok(api.http.get("/agents/chats"))["sessions"]
        completion = {"model": "agent:helper", "messages": [{"role": "user", "content": "Hi"}]}
        busy = api.http.post(
            f"{server.url}/v1/chat/completions",
            json=completion,
            headers={"X-Mochi-Session": chat["session_id"]},
        )
        assert busy.status_code == 409
        advice = f"Wait, or use POST /api/v1/chat/{session_id}/stop."
        assert busy.json()["error"]["message"].endswith(advice)
        api.ok(api.http.post(f"/chat/{session_id}/stop"))


class WaitingChats(FileSessionStore):
    """Store in which the next request for a session waits before or after it locks the session."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.next_waits = self.next_waits_locked = False
        self.is_waiting, self.may_lock = threading.Event(), threading.Event()
        self.requests = 0

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        self.requests += 1
        waits_locked, self.next_waits_locked = self.next_waits_locked, False
        if self.next_waits:
            self.next_waits = False
            await self._wait()
        async with super().hold(session_id, run_id=run_id, wait=wait):
            if waits_locked:
                await self._wait()
            yield

    async def _wait(self) -> None:
        self.is_waiting.set()
        await asyncio.to_thread(self.may_lock.wait, 30)


def stores_with_waiting_chats(settings: MochiServerSettings) -> FileStores:
    stores = FileStores(
        settings.resolved_sessions_dir,
        settings.resolved(settings.agent_chats_dir),
        settings.resolved("mcp_authorizations"),
    )
    stores.agents = WaitingChats(stores.agents.path)
    return stores


def test_chat_of_an_agent_is_checked_when_it_is_locked(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    components = Components(stores=stores_with_waiting_chats)
    settings = {"agent_settings": {"enabled_agents": ["helper"]}}
    with (
        RunningServer(tmp_path, private_stub.url, components, park_seconds=0) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        api, store = server.api(), server.app.state.services.stores.agents
        session_id = api.create_session("mochi", **settings)["session_id"]
        api.send_message(session_id, nested(delegate(words(1), words(1)), words(1)))
        (chat,) = api.ok(api.http.get("/agents/chats"))["sessions"]
        completion = {"model": "agent:helper", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"X-Mochi-Session": chat["session_id"]}
        url = f"{server.url}/v1/chat/completions"
        store.next_waits = True
        sent = pool.submit(api.http.post, url, json=completion, headers=headers)
        assert store.is_waiting.wait(60)
        work = (words(1), calls("note", text="x"), words(2))
        message = nested(delegate(*work, session_id=chat["session_id"]), words(3))
        asked = park(api, session_id, message)
        until_suspended(server)
        store.may_lock.set()
        assert sent.result().status_code == 409
        api.ok(decide(api, session_id, asked))
        finish(api, session_id)
        assert notes(tmp_path) == ["x"]
        assert "Result of note: Noted." in results(api, session_id)[1]["content"]


def test_approved_call_of_an_agent_runs_if_a_refused_message_has_locked_its_chat(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    components = Components(stores=stores_with_waiting_chats)
    with (
        RunningServer(tmp_path, private_stub.url, components, park_seconds=0) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        api, store = server.api(), server.app.state.services.stores.agents
        session_id, asked = start(api, *through("helper"))
        until_suspended(server)
        completion = {"model": "agent:helper", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"X-Mochi-Session": agent_file(tmp_path).stem}
        url = f"{server.url}/v1/chat/completions"
        store.next_waits_locked = True
        sent = pool.submit(api.http.post, url, json=completion, headers=headers)
        assert store.is_waiting.wait(60)
        earlier = store.requests
        api.ok(decide(api, session_id, asked))
        until(lambda: store.requests > earlier)
        store.may_lock.set()
        assert sent.result().status_code == 409
        finish(api, session_id)
    assert notes(tmp_path) == ["x"]


def test_other_protocols_say_that_the_session_waits(
    parking: RunningServer, restarted: Restarted
) -> None:
    for server in (parking, restarted.server):  # the turn is parked, or waits in memory
        session_id, _ = start(server.client, PLAN, WITH_TOOLS)
        body = {"model": "mochi", "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"X-Mochi-Session": session_id}
        busy = server.client.http.post(
            f"{server.url}/v1/chat/completions", json=body, headers=headers
        )
        assert busy.status_code == 409
        assert "confirm-tool" in busy.json()["error"]["message"]
        server.client.ok(server.client.http.post(f"/chat/{session_id}/stop"))


def test_streams_follow_a_turn_that_is_parked_while_they_wait(parking: RunningServer) -> None:
    api = parking.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    with api.open_stream(session_id, PLAN) as events:
        asked = next(event for event in events if event.type == ASKED)
        api.ok(decide(api, session_id, asked.data))
        rest = list(events)
    followed = ["status", "tool_result", "message_complete", "done"]
    assert [event.type for event in rest if event.type in followed] == followed
    assert rest[0].data["continues"] == asked.id.partition(":")[0]


def test_collected_request_follows_a_parked_turn(parking: RunningServer) -> None:
    api = parking.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(api.send_message, session_id, PLAN, wait_for_confirmation=True)
        until(lambda: state(api, session_id) == "waiting_for_approval")
        api.ok(decide(api, session_id, confirmations(api, session_id)[0]))
        answer = sending.result()
    assert (answer["state"], answer["tool_calls_executed"][0]["result"]) == (
        "completed",
        "Noted x.",
    )


def test_message_does_not_wait_for_the_end_of_a_parked_turn(
    parked: tuple[RunningServer, str, dict[str, Any]],
) -> None:
    server, session_id, _ = parked
    until_suspended(server)
    waits = {"message": "Hello", "if_busy": "wait"}
    refused = server.client.http.post(f"/chat/{session_id}", json=waits)
    assert error_of(refused) == (409, "SESSION_BUSY")


def test_message_that_waits_is_refused_when_the_turn_is_parked(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, Components(ping_seconds=0.05)) as server:
        api, other = server.client, server.api()
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        waits = {"message": "Hello", "if_busy": "wait"}
        with ExitStack() as waiting:
            with api.open_stream(session_id, PLAN) as events:
                next(event for event in events if event.type == ASKED)
                sent = other.http.stream("POST", f"/chat/{session_id}/stream", json=waits)
                response = waiting.enter_context(sent)  # it has a status because it waits
            codes = [event.data.get("code") for event in read_events(response)]
    assert codes == ["SESSION_BUSY", None]


def test_each_warning_of_a_parked_turn_is_sent_once(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    settings: dict[str, Any] = {"park_seconds": 0, "max_tool_calls_per_round": 1}
    with (
        RunningServer(tmp_path, private_stub.url, **settings) as server,
        ThreadPoolExecutor() as pool,
    ):
        api = server.client
        tools = {"tools": ["note", "absent"]}
        session_id = api.create_session("mochi", tool_settings=tools)["session_id"]
        send = partial(api.send_message, session_id, two("a", "b"), wait_for_confirmation=True)
        collecting = pool.submit(send)
        until(lambda: state(api, session_id) == "waiting_for_approval")
        until_suspended(server)
        streaming = pool.submit(finish, server.api(), session_id)
        (run,) = server.app.state.services.turns.table.all_suspended()
        until(lambda: run.subscribers == 2)
        api.ok(decide(api, session_id, confirmations(api, session_id)[0]))
        expected = ["TOOL_NOT_FOUND", "TOOL_CALLS_LEFT_OUT"]
        assert [warning["code"] for warning in collecting.result()["warnings"]] == expected
        streamed = [event for event in streaming.result() if event.type == "warning"]
        assert [event.data["code"] for event in streamed] == expected
        replayed = [event for event in finish(api, session_id) if event.type == "warning"]
        assert [event.data["code"] for event in replayed] == expected


def test_turn_that_continues_after_a_restart_repeats_its_warnings(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, park_seconds=0) as server:
        tools = {"tools": ["note", "absent"]}
        session_id = server.client.create_session("mochi", tool_settings=tools)["session_id"]
        asked = park(server.client, session_id)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.client
        api.ok(decide(api, session_id, asked))
        warnings = [event for event in finish(api, session_id) if event.type == "warning"]
        assert [warning.data["code"] for warning in warnings] == ["TOOL_NOT_FOUND"]


def test_answer_of_a_parked_turn_has_the_edited_call_without_the_notes(
    parking: RunningServer,
) -> None:
    api = parking.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    body = {"message": two("a", "b"), "wait_for_confirmation": True}
    headers = {"Idempotency-Key": "k"}
    send = partial(api.http.post, f"/chat/{session_id}", json=body, headers=headers)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        until(lambda: confirmations(api, session_id))
        (first,) = confirmations(api, session_id)
        api.ok(decide(api, session_id, first, arguments={"text": "edited"}, reason="Because."))
        until(lambda: confirmations(api, session_id))
        (second,) = confirmations(api, session_id)
        api.ok(decide(api, session_id, second))
        answer = api.ok(sending.result())
    assert "Because." in results(api, session_id)[0]["content"]
    executed = answer["tool_calls_executed"]
    assert [each["arguments"] for each in executed] == [{"text": "edited"}, {"text": "b"}]
    assert [each["result"] for each in executed] == ["Noted edited.", "Noted b."]
    assert all(each["execution_time"] > 0 for each in executed)
    replayed = [event.data for event in finish(api, session_id) if event.type == "tool_call"]
    assert replayed[0]["arguments"] == {"text": "edited"}
    table = parking.app.state.services.turns.table
    parking.call(partial(table.drop_session, session_id))  # only the stored answer remains
    assert api.ok(send())["tool_calls_executed"] == executed


class PausingStore(FileSessionStore):
    """Store that has written that a turn continues, and then waits until `may_return` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.loads = 0
        self.is_written, self.may_return = threading.Event(), threading.Event()

    async def load(self, session_id: str) -> ChatSession:
        self.loads += 1
        return await super().load(session_id)

    async def write(self, session_id: str, change: Change) -> int:
        removed = await super().write(session_id, change)
        if change.turn is not None and len(change.turn.run_ids) == 2:
            self.is_written.set()
            await asyncio.to_thread(self.may_return.wait, 60)
        return removed


@cases("reader", ["client", "scan"])
def test_clients_of_a_parked_turn_stay_connected_while_a_decision_continues_it(
    private_stub: StubServer, tmp_path: Path, reader: str
) -> None:
    write_tools(tmp_path, TOOLS)
    components = replace(with_store(PausingStore), runs=RunLimits(scan_seconds=0.05))
    with (
        RunningServer(tmp_path, private_stub.url, components, park_seconds=0) as server,
        ThreadPoolExecutor() as pool,
    ):
        api, turns = server.client, server.app.state.services.turns
        store: PausingStore = server.app.state.services.stores.chats
        session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
        with api.open_stream(session_id, PLAN) as events:
            asked = next(event for event in events if event.type == ASKED)
            until(lambda: not turns.table.running())
            deciding = pool.submit(decide, api, session_id, asked.data)
            assert store.is_written.wait(60)
            if reader == "client":
                assert state(api, session_id) in ("waiting_for_approval", "running")
            else:
                server.call(partial(turns.open, is_shared=True))
                loads = store.loads
                until(lambda: store.loads >= loads + 6)
            store.may_return.set()
            rest = list(events)
        api.ok(deciding.result())
    assert [event.type for event in rest if event.type == "tool_result"] == ["tool_result"]
    assert rest[-1].type == "done"


def test_disconnect_parks_a_turn_that_waits(restarted: Restarted) -> None:
    server, api = restarted.server, restarted.server.client
    session_id = api.create_session("mochi", **WITH_TOOLS)["session_id"]
    with api.open_stream(session_id, instruct(calls("note", text="left"), words(2))) as events:
        asked = next(event for event in events if event.type == ASKED)
    running = server.app.state.services.turns.table.running
    until(lambda: all(run.session_id != session_id for run in running()))
    assert state(api, session_id) == "waiting_for_approval"
    api.ok(decide(api, session_id, asked.data))
    finish(api, session_id)
    assert "left" in noted(restarted.data_dir)


def test_stream_of_a_restarted_server_shows_the_request_and_the_continuation(
    restarted: Restarted,
) -> None:
    server, (session_id, asked), seen = restarted.server, restarted.turns["followed"], []
    headers = {"Last-Event-ID": f"{asked['run_id']}:0"}
    with server.client.http.stream(
        "GET", f"/chat/{session_id}/stream", headers=headers
    ) as response:
        for event in read_events(response):
            seen.append(event)
            if event.type == ASKED:
                server.client.ok(decide(server.client, session_id, event.data))
    types = [event.type for event in seen]
    assert (types[:1], types[-1], types.count("tool_result")) == ([ASKED], "done", 1) or types[
        0
    ] == "snapshot"


def test_call_inside_an_agent_continues_after_a_restart(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["agent"]
    (waiting,) = confirmations(api, session_id)
    assert waiting["agent_name"] == "helper"
    api.ok(decide(api, session_id, asked))
    events = finish(api, session_id)
    assert [e.data["result"] for e in events if e.type == "agent_tool_result"] == ["Noted."]
    assert notes(restarted.data_dir) == ["x"]
    assert [message["role"] for message in api.messages(session_id)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    result = results(api, session_id)[0]
    assert result["success"]
    assert "Result of note: Noted." in result["content"]


def test_unreadable_record_does_not_block_the_session(restarted: Restarted) -> None:
    api, (session_id, asked) = restarted.server.client, restarted.turns["unreadable"]
    assert error_of(decide(api, session_id, asked)) == (404, "CONFIRMATION_NOT_FOUND")
    api.send_message(session_id, "Hello")
    assert results(api, session_id)[0]["interrupted"]


def test_unreadable_records_refuse_no_request_while_they_are_removed(
    private_stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, private_stub.url) as server:
        session_ids = [server.client.create_session("mochi")["session_id"] for _ in range(8)]
    for session_id in session_ids:
        file = tmp_path / "chat_sessions" / f"{session_id}.json"
        session = json.loads(file.read_text())
        session["metadata"]["pending_approval"] = {"due": "soon"}
        file.write_text(json.dumps(session))
    with RunningServer(tmp_path, private_stub.url) as server, ThreadPoolExecutor(4) as pool:
        sent = pool.map(
            lambda name: server.client.http.put(
                f"/sessions/{name}/system-prompt", json={"content": "Hi"}
            ),
            session_ids,
        )
        assert {response.status_code for response in sent} == {200}


def state(api: Api, session_id: str) -> str:
    return str(api.ok(api.http.get(f"/chat/{session_id}/run"))["state"])


def run_of_session() -> Run:
    return Run(Conversation("a1b2c3d4e5", MemorySessionStore()), TurnInput())


def unchanged(bound: BoundCall) -> FindTool:
    async def find(_: str) -> Tool:
        return bound.tool

    return find


async def request_for(
    call: ToolInvocation, tool: Tool, expires_at: float | None = None
) -> ApprovalRequest:
    bound = BoundCall(call, tool, await call.bind(tool.schema, ToolExecutionService()))
    approval = Approval("conf_1", call.name, call.arguments, call.index, "", expires_at=expires_at)
    return ApprovalRequest(approval, bound, unchanged(bound))


async def test_timeout_0_waits_until_the_decision() -> None:
    def note() -> None:
        """Take a note."""

    approvals, control = ApprovalService(timeout=0), TurnControl()
    tool = Tool("note", note, make_schema(note, "note"))
    request = control.request = await request_for(ToolInvocation(0, "call", "note", {}), tool)
    request.decision_settled.set()
    waiting = asyncio.ensure_future(approvals.wait_for_decision("0", control, request))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    await approvals.deliver_decision("0", control, "conf_1", Decision(approved=True))
    assert await waiting == Decision(approved=True)


async def test_approval_expires_at_the_stored_time() -> None:
    def note() -> None:
        """Take a note."""

    tool = Tool("note", note, make_schema(note, "note"))
    expired = await request_for(ToolInvocation(0, "call", "note", {}), tool, expires_at=time.time())
    waiting = ApprovalService(timeout=300).wait_for_decision("0", TurnControl(), expired)
    assert await asyncio.wait_for(waiting, 60) is None


async def test_stream_follows_a_turn_that_was_parked_a_thousand_times() -> None:
    runs, followed = [run_of_session() for _ in range(1200)], list[Run]()

    async def receive(run: Run, _: Batch | None) -> None:
        followed.append(run)

    for run in runs:
        run.publish([Done("")])
        run.state = "waiting_for_approval"
    for run, later in pairwise(runs):
        run.release_clients(later)
    runs[-1].state = "completed"
    await runs[0].forward(receive)
    assert followed == runs


async def test_stopped_turn_is_not_parked_later() -> None:
    def note() -> None:
        """Take a note."""

    approvals, control = ApprovalService(timeout=0, suspend_seconds=0), TurnControl()
    tool = Tool("note", note, make_schema(note, "note"))
    request = control.request = await request_for(ToolInvocation(0, "call", "note", {}), tool)
    waiting = asyncio.ensure_future(approvals.wait_for_decision("0", control, request))
    await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert waiting.cancelled()
    assert not request.decision.done()


async def test_only_first_of_two_simultaneous_decisions_is_applied() -> None:
    def note(text: str) -> None:
        """Take a note."""

    schema, checked = make_schema(note, "note"), asyncio.Event()
    has_bound = False

    async def bind(arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        if has_bound:
            await checked.wait()
        return await schema.bind(arguments)

    approvals, control = ApprovalService(timeout=0), TurnControl()
    call = ToolInvocation(0, "call", "note", {"text": "x"})
    request = control.request = await request_for(
        call, Tool("note", note, replace(schema, bind=bind))
    )
    has_bound = True
    request.decision_settled.set()
    edit = Decision(approved=True, arguments={"text": "edited"})
    edited = asyncio.ensure_future(approvals.deliver_decision("0", control, "conf_1", edit))
    await asyncio.sleep(0)
    await approvals.deliver_decision("0", control, "conf_1", Decision(approved=False))
    checked.set()
    with pytest.raises(ConfirmationResolved):
        await edited
    assert await approvals.wait_for_decision("0", control, request) == Decision(approved=False)
    assert request.bound.call is call


def test_decision_in_an_agent_counts_for_one_call_of_the_agent(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    with RunningServer(tmp_path, private_stub.url) as server:
        api, settings = server.client, {"agent_settings": {"enabled_agents": ["helper"]}}
        session_id = api.create_session("mochi", **settings)["session_id"]
        api.send_message(session_id, nested(delegate(words(1), words(1)), words(1)))
        (chat,) = api.ok(api.http.get("/agents/chats"))["sessions"]
        again = delegate(words(1), calls("note", text="x"), words(2), session_id=chat["session_id"])
        body = {"message": nested(again, again, words(3)), "background": True}
        api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
        until(lambda: confirmations(api, session_id))
        (first,) = confirmations(api, session_id)
        api.ok(decide(api, session_id, first))
        until(lambda: [call for call in confirmations(api, session_id) if call != first])
        (second,) = confirmations(api, session_id)
        api.ok(decide(api, session_id, second))
        until(lambda: state(api, session_id) == "completed")
        assert notes(tmp_path) == ["x", "x"]


def test_agent_calls_with_one_id_have_their_own_results(tmp_path: Path) -> None:
    write_agent(tmp_path)
    first, second = ({"agent": "helper", "instruction": text} for text in ("First.", "Second."))
    with FakeOllama() as ollama, RunningServer(tmp_path, ollama.url, park_seconds=0) as server:
        ollama.script(
            lines(calls=[call("agent", first, id="call_0")]),
            lines("Plan."),
            lines(calls=[call("note", {"text": "x"}, id="call_0")]),
            lines("Did the first."),
            lines(calls=[call("agent", second, id="call_0")]),
            lines("Plan."),
            lines("Did the second."),
            lines("Done."),
        )
        api = server.client
        agents = {"enabled_agents": ["helper"]}
        session_id = api.create_session(MODEL, agent_settings=agents)["session_id"]
        body = {"message": "Go.", "background": True}
        api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
        until(lambda: confirmations(api, session_id))
        until(lambda: state(api, session_id) == "waiting_for_approval")
        (asked,) = confirmations(api, session_id)
        api.ok(decide(api, session_id, asked))
        until(lambda: state(api, session_id) == "completed")
        one, other = results(api, session_id)
        assert "Did the first." in one["content"]
        assert "Did the second." in other["content"]
        assert api.messages(session_id)[-1]["content"] == "Done."


def test_key_of_an_answer_finds_no_stopped_regeneration_of_it(tmp_path: Path) -> None:
    replies = iter([Reply.of("Old."), Reply([Reasoning("Hm."), Gate(), Text("New.")])])
    with (
        StubServer(speed=0, resolve=lambda _: next(replies)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        send = partial(
            api.http.post,
            f"/chat/{session_id}",
            json={"message": "Hi"},
            headers={"Idempotency-Key": "k"},
        )
        old = api.ok(send())["message"]
        server.app.state.services.turns.table.drop_session(session_id)  # as after some time
        with api.open_stream(session_id, think=True) as events:
            next(events)
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
        assert api.ok(send())["message"] == old
