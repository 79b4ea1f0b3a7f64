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
        self._waiting: asyncio.TimerHandle | asyncio.Task[None]
        self._waiting = asyncio.get_running_loop().call_later(FIRST_SECONDS, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop publishing status events. The caller does this when the first token arrives."""
        self._waiting.cancel()

    def _start(self) -> None:
        self._waiting = asyncio.get_running_loop().create_task(self._publish_states())

    async def _publish_states(self) -> None:
        state, published = "", 0.0
        while True:
            current, now = await self.state(), time.monotonic()
            if current != state or now - published >= _REPEAT_SECONDS:
                state, published = current, now
                self.publish([Status(state, round(now - self.began, 3))])
            await asyncio.sleep(_POLL_SECONDS)
