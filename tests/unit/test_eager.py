"""Coroutines that start without a task, and the subscribers that use them."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.events import ContentDelta, Done
from mochi_server.util.tasks import EagerCall
from tests.support.runs import run_of


async def test_call_that_does_not_wait_is_done_at_once() -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("worked")

    call = EagerCall(work())
    assert call.is_done
    assert steps == ["worked"]
    await call


async def test_call_that_waits_continues_when_it_is_awaited() -> None:
    gate, steps = asyncio.Event(), list[str]()

    async def work() -> None:
        steps.append("begun")
        await gate.wait()
        await asyncio.sleep(0)
        steps.append("ended")

    call = EagerCall(work())
    assert not call.is_done
    gate.set()
    await call
    assert call.is_done
    assert steps == ["begun", "ended"]


@pytest.mark.parametrize("waits", [False, True])
async def test_error_is_raised_by_the_await(waits: bool) -> None:
    async def fail() -> None:
        if waits:
            await asyncio.sleep(0)
        raise OSError("broken")

    call = EagerCall(fail())
    assert not call.is_done
    with pytest.raises(OSError, match="broken"):
        await call


async def test_cancellation_runs_the_cleanup_of_the_call() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cleaned")

    call = EagerCall(work())
    with anyio.move_on_after(0.01):
        await call
    EagerCall(work()).close()
    assert steps == ["cleaned", "cleaned"]


async def test_slow_subscriber_reads_missed_events_from_the_log() -> None:
    run, gate, received = run_of(), asyncio.Event(), list[int]()

    async def receive(_: Run, batch: Batch | None) -> None:
        assert batch is not None
        received.extend(range(batch.first, batch.last + 1))
        if received == [1, 2]:
            await gate.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run.forward, receive)
        await anyio.lowlevel.checkpoint()
        for text in ("one", "two", "three", "four"):
            run.publish([ContentDelta(text)])
            await anyio.lowlevel.checkpoint()
        assert received == [1, 2]
        gate.set()
        run.state = "completed"
        run.publish([Done("session")])
    assert received == [1, 2, 3, 4, 5]


async def test_failing_receiver_does_not_reach_the_publisher() -> None:
    run, received = run_of(), list[int]()

    async def receive(_: Run, batch: Batch | None) -> None:
        assert batch is not None
        received.append(batch.first)
        if batch.first == 3:
            raise ConnectionError("gone")

    async def forward() -> None:
        with pytest.raises(ConnectionError):
            await run.forward(receive)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        for text in ("one", "two", "three", "four"):
            await anyio.wait_all_tasks_blocked()
            run.publish([ContentDelta(text)])
    assert received == [1, 2, 3]
