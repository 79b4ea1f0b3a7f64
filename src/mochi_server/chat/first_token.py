"""Status events that are published until the first token of an answer arrives."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from mochi_server.events import Publish, Status

FIRST_SECONDS = 1.0
"""Delay before the first status event, in seconds."""
_POLL_SECONDS = 1.0
_REPEAT_SECONDS = 5.0


class FirstTokenWait:
    """Context manager that publishes status events: after one second, on each change, and every five seconds.

    ``state`` returns the status to publish. ``began`` is the start of the turn in seconds, from ``time.monotonic``.
    """

    def __init__(self, state: Callable[[], Awaitable[str]], publish: Publish, began: float) -> None:
        self._state = state
        self._publish = publish
        self._began = began
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> "FirstTokenWait":
        self._timer = asyncio.get_running_loop().call_later(FIRST_SECONDS, self._start)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop publishing status events. The caller does this when the first token arrives."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._publish_states())

    async def _publish_states(self) -> None:
        state, published = "", 0.0
        while True:
            current, now = await self._state(), time.monotonic()
            if current != state or now - published >= _REPEAT_SECONDS:
                state, published = current, now
                self._publish([Status(state, round(now - self._began, 3))])
            await asyncio.sleep(_POLL_SECONDS)
