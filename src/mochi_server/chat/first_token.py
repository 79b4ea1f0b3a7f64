"""Status events that are published until the first token of an answer arrives."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mochi_server.events import Publish, Status

FIRST_SECONDS = 1.0
"""Delay before the first status event, in seconds."""
_POLL_SECONDS = 1.0
_REPEAT_SECONDS = 5.0


@dataclass(eq=False)
class FirstTokenWait:
    """Context manager that publishes status events: after one second, on each change, and every five seconds.

    ``state`` returns the status to publish. ``began`` is the start of the turn in seconds, from ``time.monotonic``.
    """

    state: Callable[[], Awaitable[str]]
    publish: Publish
    began: float

    def __enter__(self) -> "FirstTokenWait":
        self._state, self._published = "", 0.0
        self._poll_after(FIRST_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop publishing status events. The caller does this when the first token arrives."""
        self._waiting.cancel()

    def _poll_after(self, seconds: float) -> None:
        self._waiting: asyncio.TimerHandle | asyncio.Task[None]
        self._waiting = asyncio.get_running_loop().call_later(seconds, self._start_poll)

    def _start_poll(self) -> None:
        # A short task for each poll: a task that sleeps between polls needs 1 KB of memory per waiting stream.
        self._waiting = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        state, now = await self.state(), time.monotonic()
        if state != self._state or now - self._published >= _REPEAT_SECONDS:
            self._state, self._published = state, now
            self.publish([Status(state, round(now - self.began, 3))])
        self._poll_after(_POLL_SECONDS)
