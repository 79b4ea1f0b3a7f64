"""Requests to models that are under way, so that who waits for one can be told what for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mochi_server.ollama.requests import qualified


@dataclass(eq=False, slots=True)
class Request:
    """One request; ``answering`` is set when its first words have come."""

    model: str
    answering: bool = False
    began: float = field(default_factory=time.monotonic)


class Traffic:
    """The requests of this process to one Ollama, oldest first."""

    def __init__(self, first_words: Callable[[str, float], None] = lambda *_: None) -> None:
        self._first_words = first_words
        """Told of each model that begins to answer, and of the seconds it took."""
        self._under_way: dict[Request, None] = {}
        self._most: dict[str, int] = {}
        """How many requests of a model have been seen to be answered at once; Ollama itself does not tell."""

    @contextmanager
    def request(self, model: str) -> Iterator[Request]:
        """Be under way while inside."""
        request = Request(qualified(model))
        self._under_way[request] = None
        try:
            yield request
        finally:
            del self._under_way[request]

    def answers(self, request: Request) -> None:
        """The first words have come."""
        request.answering = True
        self._first_words(request.model, time.monotonic() - request.began)
        at_once = sum(other.answering and other.model == request.model for other in self._under_way)
        self._most[request.model] = max(self._most.get(request.model, 1), at_once)

    def stands_in_line(self, request: Request, *, loaded: bool) -> bool:
        """Whether others have to be answered first: as many as the model serves, or any where it must be loaded."""
        before = [other for other in self._earlier(request) if not loaded or other.model == request.model]
        return len(before) >= (self._most.get(request.model, 1) if loaded else 1)

    def _earlier(self, request: Request) -> Iterator[Request]:
        for other in self._under_way:
            if other is request:
                return
            yield other
