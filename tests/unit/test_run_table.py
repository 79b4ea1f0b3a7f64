"""Ended runs are retained for a limited time and within a memory limit."""

import asyncio
import weakref

import anyio

from mochi_server.chat import run_table
from mochi_server.chat.conversation import Conversations
from mochi_server.chat.run import Run
from mochi_server.chat.run_table import RunTable
from mochi_server.chat.turn_input import TurnInput
from mochi_server.events import ContentDelta
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import SessionCreationOptions
from mochi_server.storage.memory import MemorySessionStore
from mochi_server.util.clock import new_id
from tests.support.runs import run_of


def _ended(ends: RunTable) -> "weakref.ref[Run]":
    run = run_of(session_id=new_id())
    run.publish([ContentDelta("x" * 1000)])
    run.state = "completed"
    ends.add(run)
    ends.retain(run)
    return weakref.ref(run)


async def test_dropped_runs_leave_memory_at_once() -> None:
    runs = RunTable(60, max_bytes=10_000)
    first = _ended(runs)
    others = [_ended(runs) for _ in range(5)]
    assert first() is None
    assert others[-1]() is not None


async def test_ended_runs_are_dropped_after_their_time() -> None:
    runs = RunTable(retention_seconds=0.001)
    ended = _ended(runs)
    assert ended() is not None
    with anyio.fail_after(5):
        while ended() is not None:  # noqa: ASYNC110 - a weak reference cannot be awaited
            await asyncio.sleep(0.001)
    assert run_table.RETENTION_SECONDS == 5 * 60


async def test_clients_of_an_earlier_suspended_run_are_released() -> None:
    """A server loads the suspended run anew when another server has continued the turn."""
    runs = RunTable(60)
    earlier, later = run_of(session_id="0123456789"), run_of(session_id="0123456789")
    runs.suspend(earlier)
    with earlier.subscribed():
        runs.suspend(later)
        assert not earlier.running
        assert later.running
        assert runs.suspended(later.session_id, later.run_id) is later


async def test_client_of_a_run_that_was_just_continued_counts_there() -> None:
    earlier, later = run_of(), run_of()
    earlier.release_clients(continued_by=later)
    with earlier.subscribed():
        assert later.subscribers == 1
    assert later.subscribers == 0


async def test_ended_run_of_a_conversation_in_memory_is_dropped_at_once() -> None:
    session = ChatSession.create(SessionCreationOptions("mochi"))
    conversation = await Conversations(MemorySessionStore(), MemorySessionStore()).in_memory(
        session
    )
    run, runs = Run(conversation, TurnInput("Hello")), RunTable(60)
    runs.add(run)
    assert runs.find(conversation.run_key) is run
    runs.retain(run)
    assert runs.find(conversation.run_key) is None
