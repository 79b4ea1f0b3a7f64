"""Queue of requests that wait in this server for a slot of an Ollama host."""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Ticket:
    """Admission of a turn that has not reached the queue of a host yet."""


class FairQueue:
    """Queue in front of ``limit`` slots, or of unlimited slots for None. Sessions with several requests alternate."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.running = self._round = self._number = 0
        # Round, number, session and future of each waiting request, the next request first
        self._waiting: list[tuple[int, int, str, asyncio.Future[None]]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def position(self, session_id: str) -> int | None:
        """Return the position of a session's first waiting request, starting at 1, or None if none waits."""
        return next((i for i, (_, _, waiting, _) in enumerate(self._waiting, 1) if waiting == session_id), None)

    @asynccontextmanager
    async def slot(self, session_id: str, on_entered: Callable[[], object] = lambda: None) -> AsyncIterator[None]:
        """Wait for a slot and occupy it. ``on_entered`` is called when the request runs or waits. See ``abort``."""
        self._number += 1
        last = max((entry[0] + 1 for entry in self._waiting if entry[2] == session_id), default=self._round)
        entry = max(last, self._round), self._number, session_id, asyncio.get_running_loop().create_future()
        insort(self._waiting, entry)
        self._grant()
        on_entered()
        try:
            if not entry[3].done():
                await entry[3]
            entry[3].result()
            yield
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif not entry[3].cancelled() and entry[3].exception() is None:
                self.running -= 1
                self._grant()

    def abort(self, error: Exception) -> None:
        """Let all waiting requests raise ``error``."""
        while self._waiting:
            if not (future := self._waiting.pop()[3]).done():
                future.set_exception(error)

    def _grant(self) -> None:
        while self._waiting and (self.limit is None or self.running < self.limit):
            self._round, _, _, future = self._waiting.pop(0)
            if not future.done():
                self.running += 1
                future.set_result(None)
