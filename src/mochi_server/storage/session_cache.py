"""Cache of the sessions used last, as they were read. Callers compare what they get with what is stored."""

import threading
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

KEPT_BYTES = 64 * 1024 * 1024


class _Measured(Protocol):
    @property
    def memory(self) -> int:
        """About how many bytes it takes up."""


_T = TypeVar("_T", bound=_Measured)


class RecentSessions(Generic[_T]):
    """Those that were not used for the longest time go first. For any number of threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._used = 0
        self._kept: OrderedDict[str, _T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, session_id: str) -> _T | None:
        with self._lock:
            if session_id in self._kept:
                self._kept.move_to_end(session_id)
            return self._kept.get(session_id)

    def keep(self, session_id: str, stored: _T) -> None:
        """Remember a session, unless it alone is too large."""
        with self._lock:
            self._forget(session_id)
            if stored.memory > self._kept_bytes:
                return
            self._kept[session_id] = stored
            self._used += stored.memory
            while self._used > self._kept_bytes:
                self._forget(next(iter(self._kept)))

    def forget(self, session_id: str) -> None:
        with self._lock:
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        if forgotten := self._kept.pop(session_id, None):
            self._used -= forgotten.memory
