"""Requests that wait for an Ollama host: in a queue of this server, and in Ollama until their first
token.
"""

import asyncio
import time
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from mochi_server.ollama.payloads import qualified_name

_POLL_SECONDS, _REPEAT_SECONDS = 1.0, 5.0


class Ticket:
    """Place of an admitted turn among the waiting requests, until its first request enters the
    queue of a host.
    """


class _Waiting(NamedTuple):
    """A request in a queue.

    Requests are granted by round. Each round has one request of each session.
    """

    round: int
    number: int  # in order of arrival
    session_id: str
    granted: "asyncio.Future[None]"


class FairQueue:
    """Queue in front of ``limit`` slots, or of unlimited slots for None.

    Sessions with several requests alternate: the second request of a session waits for those of
    other sessions, also for later ones.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.running = 0
        self._round = 0
        self._number = 0
        self._waiting: list[_Waiting] = []  # the next request first

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def position(self, session_id: str) -> int | None:
        """Return the position of a session's first waiting request, starting at 1, or None if none
        waits.
        """
        for position, waiting in enumerate(self._waiting, 1):
            if waiting.session_id == session_id:
                return position
        return None

    @asynccontextmanager
    async def slot(
        self, session_id: str, on_entered: Callable[[], object] = lambda: None
    ) -> AsyncIterator[None]:
        """Wait for a slot and occupy it. Raises the error of ``abort``.

        ``on_entered`` is called when the request runs or waits. Each request without a session,
        whose ``session_id`` is "", counts as a session of its own.
        """
        self._number += 1
        next_round = self._round
        for each in self._waiting:
            if session_id and each.session_id == session_id:
                next_round = max(next_round, each.round + 1)
        granted = asyncio.get_running_loop().create_future()
        request = _Waiting(next_round, self._number, session_id, granted)
        insort(self._waiting, request)
        self._grant()
        on_entered()
        try:
            await granted
            yield
        finally:
            if request in self._waiting:
                self._waiting.remove(request)
            elif not granted.cancelled() and granted.exception() is None:
                self.running -= 1
                self._grant()

    def abort(self, error: Exception) -> None:
        """Let all waiting requests raise ``error``."""
        while self._waiting:
            granted = self._waiting.pop().granted
            if not granted.done():
                granted.set_exception(error)

    def _grant(self) -> None:
        while self._waiting and (self.limit is None or self.running < self.limit):
            first = self._waiting.pop(0)
            self._round = first.round
            if not first.granted.done():
                self.running += 1
                first.granted.set_result(None)


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """A request from the choice of its host to its end.

    ``answering`` is true after the first token.
    """

    model: str
    is_turn: bool = False
    answering: bool = False
    started: float = field(default_factory=time.monotonic)
    sent: float | None = None  # when it left this server's queue
    missed_probes: int = 0


class RequestTracker:
    """Tracker of the requests of this process to one Ollama host."""

    def __init__(self, on_first_token: Callable[[str, float], None]) -> None:
        # Receives the model and the seconds until the first token, with the wait in the queue.
        self._on_first_token = on_first_token
        self._running: dict[TrackedRequest, None] = {}
        self._answering: Counter[str] = Counter()  # requests after their first token, by model
        # Highest number of parallel answers so far, by model. Ollama does not report its slots.
        self._max_parallel: dict[str, int] = {}
        self._last_turn = time.monotonic()  # when the latest request of a turn ended

    @contextmanager
    def request(self, model: str, *, is_turn: bool = False) -> Iterator[TrackedRequest]:
        """Track a request until the end of the ``with`` body."""
        request = TrackedRequest(qualified_name(model), is_turn)
        self._running[request] = None
        try:
            yield request
        finally:
            del self._running[request]
            if request.answering:
                self._answering[request.model] -= 1
            if is_turn:
                self._last_turn = time.monotonic()

    def count(self, model: str | None = None) -> int:
        """Return the number of requests, or of those to one model."""
        if model is None:
            return len(self._running)
        name = qualified_name(model)
        return sum(request.model == name for request in self._running)

    def slots(self, model: str) -> int:
        """Return the highest number of parallel answers of a model so far, at least 1."""
        return self._max_parallel.get(qualified_name(model), 1)

    def waiting_turns(self) -> int:
        return sum(request.is_turn and not request.answering for request in self._running)

    def seconds_without_turn(self) -> float:
        """Return the time since the latest request of a turn ended, or 0 if one runs or waits."""
        if any(request.is_turn for request in self._running):
            return 0
        return time.monotonic() - self._last_turn

    def record_first_token(self, request: TrackedRequest) -> None:
        """Mark a request as answering, and count its answer until its end.

        Call this once for each request.
        """
        request.answering = True
        self._on_first_token(request.model, time.monotonic() - request.started)
        self._answering[request.model] += 1
        self._max_parallel[request.model] = max(
            self.slots(request.model), self._answering[request.model]
        )

    def is_queued(self, request: TrackedRequest, *, is_loaded: bool) -> bool:
        """Return whether a sent request waits for earlier requests in Ollama.

        Requests are ordered by when their host was chosen, not by when they were sent. If its model
        is loaded, it waits while they use all slots of the model. If not, any earlier request may
        keep Ollama from loading the model.
        """
        earlier = takewhile(lambda other: other is not request, self._running)
        sent = [other for other in earlier if other.sent is not None]
        if not is_loaded:
            return bool(sent)
        same_model = [other for other in sent if other.model == request.model]
        return len(same_model) >= self.slots(request.model)


State = tuple[str, int | None]
"""State of a waiting request, and its position in this server's queue, starting at 1."""
Report = Callable[..., None]
"""Function that receives a state, its position or None, and perhaps the name of a host."""


@contextmanager
def reporting_status(
    state: Callable[[], Awaitable[State]], report: Report | None
) -> Iterator[Callable[[], object]]:
    """Report ``state`` after one second, on changes and every five seconds, until the yielded
    function is called or the ``with`` body ends.

    Report nothing if ``report`` is None.
    """
    if report is None:
        yield lambda: None
        return
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        tasks.append(loop.create_task(_report_status(state, report)))

    # Most answers begin before the first report, so that a timer is enough.
    timer = loop.call_later(_POLL_SECONDS, begin)

    def end() -> None:
        timer.cancel()
        for task in tasks:
            task.cancel()

    try:
        yield end
    finally:
        end()


async def _report_status(state: Callable[[], Awaitable[State]], report: Report) -> None:
    last_status: State = "", None
    reported_at = 0.0
    while True:
        status = await state()
        now = time.monotonic()
        if status != last_status or now - reported_at >= _REPEAT_SECONDS:
            last_status = status
            reported_at = now
            report(*status)
        await asyncio.sleep(_POLL_SECONDS)
