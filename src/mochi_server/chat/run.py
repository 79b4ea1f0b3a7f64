"""One turn under way or lately ended: its state, its events, and who waits for more of them."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal

from mochi_server.chat.eventlog import Batch, EventLog
from mochi_server.chat.turn import Turn, TurnRequest
from mochi_server.events import ChatEvent
from mochi_server.sessions.session import new_id

RunState = Literal["running", "completed", "failed", "stopped", "cancelled"]
"""``stopped``: a person asked for it; ``cancelled``: the last listener left, or the server shut down."""


@dataclass(eq=False)
class Run:
    """A turn and what can be heard of it."""

    turn: Turn
    run_id: str = field(default_factory=new_id)
    state: RunState = "running"
    log: EventLog = field(default_factory=EventLog)
    key: str | None = None
    """The idempotency key that it was begun with."""
    asked: TurnRequest | None = None
    """What came with the key."""
    began: float = field(default_factory=time.monotonic)
    listeners: int = 0
    leaving: asyncio.TimerHandle | None = None
    """Set while nobody listens and the turn is soon cancelled for it."""
    task: "asyncio.Task[None] | None" = None
    """None before it begins and after it has ended."""
    _begun: bool = False
    _cancelled: bool = False
    _ears: "set[_Ear]" = field(default_factory=set)

    @property
    def session_id(self) -> str:
        return self.turn.session.session_id

    @property
    def running(self) -> bool:
        return self.state == "running"

    def cancel(self) -> None:
        """End the run early. A task that has not begun would never run its cleanup, so it is let begin first."""
        self._cancelled = True
        if self._begun and self.task is not None:
            self.task.cancel()

    def let_go(self) -> None:
        """It has ended, and is remembered for what was said; its task keeps everything that it ever worked with."""
        self.task = None
        self.turn.let_go()

    def begin(self) -> None:
        """Called by the run's task, first of all."""
        self._begun = True
        if self._cancelled:
            raise asyncio.CancelledError

    def publish(self, events: list[ChatEvent]) -> None:
        """Add events to the log and wake each listener once."""
        self.log.add(events)
        for ear in self._ears:
            ear.hear()

    async def listen(self, after: int = 0, *, idle: float | None = None) -> AsyncGenerator[Batch | None, None]:
        """All events behind a position, in as few pieces as they can be had, until the run has ended.

        None stands for ``idle`` seconds without any.
        """
        position = after
        ear = _Ear(idle)
        self._ears.add(ear)
        try:
            while True:
                if batch := self.log.after(position):
                    position = batch.last
                    yield batch
                elif self.running:
                    if not await ear.news():
                        yield None
                else:
                    return
        finally:
            self._ears.discard(ear)
            ear.close()


class _Ear:
    """Wakes a listener. One timer looks now and then whether it has been quiet, since news are many."""

    def __init__(self, idle: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._heard = self._loop.time()
        self._waiting: asyncio.Future[bool] | None = None
        self._timer = None if idle is None else self._loop.call_later(idle, self._look, idle)

    def hear(self) -> None:
        """There are news."""
        self._heard = self._loop.time()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)

    async def news(self) -> bool:
        """Wait for news; False where there were none for so long."""
        self._waiting = self._loop.create_future()
        return await self._waiting

    def close(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, idle: float) -> None:
        left = self._heard + idle - self._loop.time()
        if left <= 0:
            left, self._heard = idle, self._loop.time()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(False)
        self._timer = self._loop.call_later(left, self._look, idle)
