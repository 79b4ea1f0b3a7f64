"""Shielded, cancelled and eagerly started coroutines."""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

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


async def cancel_and_wait(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks and wait until they have ended. Cancel them again if a library has swallowed the cancellation."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)


class EagerCall:
    """Coroutine that starts at once and runs to its first suspension, which saves a task switch if it does not wait.

    ``await`` runs the rest and raises the errors. If ``is_done`` is false, await or close the call.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.is_done = False
        self._coroutine = coroutine
        self._awaited: Any = None
        self._error: Exception | None = None
        try:
            self._awaited = coroutine.send(None)
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self._error = error

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        if self._error is not None:
            raise self._error
        if not self.is_done:
            try:
                yield self._awaited
            except BaseException:
                self._coroutine.close()
                raise
            self.is_done = True
            yield from self._coroutine.__await__()
