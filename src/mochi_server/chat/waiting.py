"""The wait for the first words of an answer, told to the client while it lasts."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from mochi_server.events import Status
from mochi_server.ollama.stream import Line

FIRST_SECONDS = 1.0
"""An answer that begins within this time needs no words about it."""
_LOOK_SECONDS = 1.0
_REPEAT_SECONDS = 5.0


class FirstWords:
    """The first batch of an answer. ``batch`` is set when ``statuses`` has ended; None for an answer without any."""

    def __init__(self, batches: AsyncGenerator[list[Line], None], state: Callable[[], Awaitable[str]]) -> None:
        self._batches = batches
        self._state = state
        self.batch: list[Line] | None = None

    async def statuses(self, began: float) -> AsyncGenerator[Status, None]:
        """What is waited for: after a second, whenever it changes, and every few seconds.

        ``began`` is when the turn did, on the monotonic clock.
        """
        coming = asyncio.ensure_future(anext(self._batches, None))
        try:
            told, told_at = "", 0.0
            while not (await asyncio.wait({coming}, timeout=_LOOK_SECONDS if told else FIRST_SECONDS))[0]:
                state = await self._state()
                now = time.monotonic()
                if not coming.done() and (state != told or now - told_at >= _REPEAT_SECONDS):
                    told, told_at = state, now
                    yield Status(state, round(now - began, 3))
            self.batch = coming.result()
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait({coming})
