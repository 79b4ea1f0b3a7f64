"""Runs: turns that are being executed or have ended, with state, event log and subscribers."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.event_log import Batch, EventLog
from mochi_server.chat.turn import TurnResult
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import EagerCall

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
    log: EventLog = field(default_factory=EventLog)
    began: float = field(default_factory=time.monotonic)
    subscribers: int = 0
    """Number of clients that receive the events of the run or wait for its result."""
    suspended: bool = False
    """Whether the run waits without a subscriber, until the client sends its decision on a tool call."""
    cancel_timer: asyncio.TimerHandle | None = None
    """Timer that cancels the run after its last client has disconnected."""
    stopped: bool = False
    """Whether a client has stopped the run."""
    abort_error: MochiError | None = None
    """Error to report if the server cancels the run, else None."""
    task: "asyncio.Task[None] | None" = None
    """Task that executes the run, or None before the start and after the end."""
    _forwarders: "set[_Forwarder]" = field(default_factory=set)

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
        for forwarder in self._forwarders:
            forwarder.notify(batch)

    async def forward(self, receive: "Receive", after: int = 0, *, idle: float | None = None) -> None:
        """Call ``receive`` with batches of the events that follow event number ``after``, until the run has ended.

        Events that arrive while ``receive`` waits for a slow client are read from the log later. After ``idle`` seconds
        without events, ``receive`` is called with None.
        """
        forwarder = _Forwarder(self, receive, after)
        self._forwarders.add(forwarder)
        try:
            while await forwarder.catch_up():
                if not await forwarder.wait_for_events(idle):
                    await receive(None)
        finally:
            self._forwarders.discard(forwarder)
            forwarder.close()

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Return a context manager that counts a subscriber while the ``with`` block runs.

        ``disconnect_grace`` seconds after the last subscriber, the run is cancelled, unless a client is expected to
        return: the run is suspended, or the input has ``on_disconnect="continue"``.
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
                self.cancel_timer = loop.call_later(self.disconnect_grace, self.cancel)

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
    call. Otherwise the task of ``Run.forward`` calls ``receive`` with the events that follow in the log.
    """

    def __init__(self, run: Run, receive: Receive, position: int) -> None:
        self._run = run
        self._receive = receive
        self._position = position
        self._is_fast = False
        self._call: EagerCall | None = None
        self._loop = asyncio.get_running_loop()
        self._wakeup: asyncio.Future[None] | None = None
        """Future that ends the wait of the task, or None if the task does not wait."""
        self._last_activity = self._loop.time()

    def notify(self, batch: Batch) -> None:
        """Pass a batch directly to ``receive`` if ``receive`` is fast, else wake the task."""
        self._last_activity = self._loop.time()
        if self._wakeup is None or self._wakeup.done():
            return
        if self._is_fast:
            self._position = batch.last
            call = EagerCall(self._receive(batch))
            if call.is_done and self._run.running:
                return
            self._call = call
        self._wakeup.set_result(None)

    async def catch_up(self) -> bool:
        """Pass the new events to ``receive``. Return whether the run is still running."""
        while True:
            if self._call is None:
                batch = self._run.log.after(self._position)
                if batch is None:
                    return self._run.running
                self._position = batch.last
                self._call = EagerCall(self._receive(batch))
            call, self._call = self._call, None
            self._is_fast = call.is_done
            await call

    async def wait_for_events(self, idle: float | None) -> bool:
        """Wait until ``notify`` wakes the task. Return False after ``idle`` seconds without events."""
        self._wakeup = self._loop.create_future()
        timeout = None
        while not self._wakeup.done():
            if idle is not None and (timeout := self._last_activity + idle - self._loop.time()) <= 0:
                self._wakeup, self._last_activity = None, self._loop.time()
                return False
            await asyncio.wait([self._wakeup], timeout=timeout)
        return True

    def close(self) -> None:
        """Close the coroutine of a call that has not finished."""
        if self._call is not None:
            self._call.close()
