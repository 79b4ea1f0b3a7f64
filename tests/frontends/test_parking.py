"""Requests of frontends while a turn is being parked: its session is still locked, and its call can
be decided.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.events import ToolConfirmationRequired, ToolResult
from mochi_server.sessions import FileSessionStore
from mochi_server.storage.memory import MemorySessionStore
from mochi_stub import StubServer
from tests.frontends.chats import Frontend, message, of_type, response_to, types, user
from tests.frontends.conftest import TOOLS
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stores import with_store
from tests.support.tools import write_tools
from tests.support.waiting import until

NOTE = instruct(calls("note", text="milk"), words(1))


class ParkingStore(FileSessionStore):
    """Store that keeps the session of a parked turn locked until another request needs it, or a
    test releases it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._is_locked = False
        self._released = asyncio.Event()

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        if self._is_locked:
            self.release()
        async with super().hold(session_id, run_id=run_id, wait=wait):
            yield
            turn = (await self.load(session_id)).metadata.turn
            if turn is not None and turn.waiting is not None:
                await self._keep_locked()

    def release(self) -> None:
        self._released.set()

    async def _keep_locked(self) -> None:
        self._released.clear()
        self._is_locked = True
        with anyio.move_on_after(30):
            await self._released.wait()
        self._is_locked = False


@pytest.fixture(scope="module")
def parking(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that does not finish the parking of a turn before a request decides its call or
    stops it.
    """
    data_dir = tmp_path_factory.mktemp("parking")
    write_tools(data_dir, TOOLS)
    with RunningServer(data_dir, stub.url, with_store(ParkingStore), park_seconds=0.2) as server:
        yield server


@pytest.fixture
def parked(parking: RunningServer) -> Frontend:
    api = parking.api()
    return Frontend(
        api, api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    )


def run_of(server: RunningServer, frontend: Frontend) -> Run | None:
    run: Run | None = server.app.state.services.turns.table.find(frontend.session)
    return run


def wait_until_parking(server: RunningServer, frontend: Frontend) -> None:
    def is_suspending() -> bool:
        run = run_of(server, frontend)
        return run is not None and run.control.is_suspending and run.state == "running"

    until(is_suspending)


def test_ai_sdk_decides_while_the_turn_is_being_parked(
    parking: RunningServer, parked: Frontend
) -> None:
    approval = of_type(parked.ai_sdk(user(NOTE)), "tool-approval-request")
    wait_until_parking(parking, parked)
    chunks = parked.ai_sdk(user(NOTE), response_to(approval))
    assert of_type(chunks, "tool-output-available")["toolCallId"] == approval["toolCallId"]
    assert types(chunks)[-1] == "finish"
    assert parked.roles() == ["user", "assistant", "tool", "assistant"]


def test_ag_ui_decides_while_the_turn_is_being_parked(
    parking: RunningServer, parked: Frontend
) -> None:
    (interrupt,) = parked.ag_ui(message(NOTE))[-1]["outcome"]["interrupts"]
    wait_until_parking(parking, parked)
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    events = parked.ag_ui(resume=resume, runId="r2")
    assert of_type(events, "TOOL_CALL_RESULT")["toolCallId"] == interrupt["toolCallId"]
    assert types(events)[-1] == "RUN_FINISHED"


def test_message_ends_a_turn_that_is_being_parked(parking: RunningServer, parked: Frontend) -> None:
    parked.ai_sdk(user(NOTE))
    wait_until_parking(parking, parked)
    run = run_of(parking, parked)
    assert run is not None
    with ThreadPoolExecutor() as pool:
        answered = pool.submit(parked.ai_sdk, user("Never mind."))
        until(lambda: run.control.is_stopped)
        parking.call(parking.app.state.services.stores.chats.release)
        assert types(answered.result())[-1] == "finish"
    assert parked.roles() == ["user", "assistant", "tool", "user", "assistant"]


def test_decided_request_does_not_wait_while_the_next_one_is_parked_before_its_announcement() -> (
    None
):
    run = Run(Conversation("a1b2c3d4e5", MemorySessionStore()), TurnInput())
    run.control.is_suspending = True
    assert run.pending is None
    run.publish([ToolConfirmationRequired("note", {}, 0, "conf_1")])
    assert run.pending == "conf_1"
    run.publish([ToolResult("note", True, "Noted.", None, None, 0)])
    assert run.pending is None
    run.publish([ToolConfirmationRequired("note", {}, 1, "conf_2")])
    assert run.pending == "conf_2"
