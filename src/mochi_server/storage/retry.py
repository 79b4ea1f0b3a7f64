"""Retries of storage operations while the storage is unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from mochi_server.errors import StorageUnavailable

RETRY_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.25
_MAX_PAUSE_SECONDS = 2.0

_Result = TypeVar("_Result")


class StorageRetry:
    """Retry policy for the idempotent storage operations of turns, while the storage is
    unavailable.
    """

    def __init__(self, seconds: float = RETRY_SECONDS) -> None:
        self._seconds = seconds
        self._closed = asyncio.Event()

    def close(self) -> None:
        self._closed.set()

    async def run(self, operation: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return the result of an operation.

        Raises its last error after ``seconds`` seconds or at shutdown.
        """
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await operation()
            except StorageUnavailable:
                if clock() + pause > deadline:
                    raise
                with anyio.move_on_after(pause):
                    await self._closed.wait()
                    raise
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
