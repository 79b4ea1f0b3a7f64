"""Tracker of running requests to models. The tracker determines which requests are queued in Ollama."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile

from mochi_server.ollama.payloads import qualified_name


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
