"""Queue of requests that wait in this server for a slot of an Ollama host."""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(order=True, slots=True)
class _Waiter:
    round: int
    number: int
    session_id: str = field(compare=False)
    ready: "asyncio.Future[None]" = field(compare=False)


class FairQueue:
    """Queue in front of ``limit`` slots, or of unlimited slots for None. Sessions with several requests alternate."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.running = 0
        self._waiting: list[_Waiter] = []  # the next request first
        self._round = self._number = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def free(self) -> int | None:
        """Number of requests that the slots can take at once, or None if there is no limit."""
        return None if self.limit is None else max(self.limit - self.running, 0)

    def position(self, session_id: str) -> int | None:
        """Return the position of a session's first waiting request, starting at 1, or None if none waits."""
        return next((i for i, waiter in enumerate(self._waiting, 1) if waiter.session_id == session_id), None)

    @asynccontextmanager
    async def slot(self, session_id: str, on_entered: Callable[[], object] = lambda: None) -> AsyncIterator[None]:
        """Wait for a slot and occupy it. ``on_entered`` is called when the request runs or waits. See ``abort``."""
        if self.limit is None or (self.running < self.limit and not self._waiting):
            self.running += 1
            on_entered()
        else:
            await self._wait(session_id, on_entered)
        try:
            yield
        finally:
            self.running -= 1
            self._grant()

    def abort(self, error: Exception) -> None:
        """Let all waiting requests raise ``error``."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.ready.done():
                waiter.ready.set_exception(error)

    async def _wait(self, session_id: str, on_entered: Callable[[], object]) -> None:
        own = [waiter.round for waiter in self._waiting if waiter.session_id == session_id]
        self._number += 1
        ready = asyncio.get_running_loop().create_future()
        waiter = _Waiter(max([self._round, *(round + 1 for round in own)]), self._number, session_id, ready)
        insort(self._waiting, waiter)
        on_entered()
        try:
            await ready
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif ready.done() and not ready.cancelled() and ready.exception() is None:  # the slot was granted
                self.running -= 1
                self._grant()
            raise

    def _grant(self) -> None:
        while self._waiting and self.limit is not None and self.running < self.limit:
            waiter = self._waiting.pop(0)
            if not waiter.ready.done():
                self._round = waiter.round
                self.running += 1
                waiter.ready.set_result(None)
