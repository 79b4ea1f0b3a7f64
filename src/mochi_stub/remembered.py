"""What was said before, word for word: the same request gets the same bytes, so they need not be made twice.

Kept is only what is said at once, and only as long as the models and their configuration stay what they were. This
module knows neither routes nor wires.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_stub.answer import Answer, Request, Scheduled

MAX_BYTES = 64 * 1024
"""Of a request together with what was said to it. Longer ones are rarely asked again."""
MAX_BYTES_IN_ALL = 8 * 1024 * 1024
OVERHEAD = 1024
"""Bytes that anything takes beside its own."""

State = Callable[[], "tuple[object, int] | None"]
"""What replies are made from: an object, compared by identity, and the number of its changes. None: they may change
without showing it, so that nothing is to be remembered."""


@dataclass(frozen=True)
class Said:
    """A reply as it went out, its pieces of content counted where it was streamed. `noted` is for the journal."""

    answer: Answer
    noted: Mapping[str, Any]
    chunks: int = 0


class Remembered:
    """Replies, and the places on models that they need, by request. Used from the event loop only."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._of: tuple[object, int] = (None, 0)
        self._bytes = 0
        self.known: dict[Hashable, Said | Scheduled] = {}

    def of(self, request: Request) -> Memory | None:
        """What is remembered of a request as things are; None where nothing is to be."""
        state = self._state()
        if state is None or len(request.body) > MAX_BYTES:
            return None
        if state[0] is not self._of[0] or state[1] != self._of[1]:
            self._of = state
            self._forget()
        return Memory(self, request)

    def keep(self, key: Hashable, known: Said | Scheduled, size: int) -> None:
        """Remember it, if it is short; when there is too much, everything else is forgotten."""
        if size > MAX_BYTES or key in self.known:
            return
        if self._bytes + size > MAX_BYTES_IN_ALL:
            self._forget()
        self._bytes += size
        self.known[key] = known

    def _forget(self) -> None:
        self.known = {}  # another one, so that who still answers an older request keeps it out of this one
        self._bytes = 0


class Memory:
    """What is remembered of one request; `facts` tell apart what it may be answered, by how its model is loaded."""

    def __init__(self, remembered: Remembered, request: Request) -> None:
        self._remembered = remembered
        self._known = remembered.known
        self._key = (request.method, request.path, request.query_string, request.raw_headers, request.body)
        self._size = len(request.body) + OVERHEAD

    def recall(self, *facts: Hashable) -> Said | Scheduled | None:
        return self._known.get((*self._key, *facts))

    def keep(self, known: Said | Scheduled, *facts: Hashable) -> None:
        if self._known is self._remembered.known:
            size = self._size + (len(known.answer.body) if isinstance(known, Said) else 0)
            self._remembered.keep((*self._key, *facts), known, size)
