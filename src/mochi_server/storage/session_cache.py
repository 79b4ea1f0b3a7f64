"""Cache of the sessions used last, as they were read. Callers compare what they get with what is stored."""

import threading
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

MAX_BYTES = 64 * 1024 * 1024


class _Measured(Protocol):
    @property
    def memory(self) -> int:
        """About how many bytes it takes up."""


_T = TypeVar("_T", bound=_Measured)


class SessionCache(Generic[_T]):
    """Those that were not used for the longest time go first. For any number of threads."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._used = 0
        self._entries: OrderedDict[str, _T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, session_id: str) -> _T | None:
        with self._lock:
            if session_id in self._entries:
                self._entries.move_to_end(session_id)
            return self._entries.get(session_id)

    def put(self, session_id: str, stored: _T) -> None:
        """Remember a session, unless it alone is too large."""
        with self._lock:
            self._remove(session_id)
            if stored.memory > self._max_bytes:
                return
            self._entries[session_id] = stored
            self._used += stored.memory
            while self._used > self._max_bytes:
                self._remove(next(iter(self._entries)))

    def remove(self, session_id: str) -> None:
        with self._lock:
            self._remove(session_id)

    def _remove(self, session_id: str) -> None:
        if forgotten := self._entries.pop(session_id, None):
            self._used -= forgotten.memory
