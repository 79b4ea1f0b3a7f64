"""Status events for a turn that waits for the first token."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from mochi_server.events import Publish, Status

FIRST_SECONDS = 1.0
"""An answer that begins within this time needs no status."""
_POLL_SECONDS = 1.0
_REPEAT_SECONDS = 5.0


class FirstTokenWait:
    """Publish what a request waits for: after a second, on each change, and every few seconds.

    ``state`` returns the current state. ``began`` is the start of the turn on the monotonic clock. Leave the context,
    or call ``end``, when the first token is there.
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
        """Publish no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._report())

    async def _report(self) -> None:
        state, published = "", 0.0
        while True:
            found, now = await self._state(), time.monotonic()
            if found != state or now - published >= _REPEAT_SECONDS:
                state, published = found, now
                self._publish([Status(state, round(now - self._began, 3))])
            await asyncio.sleep(_POLL_SECONDS)
