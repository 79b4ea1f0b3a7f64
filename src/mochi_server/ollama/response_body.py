"""The body of a streamed response, received in the background.

aiohttp raises the error of a lost connection before it returns the data that it has buffered. Here a task always waits
for the next data, so it takes all data out of that buffer before the error is set.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, closing

import aiohttp

_BUFFER_BYTES = 4 * 1024 * 1024
"""While more than this waits for the consumer, the connection is not read."""


class ResponseBody:
    """Buffer between a connection and the consumer of its data. Close it to close the connection."""

    def __init__(
        self,
        request: AbstractAsyncContextManager[aiohttp.ClientResponse],
        check: Callable[[aiohttp.ClientResponse], Awaitable[None]],
        stall_seconds: float,
    ) -> None:
        """Send the request. ``check`` raises if the response is an error."""
        self._request = request
        self._check = check
        self._stall_seconds = stall_seconds
        self._is_stalled = False
        self._progress = time.monotonic()
        self._data = bytearray()
        self._has_changed = asyncio.Event()
        self._has_room = asyncio.Event()
        loop = asyncio.get_running_loop()
        # One timer that looks now and then, since there is progress many times a second.
        self._timer = loop.call_later(stall_seconds, self._look)
        self._receiving = loop.create_task(self._receive())

    async def read(self, limit: int) -> bytes:
        """Return up to ``limit`` bytes, none at the end.

        Raises the error of the request, and ``TimeoutError`` ``stall_seconds`` after the last progress.
        """
        while not self._data:
            if self._receiving.done():
                self._receiving.result()
                return b""
            if self._is_stalled:
                raise TimeoutError
            self._has_changed.clear()
            await self._has_changed.wait()
        data = bytes(self._data[:limit])
        del self._data[:limit]
        self._has_room.set()
        return data

    def note_progress(self) -> None:
        """Count the stall timeout from now on."""
        self._progress, self._is_stalled = time.monotonic(), False

    async def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the response: then its connection can be used again."""
        if not self._receiving.done():
            await asyncio.wait([self._receiving], timeout=seconds)

    async def aclose(self) -> None:
        """Close the connection, unless the response is complete."""
        self._timer.cancel()
        self._receiving.cancel()
        await asyncio.gather(self._receiving, return_exceptions=True)

    async def _receive(self) -> None:
        try:
            async with self._request as response:
                with closing(response):
                    await self._check(response)
                    async for data in response.content.iter_any():
                        self._data += data
                        self._has_changed.set()
                        if len(self._data) > _BUFFER_BYTES:
                            await self._wait_for_room(response)
        finally:
            self._has_changed.set()

    async def _wait_for_room(self, response: aiohttp.ClientResponse) -> None:
        """Wait for the consumer; a paused transport does not report a lost connection either."""
        transport = response.connection and response.connection.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
        while len(self._data) > _BUFFER_BYTES:
            self._has_room.clear()
            await self._has_room.wait()
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def _look(self) -> None:
        left = self._progress + self._stall_seconds - time.monotonic()
        if left <= 0:
            self._is_stalled, left = True, self._stall_seconds
            self._has_changed.set()
        self._timer = asyncio.get_running_loop().call_later(left, self._look)
