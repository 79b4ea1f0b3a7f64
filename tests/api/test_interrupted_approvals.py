"""Approval requests without a timeout, and approval requests whose turn ended before a decision."""

import asyncio
import inspect
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mochi_server.chat.approvals import ApprovalService, Confirmation
from mochi_server.client import MochiClient
from mochi_server.errors import ConfirmationResolved
from mochi_server.events import ToolConfirmationRequired
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import make_schema
from mochi_server.tools.toolbox import BoundCall, Decision, ToolInvocation
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

TOOLS = '''
    def note(text: str) -> str:
        """Write a note."""
        return text

    __all__ = ["note"]
'''
ASKED = "tool_call_confirmation_required"

pytestmark = pytest.mark.one_process("stops and restarts the server")


def confirmations(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]
    return listed


def run_until_asked(server: RunningServer, stop: bool) -> tuple[str, dict[str, Any]]:
    """Run a turn until its call needs approval, then stop the server or the turn. Return session ID and event."""
    api = server.api()
    session_id = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    with api.open_stream(session_id, instruct(calls("note", text="x"))) as events:
        asked = next(event.data for event in events if event.type == ASKED)
        assert confirmations(server.api(), session_id) == [{**asked, "agent_name": None, "state": "waiting"}]
        if stop:
            server.api().ok(server.api().http.post(f"/chat/{session_id}/stop"))
        else:
            leaving = threading.Thread(target=server.stop)
            leaving.start()
        list(events)
    if not stop:
        leaving.join()
    return session_id, asked


def test_approval_is_listed_as_interrupted_after_a_restart(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, shutdown_grace_seconds=0) as server:
        session_id, asked = run_until_asked(server, stop=False)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        assert confirmations(api, session_id) == [{**asked, "agent_name": None, "state": "interrupted"}]
        decision = {"confirmation_id": asked["confirmation_id"], "approved": True}
        assert error_of(api.http.post(f"/chat/{session_id}/confirm-tool", json=decision)) == (
            409,
            "CONFIRMATION_INTERRUPTED",
        )
        assert "pending_approval" not in api.session(session_id)
        fork = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)["session_id"]
        exported = api.http.get(f"/sessions/{session_id}/export").content
        (imported,) = api.ok(api.http.post("/sessions/import", json=json.loads(exported)), 201)["sessions"]
        assert confirmations(api, fork) == confirmations(api, imported["session_id"]) == []
        api.send_message(session_id, "And now?")
        assert confirmations(api, session_id) == []
        assert error_of(api.http.post(f"/chat/{session_id}/confirm-tool", json=decision)) == (
            404,
            "CONFIRMATION_NOT_FOUND",
        )


def test_client_does_not_decide_about_interrupted_calls(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url, shutdown_grace_seconds=0) as server:
        session_id, _ = run_until_asked(server, stop=False)
    asked = []

    def decide(call: ToolConfirmationRequired) -> bool:
        asked.append(call.arguments)
        return True

    with RunningServer(tmp_path, private_stub.url) as server, MochiClient(server.url) as client:
        answer = client.chat(session_id, instruct(calls("note", text="y"), words(2)), on_confirm=decide)
    assert (answer["state"], asked) == ("completed", [{"text": "y"}])


def test_approval_of_a_stopped_turn_is_not_listed_after_a_restart(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, _ = run_until_asked(server, stop=True)
        assert confirmations(server.api(), session_id) == []
    with RunningServer(tmp_path, private_stub.url) as server:
        assert confirmations(server.api(), session_id) == []


async def test_timeout_0_waits_until_the_decision() -> None:
    def note() -> None:
        """Take a note."""

    approvals = ApprovalService(MemorySessionStore(), timeout=0)
    tool = Tool("note", note, make_schema(note, "note"))
    call = ToolInvocation(0, "call", "note", {})
    confirmation = Confirmation("a1b2c3d4e5", BoundCall(call, tool, await call.bind(tool.schema)))
    approvals.add(confirmation)
    waiting = asyncio.ensure_future(approvals.wait_for_decision(confirmation))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    await approvals.decide("a1b2c3d4e5", confirmation.confirmation_id, Decision(approved=True))
    assert await waiting == Decision(approved=True)


async def test_only_first_of_two_simultaneous_decisions_is_applied() -> None:
    def note(text: str) -> None:
        """Take a note."""

    schema, checked = make_schema(note, "note"), asyncio.Event()

    async def bind(arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        await checked.wait()
        return await schema.bind(arguments)

    approvals = ApprovalService(MemorySessionStore(), timeout=0)
    call = ToolInvocation(0, "call", "note", {"text": "x"})
    tool = Tool("note", note, replace(schema, bind=bind))
    confirmation = Confirmation("a1b2c3d4e5", BoundCall(call, tool, await schema.bind(call.arguments)))
    approvals.add(confirmation)
    ids = ("a1b2c3d4e5", confirmation.confirmation_id)
    edited = asyncio.ensure_future(approvals.decide(*ids, Decision(approved=True, arguments={"text": "edited"})))
    await asyncio.sleep(0)
    await approvals.decide(*ids, Decision(approved=False))
    checked.set()
    with pytest.raises(ConfirmationResolved):
        await edited
    assert await approvals.wait_for_decision(confirmation) == Decision(approved=False)
    assert confirmation.bound.call is call
