"""Cache of replies: the same request gets the same bytes, so they need not be made twice.

It has only replies that are sent at once, and only as long as the models and their configuration stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, ScheduledResult
from mochi_stub.models.prompt_slots import Evaluation

MAX_BYTES = 64 * 1024
"""Limit for a request together with its reply. Longer ones are rarely sent again."""
MAX_BYTES_IN_ALL = 8 * 1024 * 1024
OVERHEAD = 1024
"""Bytes that an entry takes besides its request and reply."""


@dataclass(frozen=True)
class CachedReply:
    """A reply as it was sent, with the number of its pieces if it was streamed. `noted` is for the journal."""

    answer: HttpResponse
    noted: Mapping[str, Any]
    chunks: int = 0
    evaluation: Evaluation | None = None


class ResponseCache:
    """Replies, and the places on models that they need, by request. Used from the event loop only.

    `state` returns what replies depend on: an object, compared by identity, and the number of its changes. It returns
    None if replies may change at any time; then nothing is cached.
    """

    def __init__(self, state: Callable[[], tuple[object, int] | None]) -> None:
        self._state = state
        self._state_of_entries: tuple[object, int] = (None, 0)
        self.known: dict[Hashable, CachedReply | ScheduledResult] = {}
        self.size = 0

    def entries_of(self, request: Request) -> RequestEntries | None:
        """Return the entries of a request, or None if it is not to be cached."""
        state = self._state()
        if state is None or len(request.body) > MAX_BYTES:
            return None
        if state[0] is not self._state_of_entries[0] or state[1] != self._state_of_entries[1]:
            self._state_of_entries = state
            self.clear()
        key = (request.method, request.path, request.query_string, request.raw_headers, request.body)
        return RequestEntries(self, self.known, key, len(request.body) + OVERHEAD)

    def clear(self) -> None:
        """Start a new dictionary, so that requests that still run do not add to it."""
        self.known = {}
        self.size = 0


@dataclass(frozen=True)
class RequestEntries:
    """The entries of one request, which is `size` long; `facts` are how its model is loaded."""

    cache: ResponseCache
    known: dict[Hashable, CachedReply | ScheduledResult]
    key: tuple[Hashable, ...]
    size: int

    def get(self, *facts: Hashable) -> CachedReply | ScheduledResult | None:
        return self.known.get((*self.key, *facts))

    def add(self, entry: CachedReply | ScheduledResult, *facts: Hashable) -> None:
        """Add an entry if it is short. If the cache is full, it is emptied first."""
        remembered, key = self.cache, (*self.key, *facts)
        size = self.size + (len(entry.answer.body) if isinstance(entry, CachedReply) else 0)
        if self.known is not remembered.known or size > MAX_BYTES or key in self.known:
            return
        if remembered.size + size > MAX_BYTES_IN_ALL:
            remembered.clear()
        remembered.size += size
        remembered.known[key] = entry
