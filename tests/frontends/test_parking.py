"""Requests of frontends while a turn is being parked: its session is still locked, and its call can be decided."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.engine import ChatEngine
from mochi_server.chat.parked_turns import ParkedTurns
from mochi_server.chat.run import Run
from mochi_server.chat.run_registry import RunRegistry
from mochi_server.chat.turn import Turn
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.events import ToolConfirmationRequired, ToolResult
from mochi_server.storage.memory import MemorySessionStore
from mochi_stub import StubServer
from tests.frontends.chats import Frontend, message, of_type, response_to, types, user
from tests.frontends.conftest import TOOLS
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

NOTE = instruct(calls("note", text="milk"), words(1))


@pytest.fixture
def parking(stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    """A server that does not finish the parking of a turn before a request decides its call or stops it."""
    requested, run_turn, seconds = asyncio.Event(), ChatEngine.run, 5

    async def run_and_wait(self: ChatEngine, turn: Turn, run: Run) -> TurnResult:
        result = await run_turn(self, turn, run)
        if result.parked_until is not None:
            with anyio.move_on_after(seconds):
                await requested.wait()
        return result

    def announced(method: Any) -> Any:
        async def call(*args: Any) -> Any:
            requested.set()
            return await method(*args)

        return call

    monkeypatch.setattr(ChatEngine, "run", run_and_wait)
    monkeypatch.setattr(ParkedTurns, "decide", announced(ParkedTurns.decide))
    monkeypatch.setattr(RunRegistry, "stop", announced(RunRegistry.stop))
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, park_seconds=0.2) as server:
        yield server


@pytest.fixture
def parked(parking: RunningServer) -> Frontend:
    api = parking.api(timeout=10)
    return Frontend(api, api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"])


def wait_until_parking(server: RunningServer, frontend: Frontend) -> None:
    def is_parking() -> bool:
        run = server.app.state.services.runs.cache.find(frontend.session)
        return run is not None and run.is_parking and run.state == "running"

    until(is_parking)


def test_ai_sdk_decides_while_the_turn_is_being_parked(parking: RunningServer, parked: Frontend) -> None:
    approval = of_type(parked.ai_sdk(user(NOTE)), "tool-approval-request")
    wait_until_parking(parking, parked)
    chunks = parked.ai_sdk(user(NOTE), response_to(approval))
    assert of_type(chunks, "tool-output-available")["toolCallId"] == approval["toolCallId"]
    assert types(chunks)[-1] == "finish"
    assert parked.roles() == ["user", "assistant", "tool", "assistant"]


def test_ag_ui_decides_while_the_turn_is_being_parked(parking: RunningServer, parked: Frontend) -> None:
    (interrupt,) = parked.ag_ui(message(NOTE))[-1]["outcome"]["interrupts"]
    wait_until_parking(parking, parked)
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    events = parked.ag_ui(resume=resume, runId="r2")
    assert of_type(events, "TOOL_CALL_RESULT")["toolCallId"] == interrupt["toolCallId"]
    assert types(events)[-1] == "RUN_FINISHED"


def test_message_ends_a_turn_that_is_being_parked(parking: RunningServer, parked: Frontend) -> None:
    parked.ai_sdk(user(NOTE))
    wait_until_parking(parking, parked)
    assert types(parked.ai_sdk(user("Never mind.")))[-1] == "finish"
    assert parked.roles() == ["user", "assistant", "tool", "user", "assistant"]


def test_decided_request_does_not_wait_while_the_next_one_is_parked_before_its_announcement() -> None:
    run = Run(Conversation("a1b2c3d4e5", MemorySessionStore()), TurnInput(), is_parking=True)
    assert run.pending is None
    run.publish([ToolConfirmationRequired("note", {}, 0, "conf_1")])
    assert run.pending == "conf_1"
    run.publish([ToolResult("note", True, "Noted.", None, None, 0)])
    assert run.pending is None
    run.publish([ToolConfirmationRequired("note", {}, 1, "conf_2")])
    assert run.pending == "conf_2"
