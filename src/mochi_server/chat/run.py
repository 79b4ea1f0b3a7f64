"""A run: one turn that is being executed or has ended, with its state, its event log and its subscribers."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from mochi_server.chat.event_log import Batch, EventLog
from mochi_server.chat.turn import TurnRequest, TurnResult
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent
from mochi_server.util.clock import new_id
from mochi_server.util.eager import EagerCall

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
    subscribers: int = 0
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
        """Append events to the log and pass them on to the subscribers."""
        batch = self.log.add(events)
        for subscriber in self._subscribers:
            subscriber.notify(batch)

    async def forward(self, receive: "Receive", after: int = 0, *, idle: float | None = None) -> None:
        """Pass the events after a position to ``receive``, in as few batches as possible, until the run has ended.

        A batch is passed on as it is published. While ``receive`` waits, for a slow client, nothing else is passed on,
        and the subscriber reads from the log what it has missed. None stands for ``idle`` seconds without events.
        """
        subscriber = _Subscriber(self, receive, after, idle)
        self._subscribers.add(subscriber)
        try:
            while await subscriber.catch_up():
                await subscriber.wait()
        finally:
            self._subscribers.discard(subscriber)
            subscriber.close()

    async def collect(self) -> TurnResult:
        """Wait for the end of the run, as a client that wants one response. Raises the error that ended it."""
        if self.task is not None:
            await asyncio.wait([self.task])
        if self.failure is not None:
            raise self.failure
        return self.result


Receive = Callable[[Batch | None], Coroutine[Any, Any, None]]


class _Subscriber:
    """One receiver of events.

    As long as the receiver does not wait, it is called where events are published, because a task switch costs more
    than the call. When it waits, for a slow client, the subscriber's own task reads the log and calls it.
    """

    def __init__(self, run: Run, receive: Receive, position: int, idle: float | None) -> None:
        self._run = run
        self._receive = receive
        self._position = position
        self._keeps_up = False
        self._call: EagerCall | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._progress = self._loop.time()
        self._is_idle = False
        # One timer that fires now and then costs less than one that is set anew with each event.
        self._timer = None if idle is None else self._loop.call_later(idle, self._check, idle)

    def notify(self, batch: Batch) -> None:
        """Pass on what has just been published, or wake the task that does."""
        self._progress = self._loop.time()
        if self._waiting is None or self._waiting.done():
            return
        if self._keeps_up:
            self._position = self._run.log.last
            call = EagerCall(self._receive(batch))
            if call.is_done and self._run.state == "running":
                return
            self._call = call
        self._waiting.set_result(None)

    async def catch_up(self) -> bool:
        """Pass on what is in the log; return whether more may follow."""
        if self._is_idle:
            self._is_idle = False
            await self._receive(None)
        while True:
            if self._call is None:
                batch = self._run.log.after(self._position)
                if batch is None:
                    return self._run.running
                self._position = batch.last
                self._call = EagerCall(self._receive(batch))
            call, self._call = self._call, None
            self._keeps_up = call.is_done
            await call

    async def wait(self) -> None:
        """Wait until there is something for ``catch_up`` to do."""
        self._waiting = self._loop.create_future()
        await self._waiting

    def close(self) -> None:
        """Stop the timer, and abandon a call that has begun."""
        if self._timer is not None:
            self._timer.cancel()
        if self._call is not None:
            self._call.close()

    def _check(self, idle: float) -> None:
        left = self._progress + idle - self._loop.time()
        if left <= 0:
            left, self._progress = idle, self._loop.time()
            if self._waiting is not None and not self._waiting.done():
                self._is_idle = True
                self._waiting.set_result(None)
        self._timer = self._loop.call_later(left, self._check, idle)
