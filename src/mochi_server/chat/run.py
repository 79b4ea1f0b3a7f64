"""Runs: live turns, and turns that have ended, with event log and subscribers."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.event_log import Batch, EventLog
from mochi_server.chat.subscribers import Subscriber
from mochi_server.chat.turn_control import TurnControl
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.events import ChatEvent
from mochi_server.sessions.caller import CALLER, Caller
from mochi_server.sessions.turn import TurnState
from mochi_server.util.clock import new_id

_DECISION_SECONDS = 2.0
"""Time after a decision in which a disconnect does not cancel the turn.

A client may close its stream and decide.
"""


@dataclass(eq=False)
class Run:
    """One run of a turn.

    A turn that waits without a task, or is interrupted by a crash, continues as another run.
    """

    conversation: Conversation
    input: TurnInput = TurnInput()  # noqa: RUF009 - immutable; without the bytes of its images
    run_ids: Sequence[str] = field(default_factory=lambda: [new_id()])
    """IDs of the turn's runs. This run is the last."""
    model: str = ""  # of the request or the session
    position: int = 0  # number of messages in the session before the messages of the turn
    holds_text: bool = False
    """Whether the answer may be replaced, so that some protocols must hold its text."""
    caller: Caller = field(default_factory=CALLER.get)
    """Caller inside the session of the run, or by default the current caller."""
    disconnect_grace: float = 0  # time in seconds that the run continues without subscribers
    log: EventLog = field(default_factory=EventLog)
    control: TurnControl = field(default_factory=TurnControl)
    first_write: "asyncio.Future[None] | None" = None
    """Storage of the request, or None if it was stored before."""
    state: TurnState = "running"
    result: TurnResult = field(default_factory=TurnResult)
    is_stored: bool = False  # whether the run has ended, and only its stored result is known
    continued_after: int = 0  # number of the last event that repeats events of the run before
    began: float = field(default_factory=time.monotonic)  # time of the monotonic clock
    created: int = field(default_factory=lambda: int(time.time()))  # Unix time in seconds
    subscribers: int = 0
    """Number of clients that receive the events of the run or wait for its result."""
    awaited_decision: str | None = None
    """ID of the request for approval that was pending when a client left to decide, or None."""
    continued_by: "Run | None" = None  # run that continues this run, after it was suspended
    task: "asyncio.Task[None] | None" = None
    """Task that executes the run, or None before the start and after the end."""
    _cancel_timer: asyncio.TimerHandle | None = None
    """Ends the run after its last client has disconnected."""
    _subscribed: "set[Subscriber]" = field(default_factory=set)
    _clients_released: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by ``release_clients``. After it, this run has no further events."""

    @property
    def session_id(self) -> str:
        return self.conversation.session_id

    @property
    def run_id(self) -> str:
        return self.run_ids[-1]

    @property
    def origin(self) -> str:
        """ID of the first run of the turn."""
        return self.run_ids[0]

    @property
    def continues(self) -> str | None:
        """ID of the run that this run continues, or None."""
        return self.run_ids[-2] if len(self.run_ids) > 1 else None

    @property
    def running(self) -> bool:
        """Whether the turn goes on in this run."""
        return not self.has_ended and not self._clients_released.is_set()

    @property
    def is_suspended(self) -> bool:
        """Whether the turn goes on, but no task executes it."""
        return self.running and self.task is None

    @property
    def latest(self) -> "Run":
        """Latest run of the same turn: this run, or the last of its successors."""
        run = self
        while run.continued_by is not None:
            run = run.continued_by
        return run

    @property
    def has_ended(self) -> bool:
        return self.state not in ("running", "waiting_for_approval")

    @property
    def answer_id(self) -> str | None:
        """ID of the answer's message, which may be partial, or None if there is no answer yet."""
        return self.result.answer_id

    @property
    def failure(self) -> MochiError | None:
        """Error that ended the run, or ``ShuttingDown`` if its turn goes on at another server.

        None if there is no error so far.
        """
        if not self.has_ended and not self.running and self.continued_by is None:
            return ShuttingDown(was_running=True)
        if self.result.cancelled and self.result.failure is None:
            return self.control.abort_error
        return self.result.failure

    @property
    def pending(self) -> str | None:
        """ID of the request for approval that clients can decide, or None."""
        request = self.control.request
        if request is not None and request.is_stored:
            return request.confirmation_id
        confirmation_id = next(reversed(self.log.confirmations), None)
        if confirmation_id is None or self.state == "waiting_for_approval":
            return confirmation_id
        # An event follows each decision. A turn can be suspended before its latest request is
        # announced.
        can_decide = self.control.is_suspending and self.log.ends_with(confirmation_id)
        return confirmation_id if can_decide else None

    @property
    def client_will_return(self) -> bool:
        """Whether a client left to decide on the tool call that still waits for a decision."""
        return self.awaited_decision is not None and self.awaited_decision == self.pending

    def start(
        self, work: Coroutine[Any, Any, None], first_write: "asyncio.Future[None] | None" = None
    ) -> None:
        """Execute the turn of this run in a task."""
        self.first_write = first_write
        self.task = asyncio.get_running_loop().create_task(work)

    def suspend(self, state: TurnState, result: TurnResult) -> None:
        """Record that the turn goes on without a task. The clients of the run stay connected."""
        self.state = state
        self.result = result
        self.task = None
        self.control.is_suspending = False

    def release_clients(self, continued_by: "Run | None" = None) -> None:
        """Hand the clients of this run over to the run that continues its turn, or end their
        streams.
        """
        self.continued_by = continued_by
        if continued_by is not None:
            continued_by.subscribers += self.subscribers
        self._clients_released.set()
        for subscriber in self._subscribed:
            subscriber.wake()

    def end(self, state: TurnState, result: TurnResult) -> None:
        """Record the end of the run. The caller publishes its last events.

        The run keeps ``result`` without the stored turn.
        """
        self.state = state
        self.result = replace(result, turn=None)
        self.task = None
        self.first_write = None

    async def stop(self) -> None:
        """Stop the turn, if a task executes it, and wait until the task has ended.

        A turn that is being suspended stays suspended.
        """
        if self.task is not None:
            self.control.is_stopped = True
            self.cancel()
            await asyncio.wait([self.task])

    def cancel(self, abort_error: MochiError | None = None) -> None:
        """Cancel the run after its task has started, so that the task executes its cleanup code.

        A task that suspends its turn is not cancelled. ``abort_error`` replaces an earlier one.
        """
        self.control.abort_error = abort_error or self.control.abort_error
        if self.task is not None:
            self.task.get_loop().call_soon(self._cancel_task)

    def suspend_or_cancel(self, abort_error: MochiError | None = None) -> None:
        """Suspend the turn if a call waits for a decision, else cancel the run."""
        if not self.control.suspend():
            self.cancel(abort_error)

    def _cancel_task(self) -> None:
        if self.task is not None and not self.control.is_suspending:
            self.control.task_was_cancelled = True
            self.task.cancel()

    def publish(self, events: list[ChatEvent]) -> None:
        batch = self.log.add(events)
        for subscriber in self._subscribed:
            subscriber.notify(batch)

    async def forward(
        self, receive: "ReceiveBatch", after: int = 0, *, idle: float | None = None
    ) -> None:
        """Call ``receive`` with this run and its events after number ``after``.

        If it is suspended, its successors follow.

        After ``idle`` seconds without events, ``receive`` gets None in place of events.
        """
        run: Run | None = self
        while run is not None:
            subscriber = Subscriber(run, partial(receive, run), after)
            run._subscribed.add(subscriber)
            try:
                while await subscriber.catch_up():
                    if not await subscriber.wait_for_events(idle):
                        await receive(run, None)
            finally:
                run._subscribed.discard(subscriber)
                subscriber.close()
            run = run.continued_by
            after = 0 if run is None else run.continued_after

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Count a subscriber.

        If all stay away for ``disconnect_grace`` seconds, suspend or cancel the run. It goes on if
        ``input.on_disconnect`` is ``continue``, or if a client has just decided or left to decide.
        """
        run = self.latest
        run.subscribers += 1
        if run._cancel_timer is not None:
            run._cancel_timer.cancel()
            run._cancel_timer = None
        try:
            yield
        finally:
            self.latest._unsubscribe()

    async def collect(self) -> TurnResult:
        """Wait until the turn has ended and return its result.

        Raises the error that ended the run, and ``ShuttingDown`` if the turn goes on at another
        server.
        """
        if self.task is not None:
            await asyncio.wait([self.task])
        if not self.has_ended:
            await self._clients_released.wait()
            if self.continued_by is not None:
                return await self.continued_by.collect()
        if self.failure is not None:
            raise self.failure
        return self.result

    def _unsubscribe(self) -> None:
        self.subscribers -= 1
        if self.subscribers or self.task is None or self.client_will_return:
            return
        if self.input.on_disconnect == "continue":
            return
        loop = asyncio.get_running_loop()
        if self.control.request is not None:  # a decision during the grace period must not be lost
            self._cancel_timer = loop.call_later(self.disconnect_grace, self.control.suspend)
        elif loop.time() - self.control.decided_at > _DECISION_SECONDS:
            self._cancel_timer = loop.call_later(self.disconnect_grace, self.suspend_or_cancel)


ReceiveBatch = Callable[[Run, Batch | None], Coroutine[Any, Any, None]]
