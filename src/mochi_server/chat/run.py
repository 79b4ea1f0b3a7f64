"""Runs: turns that are being executed or have ended, with state, event log and subscribers."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.event_log import Backlog, Batch, EventLog
from mochi_server.chat.turn import TurnResult
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent
from mochi_server.util.clock import new_id
from mochi_server.util.eager import EagerCall

RunState = Literal["running", "completed", "failed", "stopped", "cancelled"]
"""State of a run. A client can stop a run. A disconnect, a shutdown or another server can cancel a run."""


@dataclass(eq=False)
class Run:
    """Turn that is being executed or has ended."""

    conversation: Conversation
    input: TurnInput
    """Input without the bytes of its images."""
    run_id: str = field(default_factory=new_id)
    position: int = 0
    """Number of messages in the session before the messages of the turn."""
    disconnect_grace: float = 0
    """Time in seconds that the run continues without subscribers."""
    state: RunState = "running"
    result: TurnResult = field(default_factory=TurnResult)
    """Result of the turn, empty until the run has ended."""
    log: EventLog = field(default_factory=EventLog)
    began: float = field(default_factory=time.monotonic)
    subscribers: int = 0
    """Number of clients that receive the events of the run or wait for its result."""
    suspended: bool = False
    """Whether the last stream ended because a tool call needs approval and the client sends its decision separately.

    Until the client sends the decision in a new request, the run waits without a subscriber.
    """
    cancel_timer: asyncio.TimerHandle | None = None
    """Timer that cancels the run after its last client has disconnected."""
    stopped: bool = False
    """Whether a client has stopped the run. The flag is set before the task is cancelled."""
    abort_error: MochiError | None = None
    """Error to report if the server cancels the run, else None. The server sets it before it cancels the task."""
    task: "asyncio.Task[None] | None" = None
    """Task that executes the run, or None before the start and after the end."""
    _forwarders: "set[_Forwarder]" = field(default_factory=set)
    _early: Backlog | None = field(default_factory=Backlog)
    """Events from before the first subscriber. None after the first subscriber has come or the run has ended."""

    @property
    def session_id(self) -> str:
        return self.conversation.session_id

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def failure(self) -> MochiError | None:
        """Error that ended the run, or None."""
        return self.result.failure or (self.abort_error if self.result.cancelled else None)

    def cancel(self) -> None:
        """Cancel the run after its task has started, so that the task executes its cleanup code."""
        if self.task is not None:
            self.task.get_loop().call_soon(self.task.cancel)

    def publish(self, events: list[ChatEvent]) -> None:
        """Append events to the log and forward them."""
        batch = self.log.add(events)
        if self._early is not None:
            self._early.add(batch)
        for forwarder in self._forwarders:
            forwarder.notify(batch)

    def release(self) -> None:
        """Free what an ended run does not need. The task, for example, refers to all data of the turn."""
        self.task = self._early = None

    async def forward(self, receive: "Receive", after: int = 0, *, idle: float | None = None) -> None:
        """Call ``receive`` with batches of the events that follow event number ``after``, until the run has ended.

        While ``receive`` waits for a slow client, the next batches stay in a small backlog. If there are more, they are
        read from the log. After ``idle`` seconds without events, ``receive`` is called with None.
        """
        forwarder = _Forwarder(self, receive, after, idle, self._early or Backlog())
        self._early = None
        self._forwarders.add(forwarder)
        try:
            while await forwarder.catch_up():
                await forwarder.wait()
        finally:
            self._forwarders.discard(forwarder)
            forwarder.close()

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Return a context manager that counts a subscriber while the ``with`` block runs.

        If no subscriber remains and the input has ``on_disconnect="cancel"``, the run is cancelled after
        ``disconnect_grace`` seconds. A new subscriber within that time prevents the cancellation. A suspended run is
        not cancelled, because its client will send a decision.
        """
        self.subscribers += 1
        if self.cancel_timer is not None:
            self.cancel_timer.cancel()
            self.cancel_timer = None
        try:
            yield
        finally:
            self.subscribers -= 1
            cancels = self.input.on_disconnect == "cancel" and not self.suspended
            if self.subscribers == 0 and self.running and cancels:
                loop = asyncio.get_running_loop()
                self.cancel_timer = loop.call_later(self.disconnect_grace, self._cancel_if_unsubscribed)

    def _cancel_if_unsubscribed(self) -> None:
        if self.subscribers == 0 and self.running:
            self.cancel()

    async def collect(self) -> TurnResult:
        """Wait until the run has ended and return its result. If an error ended the run, raise that error."""
        if self.task is not None:
            await asyncio.wait([self.task])
        if self.failure is not None:
            raise self.failure
        return self.result


Receive = Callable[[Batch | None], Coroutine[Any, Any, None]]


class _Forwarder:
    """Forwarder that passes the events of a run to the function ``receive``.

    If ``receive`` returns without waiting, ``notify`` calls it directly, because a task switch costs more than the
    call. Otherwise the task of ``Run.forward`` calls ``receive`` with the batches in ``backlog`` or, if these do not
    follow the position of the client, in the log.
    """

    def __init__(self, run: Run, receive: Receive, position: int, idle: float | None, backlog: Backlog) -> None:
        self._run = run
        self._receive = receive
        self._position = position
        self._backlog = backlog
        self._is_fast = False
        self._call: EagerCall | None = None
        self._loop = asyncio.get_running_loop()
        self._wakeup: asyncio.Future[None] | None = None
        self._last_activity = self._loop.time()
        self._is_idle = False
        # One repeated timer costs less than a new timer for each event.
        self._timer = None if idle is None else self._loop.call_later(idle, self._check_idle, idle)

    def notify(self, batch: Batch) -> None:
        """Pass a batch directly to ``receive`` if ``receive`` is fast, else add it to the backlog and wake the task."""
        self._last_activity = self._loop.time()
        if self._wakeup is None or self._wakeup.done():
            self._backlog.add(batch)
            return
        if self._is_fast:
            self._position = self._run.log.last
            call = EagerCall(self._receive(batch))
            if call.is_done and self._run.running:
                return
            self._call = call
        else:
            self._backlog.add(batch)
        self._wakeup.set_result(None)

    async def catch_up(self) -> bool:
        """Pass the new events to ``receive``. Return whether the run is still running."""
        if self._is_idle:
            self._is_idle = False
            await self._receive(None)
        while True:
            if self._call is None:
                batch = self._backlog.take(self._position) or self._run.log.after(self._position)
                if batch is None:
                    return self._run.running
                self._position = batch.last
                self._call = EagerCall(self._receive(batch))
            call, self._call = self._call, None
            self._is_fast = call.is_done
            await call

    async def wait(self) -> None:
        self._wakeup = self._loop.create_future()
        await self._wakeup

    def close(self) -> None:
        """Cancel the idle timer. If a call of ``receive`` has not finished, close its coroutine."""
        if self._timer is not None:
            self._timer.cancel()
        if self._call is not None:
            self._call.close()

    def _check_idle(self, idle: float) -> None:
        remaining = self._last_activity + idle - self._loop.time()
        if remaining <= 0:
            remaining, self._last_activity = idle, self._loop.time()
            if self._wakeup is not None and not self._wakeup.done():
                self._is_idle = True
                self._wakeup.set_result(None)
        self._timer = self._loop.call_later(remaining, self._check_idle, idle)
