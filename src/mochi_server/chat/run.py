"""A run: one turn that is being executed or has ended, with its state, its event log and its subscribers."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal

from mochi_server.chat.eventlog import Batch, EventLog
from mochi_server.chat.turn import TurnRequest, TurnResult
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent
from mochi_server.sessions.session import new_id

RunState = Literal["running", "completed", "failed", "stopped", "cancelled"]
"""``stopped``: a client asked for it. ``cancelled``: the last subscriber left, or the server shut down."""


@dataclass(eq=False)
class Run:
    """A turn in execution, and its events."""

    session_id: str
    request: TurnRequest
    """The request, without the data of its images."""
    model_failure: MochiError | None = None
    """Why Ollama could not be asked before the turn began."""
    run_id: str = field(default_factory=new_id)
    state: RunState = "running"
    result: TurnResult = field(default_factory=TurnResult)
    """Empty until the run has ended."""
    log: EventLog = field(default_factory=EventLog)
    key: str | None = None
    """The idempotency key of the request."""
    began: float = field(default_factory=time.monotonic)
    listeners: int = 0
    leaving: asyncio.TimerHandle | None = None
    """Set while no client is connected and the run is about to be cancelled for it."""
    stopped: bool = False
    """Set before the run is cancelled, when a client stops it."""
    ended_by: MochiError | None = None
    """Set before the run is cancelled, when the server ends it."""
    task: "asyncio.Task[None] | None" = None
    """None before it begins and after it has ended."""
    _begun: bool = False
    _cancelled: bool = False
    _subscribers: "set[_Subscriber]" = field(default_factory=set)

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def failure(self) -> MochiError | None:
        """The error of a run that has ended."""
        return self.result.failure or self.ended_by

    def cancel(self) -> None:
        """End the run early. A task that has not begun would never run its cleanup, so it begins first."""
        self._cancelled = True
        if self._begun and self.task is not None:
            self.task.cancel()

    def begin(self) -> None:
        """Mark the run's task as begun. Raises ``CancelledError`` for a run that was cancelled before."""
        self._begun = True
        if self._cancelled:
            raise asyncio.CancelledError

    def publish(self, events: list[ChatEvent]) -> None:
        """Append events to the log and wake each subscriber once."""
        self.log.add(events)
        for subscriber in self._subscribers:
            subscriber.notify()

    async def listen(self, after: int = 0, *, idle: float | None = None) -> AsyncGenerator[Batch | None, None]:
        """Yield the events after a position, in as few batches as possible, until the run has ended.

        A slow subscriber reads from the log what it has missed. None stands for ``idle`` seconds without events.
        """
        position = after
        subscriber = _Subscriber(idle)
        self._subscribers.add(subscriber)
        try:
            while True:
                if batch := self.log.after(position):
                    position = batch.last
                    yield batch
                elif not self.running:
                    return
                elif not await subscriber.wait():
                    yield None
        finally:
            self._subscribers.discard(subscriber)
            subscriber.close()

    async def collect(self) -> TurnResult:
        """Wait for the end of the run, as a client that wants one response. Raises the error that ended it."""
        async for _ in self.listen():
            pass
        if self.failure is not None:
            raise self.failure
        return self.result


class _Subscriber:
    """Wakes one reader of the log. One timer checks now and then for idleness, because events are many."""

    def __init__(self, idle: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._notified = self._loop.time()
        self._waiting: asyncio.Future[bool] | None = None
        self._timer = None if idle is None else self._loop.call_later(idle, self._check, idle)

    def notify(self) -> None:
        """Wake the reader."""
        self._notified = self._loop.time()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)

    async def wait(self) -> bool:
        """Wait for events; return False if there were none for ``idle`` seconds."""
        self._waiting = self._loop.create_future()
        return await self._waiting

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, idle: float) -> None:
        left = self._notified + idle - self._loop.time()
        if left <= 0:
            left, self._notified = idle, self._loop.time()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(False)
        self._timer = self._loop.call_later(left, self._check, idle)
