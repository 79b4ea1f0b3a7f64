"""Turns that wait for approval are stored with their session, and continue after a restart of the server."""

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_server.chat.approvals import ApprovalService, Confirmation
from mochi_server.client import MochiClient
from mochi_server.errors import ConfirmationResolved
from mochi_server.events import ToolConfirmationRequired
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import make_schema
from mochi_server.tools.toolbox import BoundCall, Decision, ToolInvocation
from mochi_stub import StubServer
from tests.support.agents import delegate, nested, notes, write_agent
from tests.support.api import Api, Event, error_of, read_events
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

TOOLS = '''
    from pathlib import Path

    def note(text: str) -> str:
        """Write a note."""
        with (Path(__file__).parent / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return f"Noted {text}."

    __all__ = ["note"]
'''
ASKED = "tool_call_confirmation_required"
PLAN = instruct(calls("note", text="x"), words(2))

pytestmark = pytest.mark.one_process("stops and restarts the server")


def confirmations(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]
    return listed


def noted(data_dir: Path) -> list[str]:
    file = data_dir / "tools" / "notes.txt"
    return file.read_text().split() if file.exists() else []


def run_until_asked(server: RunningServer, message: str = PLAN, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Run a turn until its call needs approval, then stop the server. Return session ID and event."""
    api = server.api()
    session_id = api.create_session("mochi", **(fields or {"tool_settings": {"tools": ["note"]}}))["session_id"]
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


def test_decision_after_a_restart_continues_the_turn(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        session_id, asked = run_until_asked(server)
    with RunningServer(tmp_path, private_stub.url) as server:
        api = server.api()
        assert [entry["confirmation_id"] for entry in confirmations(api, session_id)] == [asked["confirmation_id"]]
        run = api.ok(api.http.get(f"/chat/{session_id}/run"))
        assert (run["run_id"], run["state"]) == (asked["run_id"], "waiting_for_approval")
        assert "pending_approval" not in api.session(session_id)
        api.ok(decide(api, session_id, asked))
        assert error_of(decide(api, session_id, asked)) == (409, "CONFIRMATION_RESOLVED")
        events = finish(api, session_id)
        assert [e.data.get("continues") for e in events if e.type == "status"][0] == asked["run_id"]
        assert [e.data["result"] for e in events if e.type == "tool_result"] == ["Noted x."]
        assert events[-1].type == "done"
        run = api.ok(api.http.get(f"/chat/{session_id}/run"))
        assert (run["state"], run["continues"]) == ("completed", asked["run_id"])
        assert noted(tmp_path) == ["x"]
        roles = [message["role"] for message in api.messages(session_id)]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert confirmations(api, session_id) == []
