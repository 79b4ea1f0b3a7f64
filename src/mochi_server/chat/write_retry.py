"""Retry of writes that failed because the database could not be reached."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from mochi_server.errors import StorageUnavailable

RETRY_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 2.0

_Result = TypeVar("_Result")


class WriteRetry:
    """Retry policy of one server. The writes must be idempotent, because a failed one may have been committed."""

    def __init__(self, seconds: float = RETRY_SECONDS) -> None:
        self._seconds = seconds
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Repeat no write from now on, because the process ends."""
        self._closed.set()

    async def run(self, write: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return the result of a write; repeat it with growing pauses until the time limit.

        Raises:
            StorageUnavailable: The last attempt failed.
            MochiError: Any other error of the write, at once.
        """
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + self._seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await write()
            except StorageUnavailable:
                if clock() + pause > deadline or await self._is_closed_within(pause):
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _is_closed_within(self, seconds: float) -> bool:
        with suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)
        return self._closed.is_set()
