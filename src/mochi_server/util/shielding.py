"""Protection of awaitables against cancellation."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio

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
