"""Cache of recently used sessions. Callers must check that a cached session is current."""

import threading
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

MAX_BYTES = 64 * 1024 * 1024


class _Sized(Protocol):
    @property
    def memory(self) -> int:
        """Approximate memory use in bytes."""


_T = TypeVar("_T", bound=_Sized)


class SessionCache(Generic[_T]):
    """Thread-safe LRU cache of sessions with a memory limit in bytes."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._used = 0
        self._entries: OrderedDict[str, _T] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, session_id: str) -> _T | None:
        with self._lock:
            if session_id in self._entries:
                self._entries.move_to_end(session_id)
            return self._entries.get(session_id)

    def put(self, session_id: str, stored: _T) -> None:
        """Cache a session, unless this session alone exceeds the memory limit."""
        with self._lock:
            self.remove(session_id)
            if stored.memory > self._max_bytes:
                return
            self._entries[session_id] = stored
            self._used += stored.memory
            while self._used > self._max_bytes:
                self.remove(next(iter(self._entries)))

    def remove(self, session_id: str) -> None:
        with self._lock:
            if removed := self._entries.pop(session_id, None):
                self._used -= removed.memory
