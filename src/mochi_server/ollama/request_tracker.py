"""Running requests to models, for the status of those that wait."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from mochi_server.ollama.payloads import qualified_name


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """One request, tracked while its context is open; ``answering`` is set at its first token."""

    model: str
    _under_way: "dict[TrackedRequest, None]"
    answering: bool = False
    began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> "TrackedRequest":
        self._under_way[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        del self._under_way[self]


class RequestTracker:
    """The requests of this process to one Ollama, oldest first."""

    def __init__(self, on_first_token: Callable[[str, float], None] = lambda *_: None) -> None:
        self._on_first_token = on_first_token
        """Receives the model and the seconds at each first token."""
        self._running: dict[TrackedRequest, None] = {}
        self._max_parallel: dict[str, int] = {}
        """The most parallel answers of a model so far. Ollama does not return its number of slots."""

    def request(self, model: str) -> TrackedRequest:
        """Return a request to a model, tracked while its context is open."""
        return TrackedRequest(qualified_name(model), self._running)

    def first_token(self, request: TrackedRequest) -> None:
        """Record the first token of a request."""
        request.answering = True
        self._on_first_token(request.model, time.monotonic() - request.began)
        at_once = sum(other.answering and other.model == request.model for other in self._running)
        self._max_parallel[request.model] = max(self._max_parallel.get(request.model, 1), at_once)

    def is_queued(self, request: TrackedRequest, *, loaded: bool) -> bool:
        """Return whether earlier requests occupy every slot of a loaded model, or wait for a model to be loaded."""
        earlier = takewhile(lambda other: other is not request, self._running)
        before = sum(not loaded or other.model == request.model for other in earlier)
        return before >= (self._max_parallel.get(request.model, 1) if loaded else 1)
