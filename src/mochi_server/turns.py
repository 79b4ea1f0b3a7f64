"""Taking turns on the event loop, so that what is much in sum does not come in one piece."""

import asyncio
from collections import deque


class Turns:
    """Lets those who wait pass in the order in which they came, one in each round of the event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def mine(self) -> None:
        """Wait for the next turn; somebody who waits alone waits for one round."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            turn.get_loop().call_soon(self._next)
        await turn

    def _next(self) -> None:
        turn = self._waiting.popleft()
        if self._waiting:
            self._waiting[0].get_loop().call_soon(self._next)
        if not turn.done():  # else whoever waited for it has left
            turn.set_result(None)
