"""Protection of awaitables against cancellation, and cancellation of tasks."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

import anyio

_CANCEL_AGAIN_SECONDS = 0.5
_Result = TypeVar("_Result")


async def run_shielded(work: Awaitable[_Result]) -> _Result:
    """Await ``work`` and return its result. If the caller is cancelled, raise the cancellation after ``work`` ends."""
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            while not future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # prevents a warning
        raise


async def cancel_and_wait(tasks: Sequence["asyncio.Future[None]"]) -> None:
    """Cancel tasks and wait until they have ended. Cancel them again if a library has swallowed the cancellation."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
