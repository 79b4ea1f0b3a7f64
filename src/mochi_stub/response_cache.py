"""Cache of encoded replies that are sent without delay. A change of the models or configuration clears the cache."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from mochi_stub.handlers import ScheduledResult
from mochi_stub.http.messages import HttpResponse, Request
from mochi_stub.models.scheduler import Evaluation

MAX_BYTES = 64 * 1024
"""Maximum total size of a request and its reply in bytes. Longer requests are rarely repeated."""
MAX_BYTES_IN_ALL = 8 * 1024 * 1024
MAX_SEEN = 10_000
"""Maximum number of requests that are tracked in order to detect a repetition."""
OVERHEAD = 1024
"""Estimated size of a cache entry in bytes, without its request and reply."""


class CachedReply(NamedTuple):
    """An encoded reply. `chunks` counts the pieces of a stream. `journal_fields` holds fields for the journal entry."""

    answer: HttpResponse
    journal_fields: Mapping[str, Any]
    chunks: int = 0
    evaluation: Evaluation | None = None


class ResponseCache:
    """Cache of replies and scheduled results by request. Use it on the event loop only.

    Most requests never repeat, so a request is cached from its second occurrence.

    `state` returns the object that replies depend on, and the number of changes of that object. The cache is
    cleared when the object or the number changes. If `state` returns None, replies can change at any time, so no reply
    is cached.
    """

    def __init__(self, state: Callable[[], tuple[object, int] | None]) -> None:
        self._state = state
        self._state_of_entries: tuple[object, int] = (None, 0)
        self.entries: dict[Hashable, CachedReply | ScheduledResult] = {}
        self.size = 0
        self._seen: set[int] = set()

    def entries_of(self, request: Request) -> RequestEntries | None:
        """Return the cache entries of a repeated request, or None if the request is new or cannot be cached."""
        state = self._state()
        if state is None or len(request.body) > MAX_BYTES:
            return None
        if state[0] is not self._state_of_entries[0] or state[1] != self._state_of_entries[1]:
            self._state_of_entries = state
            self.clear()
        key = (request.method, request.path, request.query_string, request.raw_headers, request.body)
        if (fingerprint := hash(key)) not in self._seen:
            if len(self._seen) == MAX_SEEN:
                self._seen.clear()
            self._seen.add(fingerprint)
            return None
        return RequestEntries(self, self.entries, key, len(request.body) + OVERHEAD)

    def clear(self) -> None:
        """Remove all entries. The dictionary is replaced, so that running requests cannot add outdated entries."""
        self.entries = {}
        self.size = 0


class RequestEntries(NamedTuple):
    """Cache entries of one request.

    `size` is the estimated size of the request in bytes. `facts` describe how the model is loaded.
    """

    cache: ResponseCache
    entries: dict[Hashable, CachedReply | ScheduledResult]
    key: tuple[Hashable, ...]
    size: int

    def get(self, *facts: Hashable) -> CachedReply | ScheduledResult | None:
        return self.entries.get((*self.key, *facts))

    def add(self, entry: CachedReply | ScheduledResult, *facts: Hashable) -> None:
        """Add an entry if it is small enough. A full cache is cleared first."""
        cache, key = self.cache, (*self.key, *facts)
        size = self.size + (len(entry.answer.body) if isinstance(entry, CachedReply) else 0)
        if self.entries is not cache.entries or size > MAX_BYTES or key in self.entries:
            return
        if cache.size + size > MAX_BYTES_IN_ALL:
            cache.clear()
        cache.size += size
        cache.entries[key] = entry
