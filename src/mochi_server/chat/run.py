"""Runs: turns that are being executed or have ended, with state, event log and subscribers."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import orjson

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.limits import DEFAULT_LIMITS
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import MochiError, ShuttingDown, StorageFailed
from mochi_server.events import ChatEvent, ContentDelta, Snapshot, ThinkingDelta, ToolConfirmationRequired, TurnWarning
from mochi_server.sessions.caller import CALLER, Caller
from mochi_server.tools.toolbox import BoundCall, Decision, FindTool
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import EagerCall

_MAX_BATCH_EVENTS = 1000  # in a batch from the log, so that a slow client does not fill the send buffer
_RECENT_BATCHES = 4
_LINE_BYTES = 48  # memory that each line needs in addition to its characters
_CLASSES = {event_class.type.encode(): event_class for event_class in get_args(ChatEvent)}
_TYPE_PREFIXES: dict[type, bytes] = {event_class: name + b" " for name, event_class in _CLASSES.items()}


def encode(event: ChatEvent) -> bytes:
    """Return an event as a line: its type, a space and its JSON payload."""
    payload: bytes = orjson.dumps(event)
    return _TYPE_PREFIXES[type(event)] + payload


def decode(line: bytes) -> ChatEvent:
    name, _, payload = line.partition(b" ")
    event: ChatEvent = _CLASSES[name](**orjson.loads(payload))
    return event


class Batch(NamedTuple):
    """Consecutive events. ``first`` is the number of the first event; ``lines`` are the encoded events."""

    first: int
    lines: Sequence[bytes]
    published: Sequence[ChatEvent] | None = None  # None in a batch that was read from the log

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    @property
    def events(self) -> Sequence[ChatEvent]:
        return [decode(line) for line in self.lines] if self.published is None else self.published


@dataclass(slots=True)
class EventLog:
    """Event log of limited size. When the log is full, a snapshot of the text replaces the older half of the events."""

    max_bytes: int = DEFAULT_LIMITS.log_bytes
    last: int = 0
    size: int = 0  # memory of the stored events in bytes
    warnings: list[TurnWarning] = field(default_factory=list)  # all warnings of the run, oldest first
    confirmations: dict[str, int] = field(default_factory=dict)  # number of the event, by confirmation ID
    _lines: list[bytes] = field(default_factory=list)
    _recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=_RECENT_BATCHES))
    """Latest batches as they were published, so that a subscriber that is a little slow needs no decoding."""
    _dropped: int = 0  # number of the last event that the snapshot replaces, or 0 if there is no snapshot
    _snapshot: Snapshot | None = None

    @classmethod
    def restored(cls, snapshot: Snapshot, last: int) -> "EventLog":
        """Return the log of a run that another server has begun. ``snapshot`` replaces its first ``last`` events."""
        return cls(last=last, _dropped=last, _snapshot=snapshot)

    def add(self, events: list[ChatEvent]) -> Batch:
        lines = list[bytes]()
        for number, event in enumerate(events, self.last + 1):
            lines.append(line := encode(event))
            self.size += len(line) + _LINE_BYTES
            if type(event) is TurnWarning:
                self.warnings.append(event)
            elif type(event) is ToolConfirmationRequired:
                self.confirmations[event.confirmation_id] = number
        batch = Batch(self.last + 1, lines, events)
        self._recent.append(batch)
        self._lines += lines
        self.last += len(lines)
        if self.size > self.max_bytes:
            self._drop_older_half()
        return batch

    def after(self, position: int) -> Batch | None:
        """Return a batch of events, or the snapshot, that follow event number ``position``, or None."""
        if position >= self.last:
            return None
        recent = [batch for batch in self._recent if batch.first > position]
        if recent and recent[0].first == position + 1:
            lines = [line for batch in recent for line in batch.lines]
            return Batch(position + 1, lines, [event for batch in recent for event in batch.events])
        if self._snapshot is not None and position < self._dropped:
            return Batch(self._dropped, (encode(self._snapshot),), (self._snapshot,))
        begin = position - self._dropped
        return Batch(position + 1, self._lines[begin : begin + _MAX_BATCH_EVENTS])

    def release(self) -> None:
        """Free the event objects after the end of the run. Clients that resume it need only the lines."""
        self._recent.clear()

    def _drop_older_half(self) -> None:
        """Replace the older half of the events by a snapshot of their text. The latest event is always retained."""
        count = size = 0
        while size < self.size // 2 and count < len(self._lines) - 1:
            size += len(self._lines[count]) + _LINE_BYTES
            count += 1
        earlier = self._snapshot or Snapshot("", "")
        content, thinking = [earlier.content], [earlier.thinking]
        for event in map(decode, self._lines[:count]):
            if isinstance(event, Snapshot):
                content, thinking = [event.content], [event.thinking]
            elif isinstance(event, ContentDelta | ThinkingDelta):
                (content if isinstance(event, ContentDelta) else thinking).append(event.content)
        self._snapshot = Snapshot("".join(content), "".join(thinking))
        del self._lines[:count]
        self._recent.clear()
        self.size -= size
        self._dropped += count


RunState = Literal["running", "waiting_for_approval", "completed", "failed", "stopped", "cancelled"]
"""State of a run. A client can stop a run. A disconnect, a shutdown or another server can cancel a run.

