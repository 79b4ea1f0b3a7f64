"""Fair scheduling: few waiters run per event-loop iteration, so that a burst does not delay other tasks."""

import asyncio
from collections import deque


class FairScheduler:
    """Queue of tasks that continue in order, at most ``per_iteration`` in one iteration of the event loop."""

    def __init__(self, per_iteration: int = 1) -> None:
        self._per_iteration = per_iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for the next iteration of the event loop, and until all tasks ahead in the queue have continued."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            future.get_loop().call_soon(self._continue)
        await future

    def _continue(self) -> None:
        for _ in range(min(self._per_iteration, len(self._waiting))):
            future = self._waiting.popleft()
            if not future.done():  # a cancelled task has cancelled its future
                future.set_result(None)
        if self._waiting:
            self._waiting[0].get_loop().call_soon(self._continue)
