"""Protection of awaitables against cancellation, and cancellation of tasks."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import anyio

_CANCEL_AGAIN_SECONDS = 0.5
_Result = TypeVar("_Result")


async def run_shielded(work: Awaitable[_Result]) -> _Result:
    """Await ``work`` and return its result. If the caller is cancelled, raise the cancellation after ``work`` ends."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()


async def cancel_and_wait(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks and wait until they have ended. Cancel them again if a library has swallowed the cancellation."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
