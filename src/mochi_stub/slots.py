"""So many at a time, the others in the order in which they came. Used from one event loop only."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """`size` None: any number."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self) -> bool:
        """Take a slot if one is free."""
        free = self.size is None or (self.taken < self.size and not self._waiting)
        self.taken += free
        return free

    async def wait(self) -> None:
        """Take a slot, when it is one's turn. Who is cancelled leaves the queue at once."""
        if self.take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Give the slot to whoever is next."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.cancelled():  # it may be, and its task not yet know
                turn.set_result(None)
                return
        self.taken -= 1
