"""Fair scheduling: one waiter runs per event-loop iteration, so that a burst does not delay other tasks."""

import asyncio
from collections import deque


class FairScheduler:
    """Queue of tasks that continue in order, one in each iteration of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for the turn of this task: one iteration if no other task waits."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            turn.get_loop().call_soon(self._next)
        await turn

    def _next(self) -> None:
        turn = self._waiting.popleft()
        if self._waiting:
            self._waiting[0].get_loop().call_soon(self._next)
        if not turn.done():  # it is done if its task was cancelled
            turn.set_result(None)
