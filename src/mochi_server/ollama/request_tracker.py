"""Running requests to models, for the status of those that wait."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from mochi_server.ollama.payloads import qualified


@dataclass(eq=False, slots=True)
class Request:
    """One request, tracked while its context is open; ``answering`` is set at its first token."""

    model: str
    _under_way: "dict[Request, None]"
    answering: bool = False
    began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> "Request":
        self._under_way[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        del self._under_way[self]


class Traffic:
    """The requests of this process to one Ollama, oldest first."""

    def __init__(self, first_words: Callable[[str, float], None] = lambda *_: None) -> None:
        self._first_words = first_words
        """Receives the model and the seconds at each first token."""
        self._under_way: dict[Request, None] = {}
        self._most: dict[str, int] = {}
        """The most parallel answers of a model so far. Ollama does not return its number of slots."""

    def request(self, model: str) -> Request:
        """Return a request to a model, tracked while its context is open."""
        return Request(qualified(model), self._under_way)

    def answers(self, request: Request) -> None:
        """Record the first token of a request."""
        request.answering = True
        self._first_words(request.model, time.monotonic() - request.began)
        at_once = sum(other.answering and other.model == request.model for other in self._under_way)
        self._most[request.model] = max(self._most.get(request.model, 1), at_once)

    def stands_in_line(self, request: Request, *, loaded: bool) -> bool:
        """Return whether earlier requests occupy every slot of a loaded model, or wait for a model to be loaded."""
        earlier = takewhile(lambda other: other is not request, self._under_way)
        before = sum(not loaded or other.model == request.model for other in earlier)
        return before >= (self._most.get(request.model, 1) if loaded else 1)