A run that waits for approval is parked: its task has ended, and another run continues its turn.
"""


class TurnParked(Exception):
    """Signal that ends the task of a turn that waits for approval. The record of the turn is stored."""


@dataclass(eq=False)
class Confirmation:
    """Request for the client's decision on a tool call that waits."""

    confirmation_id: str
    bound: BoundCall  # the call to run; the client's decision may replace its arguments
    find: FindTool  # returns the tool that has a name now
    expires_at: float | None = None  # Unix time in seconds, or None for no timeout
    decision: "asyncio.Future[Decision]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Decision of the client. The future is cancelled if the timeout passes first, and has an error if it is parked."""
    stored: asyncio.Event = field(default_factory=asyncio.Event)  # set when the decision is durable, or has a failure
    failure: StorageFailed | None = None  # why the decision was not stored, so that the call waits for another

    async def is_stale(self) -> bool:
        """Return whether another tool has the name of the requested tool now."""
        tool = await self.find(self.bound.call.name)
        return tool is not None and tool is not self.bound.tool and tool.identity != self.bound.tool.identity


@dataclass(eq=False)
class Run:
    conversation: Conversation
    input: TurnInput  # input without the bytes of its images
    run_id: str = field(default_factory=new_id)
    model: str = ""  # of the request or the session
    position: int = 0  # number of messages in the session before the messages of the turn
    holds_text: bool = False  # whether the answer may be replaced, so that some protocols must hold its text
    caller: Caller = field(default_factory=CALLER.get)  # caller inside the session of the run
    disconnect_grace: float = 0  # time in seconds that the run continues without subscribers
    state: RunState = "running"
    result: TurnResult = field(default_factory=TurnResult)
    log: EventLog = field(default_factory=EventLog)
    began: float = field(default_factory=time.monotonic)
    subscribers: int = 0  # number of clients that receive the events of the run or wait for its result
    waiting: Confirmation | None = None  # request for the decision that the task waits for
    suspended: bool = False  # whether the run waits without a subscriber for the decision on a tool call
    earlier: Sequence[str] = ()  # IDs of the parked runs whose turn this run continues, the first run first
    continued_by: "Run | None" = None  # run that continues this run, after it was parked
    is_parking: bool = False  # whether the turn is being parked, so that it cannot be cancelled
    is_stored: bool = False  # whether the run has ended, and only its stored result is known
    continued_after: int = 0  # number of the last event that repeats events of the run before
    cancel_timer: asyncio.TimerHandle | None = None  # timer that cancels the run after its last client has disconnected
    stopped: bool = False
    abort_error: MochiError | None = None  # error to report if the server cancels the run, else None
    task: "asyncio.Task[None] | None" = None  # task that executes the run, or None before the start and after the end
    _forwarders: "set[_Forwarder]" = field(default_factory=set)
    _unparked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def session_id(self) -> str:
        return self.conversation.session_id

    @property
    def origin(self) -> str:
        """ID of the first run of the turn."""
        return (*self.earlier, self.run_id)[0]

    @property
    def continues(self) -> str | None:
        """ID of the parked run that this run continues, or None."""
        return self.earlier[-1] if self.earlier else None

    def stored_state(self, state: str, answer_id: str | None = None) -> dict[str, Any]:
        """Return the state of the run as the ``last_run`` of its session."""
        earlier = {"earlier": list(self.earlier)} if self.earlier else {}
        return {"run_id": self.run_id, "state": state, "answer_id": answer_id, **earlier}

    @property
    def running(self) -> bool:
        return self.state == "running" or self.is_parked

    @property
    def is_parked(self) -> bool:
        return self.state == "waiting_for_approval" and not self._unparked.is_set()

    @property
    def latest(self) -> "Run":
        """Run that continues this run now, or the run itself."""
        return self if self.continued_by is None else self.continued_by.latest

    def unpark(self, continued_by: "Run | None" = None) -> None:
        """Hand the clients of a parked run over to the run that continues it, or end their streams."""
        self.continued_by = continued_by
        if continued_by is not None:
            continued_by.subscribers += self.subscribers
        self._unparked.set()
        for forwarder in self._forwarders:
            forwarder.wake()

    @property
    def answer_id(self) -> str | None:
        """ID of the answer's message, which may be partial, or None if there is no answer yet."""
        return None if self.result.answer is None else self.result.answer["message_id"]

    @property
    def failure(self) -> MochiError | None:
        if self.state == "waiting_for_approval" and self._unparked.is_set() and self.continued_by is None:
            return ShuttingDown(was_running=True)
        return self.result.failure or (self.abort_error if self.result.cancelled else None)

    def state_after(self, result: TurnResult) -> RunState:
        """Return the final state of the run if its turn ends with ``result``."""
        if result.cancelled:
            return "stopped" if self.stopped else "cancelled"
        return "failed" if result.failure else "completed"

    @property
    def pending(self) -> str | None:
        """ID of the request for approval that clients can decide, or None."""
        if self.waiting is not None:
            return self.waiting.confirmation_id
        confirmation_id, number = next(reversed(self.log.confirmations.items()), (None, 0))
        if self.state == "waiting_for_approval":
            return confirmation_id
        # An event follows each decision. A turn can be parked before its latest request is announced.
        return confirmation_id if self.is_parking and number == self.log.last else None

    def park(self) -> bool:
        """Park the turn if a tool call waits for a decision. Return whether the turn is being parked."""
        if self.waiting is not None:
            self.is_parking = True
            self.waiting.decision.set_exception(TurnParked())
            self.waiting = None
        return self.is_parking

    def park_or_cancel(self, abort_error: MochiError | None = None) -> None:
        """Park the turn if a tool call waits for a decision, else cancel the run."""
        if not self.park():
            self.cancel(abort_error)

    def cancel(self, abort_error: MochiError | None = None) -> None:
        """Cancel the run after its task has started, so that the task executes its cleanup code."""
        self.abort_error = abort_error or self.abort_error
        if self.task is not None:
            self.task.get_loop().call_soon(self._cancel_task)

    def _cancel_task(self) -> None:
        if self.task is not None and not self.is_parking:
            self.task.cancel()

    def publish(self, events: list[ChatEvent]) -> None:
        batch = self.log.add(events)
        for forwarder in self._forwarders:
            forwarder.notify(batch)

    async def forward(self, receive: "ReceiveBatch", after: int = 0, *, idle: float | None = None) -> None:
        """Call ``receive`` with this run and its events after number ``after``. If it is parked, its successors follow.

        After ``idle`` seconds without events, ``receive`` gets None in place of events.
        """
        run: Run | None = self
        while run is not None:
            forwarder = _Forwarder(run, receive, after)
            run._forwarders.add(forwarder)
            try:
                while await forwarder.catch_up():
                    if not await forwarder.wait_for_events(idle):
                        await receive(run, None)
            finally:
                run._forwarders.discard(forwarder)
                forwarder.close()
            run = run.continued_by
            after = 0 if run is None else run.continued_after

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Count a subscriber. If all stay away for ``disconnect_grace`` seconds, park or cancel the run."""
        self.subscribers += 1
        if self.cancel_timer is not None:
            self.cancel_timer.cancel()
            self.cancel_timer = None
        try:
            yield
        finally:
            self.latest._unsubscribe()

    async def collect(self) -> TurnResult:
        """Wait until the turn has ended and return its result. If an error ended the run, raise that error."""
        if self.task is not None:
            await asyncio.wait([self.task])
        if self.state == "waiting_for_approval":
            await self._unparked.wait()
            if self.continued_by is not None:
                return await self.continued_by.collect()
        if self.failure is not None:
            raise self.failure
        return self.result

    def _unsubscribe(self) -> None:
        self.subscribers -= 1
        cancels = self.input.on_disconnect == "cancel" and not self.suspended
        if self.subscribers == 0 and self.state == "running" and cancels:
            loop = asyncio.get_running_loop()
            self.cancel_timer = loop.call_later(self.disconnect_grace, self.park_or_cancel)


ReceiveBatch = Callable[[Run, Batch | None], Coroutine[Any, Any, None]]


class _Forwarder:
    """Forwarder of events to ``receive``. Without a task switch, as long as ``receive`` returns without waiting."""

    def __init__(self, run: Run, receive: ReceiveBatch, position: int) -> None:
        self._run = run
        self._receive = receive
        self._position = position
        self._is_fast = False
        self._call: EagerCall | None = None
        self._loop = asyncio.get_running_loop()
        self._wakeup: asyncio.Future[None] | None = None  # ends the wait of the task, if it waits
        self._last_activity = self._loop.time()

    def notify(self, batch: Batch) -> None:
        """Pass a batch directly to ``receive`` if ``receive`` is fast, else wake the task."""
        self._last_activity = self._loop.time()
        if self._wakeup is None or self._wakeup.done():
            return
        if self._is_fast:
            run = self._run
            self._position = run.log.last
            call = EagerCall(self._receive(run, batch))
            if call.is_done and run.running:
                return
            self._call = call
        self._wakeup.set_result(None)

    def wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def catch_up(self) -> bool:
        """Pass the new events to ``receive``. Return whether the run is still running."""
        while True:
            if self._call is None:
                batch = self._run.log.after(self._position)
                if batch is None:
                    return self._run.running
                self._position = batch.last
                self._call = EagerCall(self._receive(self._run, batch))
            call, self._call = self._call, None
            self._is_fast = call.is_done
            await call

    async def wait_for_events(self, idle: float | None) -> bool:
        """Wait until ``notify`` wakes the task. Return False after ``idle`` seconds without events."""
        self._wakeup = self._loop.create_future()
        if idle is None:
            await self._wakeup
            return True
        timer = self._loop.call_at(self._last_activity + idle, self.wake)
        try:
            await self._wakeup
        finally:
            timer.cancel()
        if self._loop.time() - self._last_activity < idle:
            return True
        self._last_activity = self._loop.time()
        return False

    def close(self) -> None:
        if self._call is not None:
            self._call.close()
