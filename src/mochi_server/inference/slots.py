"""Slots of the models in Ollama: their latest exchanges, and the requests that use a slot or wait for one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from mochi_server.inference.estimate import PromptSize
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.types import Message

_POLL_SECONDS, _REPEAT_SECONDS = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class Exchange:
    session_id: str
    payload: Mapping[str, Any]
    history: Sequence[Any]
    """Messages from which the prompt was built. The system message includes the instructions of the request."""
    first_stored: Any
    answer_id: str
    size: PromptSize
    tokens: int  # number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger


class Slots:
    """Latest exchange of each model. An exchange is discarded before a new request overwrites the model's slot."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._requests: dict[str, int] = {}
        self._trims: dict[str, tuple[int, str]] = {}
        """Window, and ID of the last trimmed message, of the prompts that are trimmed. The keys are session IDs."""

    def begin(self, model: str) -> int:
        """Discard the exchange of ``model`` before a new request to the model. Return the number of the new request."""
        name = qualified_name(model)
        self._exchanges.pop(name, None)
        self._requests[name] = self._requests.get(name, 0) + 1
        return self._requests[name]

    def record(self, exchange: Exchange, request: int) -> None:
        """Record an exchange whose request has the number ``request``, unless the model has received a newer one."""
        name = qualified_name(exchange.payload["model"])
        if request == self._requests.get(name):
            self._exchanges[name] = exchange

    def get(self, model: str) -> Exchange | None:
        return self._exchanges.get(qualified_name(model))

    def discard_session(self, session_id: str) -> None:
        """Discard the exchanges and the trim record of a session that is about to be deleted."""
        self._trims.pop(session_id, None)
        self._exchanges = {name: each for name, each in self._exchanges.items() if each.session_id != session_id}

    def trim_end(self, session_id: str, window: int | None, history: Sequence[Message]) -> int:
        """Return how many messages earlier prompts have trimmed, or 0 after a change of the window."""
        trimmed_window, last = self._trims.get(session_id, (None, None))
        if last is None or trimmed_window != window:
            return 0
        return next((i + 1 for i, message in enumerate(history) if message["message_id"] == last), 0)

    def record_trim(self, session_id: str, window: int | None, history: Sequence[Message], end: int) -> None:
        """Record that a prompt trims the first ``end`` messages, so that later prompts begin with the same text."""
        if end and window is not None:
            self._trims[session_id] = window, history[end - 1]["message_id"]


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """A running request. ``answering`` is true after the first token."""

    model: str
    answering: bool = False
    started: float = field(default_factory=time.monotonic)


class RequestTracker:
    """Tracker of the requests that this process sends to one Ollama server."""

    def __init__(self, on_first_token: Callable[[str, float], None]) -> None:
        self._on_first_token = on_first_token  # receives the model and the seconds until the first token
        self._running: dict[TrackedRequest, None] = {}
        self._max_parallel: dict[str, int] = {}
        """Estimated slots by model: the most parallel answers so far. Ollama does not report its number of slots."""

    @contextmanager
    def request(self, model: str) -> Iterator[TrackedRequest]:
        request = TrackedRequest(qualified_name(model))
        self._running[request] = None
        try:
            yield request
        finally:
            del self._running[request]

    def first_token(self, request: TrackedRequest) -> None:
        request.answering = True
        self._on_first_token(request.model, time.monotonic() - request.started)
        parallel = sum(other.answering and other.model == request.model for other in self._running)
        self._max_parallel[request.model] = max(self._max_parallel.get(request.model, 1), parallel)

    def is_queued(self, request: TrackedRequest, *, loaded: bool) -> bool:
        """Return whether a request waits because earlier requests use all slots of the model, or must load models."""
        earlier = takewhile(lambda other: other is not request, self._running)
        count = sum(not loaded or other.model == request.model for other in earlier)
        return count >= (self._max_parallel.get(request.model, 1) if loaded else 1)


@contextmanager
def reporting_status(
    state: Callable[[], Awaitable[str]], report: Callable[[str], None] | None
) -> Iterator[Callable[[], object]]:
    """Report ``state`` after one second, on changes and every five seconds, until the yielded function is called."""
    if report is None:
        yield lambda: None
        return
    task = asyncio.get_running_loop().create_task(_report_status(state, report))
    try:
        yield task.cancel
    finally:
        task.cancel()


async def _report_status(state: Callable[[], Awaitable[str]], report: Callable[[str], None]) -> None:
    last_status, reported_at = "", 0.0
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        status, now = await state(), time.monotonic()
        if status != last_status or now - reported_at >= _REPEAT_SECONDS:
            last_status, reported_at = status, now
            report(status)
