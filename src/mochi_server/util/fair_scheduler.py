"""Fair scheduling: one waiter runs per event-loop iteration, so that a burst does not delay other tasks."""

import asyncio
from collections import deque


class FairScheduler:
    """Queue of tasks that continue in order, one per iteration of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for the next iteration of the event loop, and until all tasks ahead in the queue have continued."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            future.get_loop().call_soon(self._next)
        await future

    def _next(self) -> None:
        future = self._waiting.popleft()
        if self._waiting:
            self._waiting[0].get_loop().call_soon(self._next)
        if not future.done():  # a cancelled task has cancelled its future
            future.set_result(None)
