"""Cancellation of background tasks, even if a library swallows a cancellation."""

import asyncio

from mochi_server.util.tasks import cancel_and_wait


async def test_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    async def failing() -> None:
        raise ValueError

    tasks = [asyncio.ensure_future(stubborn()), asyncio.ensure_future(failing())]
    await asyncio.sleep(0)
    await cancel_and_wait(tasks)
    assert swallowed.is_set()
    assert tasks[0].cancelled()
