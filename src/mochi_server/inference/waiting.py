"""Running requests to models: which of them are queued in Ollama, and their status until the first token."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile

from mochi_server.ollama.payloads import qualified_name

_POLL_SECONDS = 1.0
"""Delay before the first status, and between two polls of the status, in seconds."""
_REPEAT_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """A running request. ``answering`` is true after the first token."""

    model: str
    answering: bool = False
    started: float = field(default_factory=time.monotonic)


class RequestTracker:
    """Tracker of the requests that this process sends to one Ollama server."""

    def __init__(self, on_first_token: Callable[[str, float], None] = lambda *_: None) -> None:
        self._on_first_token = on_first_token
        """Callback that receives the model and the seconds until the first token."""
        self._running: dict[TrackedRequest, None] = {}
        self._answering: Counter[str] = Counter()
        self._max_parallel: dict[str, int] = {}
        """Estimated slots by model: the most parallel answers so far. Ollama does not report its number of slots."""

    @contextmanager
    def request(self, model: str) -> Iterator[TrackedRequest]:
        """Track a request to ``model`` until the ``with`` block ends."""
        request = TrackedRequest(qualified_name(model))
        self._running[request] = None
        try:
            yield request
        finally:
            del self._running[request]
            self._answering[request.model] -= request.answering

    def first_token(self, request: TrackedRequest) -> None:
        """Record the first token of a request."""
        request.answering = True
        self._answering[request.model] += 1
        self._on_first_token(request.model, time.monotonic() - request.started)
        parallel = self.parallel_answers(request.model)
        self._max_parallel[request.model] = max(self._max_parallel.get(request.model, 1), parallel)

    def parallel_answers(self, model: str) -> int:
        """Return how many requests to ``model``, a name with tag, have received their first token and still run."""
        return self._answering[model]

    def is_queued(self, request: TrackedRequest, *, loaded: bool) -> bool:
        """Return whether a request waits in Ollama because earlier requests use all slots of the model.

        A slot generates one answer at a time. If ``loaded`` is false, the request waits for any earlier request,
        including requests to other models.
        """
        earlier = takewhile(lambda other: other is not request, self._running)
        count = sum(not loaded or other.model == request.model for other in earlier)
        return count >= (self._max_parallel.get(request.model, 1) if loaded else 1)


@dataclass(eq=False)
class FirstTokenWait:
    """Context manager that reports the status of a request: after one second, on each change, and every five seconds.

    ``state`` returns the status. If ``report`` is None, nothing is reported.
    """

    state: Callable[[], Awaitable[str]]
    report: Callable[[str], None] | None
    _waiting: "asyncio.TimerHandle | asyncio.Task[None] | None" = None
    _reported: tuple[str, float] = ("", 0.0)

    def __enter__(self) -> "FirstTokenWait":
        if self.report is not None:
            self._poll_later()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop reporting. The caller does this when the first token arrives."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _poll_later(self) -> None:
        self._waiting = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._start_poll)

    def _start_poll(self) -> None:
        # A short task for each poll: a task that sleeps between polls needs 1 KB of memory per waiting stream.
        self._waiting = asyncio.get_running_loop().create_task(self._poll())

    async def _poll(self) -> None:
        state, now = await self.state(), time.monotonic()
        last_state, reported_at = self._reported
        if self.report is not None and (state != last_state or now - reported_at >= _REPEAT_SECONDS):
            self._reported = state, now
            self.report(state)
        self._poll_later()
