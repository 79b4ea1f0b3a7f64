"""Cache of the sessions used last, as they were read from their files."""

import threading
from collections import OrderedDict

from mochi_server.sessions.folder import Stored

KEPT_BYTES = 64 * 1024 * 1024
"""What sessions may take up in memory, at most; those that were not used for the longest time go first."""

_BYTES_PER_STORED_BYTE = 8
"""Messages as they are, as lines of a file and as they are sent; one rare character makes four bytes of each other."""
_SESSION_BYTES = 16 * 1024


class RecentSessions:
    """Least recently used cache. Callers compare what they get with the files. For any number of threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._room = kept_bytes
        self._kept: OrderedDict[str, tuple[Stored, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, session_id: str) -> Stored | None:
        with self._lock:
            if session_id not in self._kept:
                return None
            self._kept.move_to_end(session_id)
            return self._kept[session_id][0]

    def keep(self, session_id: str, stored: Stored) -> None:
        """Remember a session, unless it alone is too large."""
        size = _SESSION_BYTES + _BYTES_PER_STORED_BYTE * (stored.file.size + (stored.log.size if stored.log else 0))
        with self._lock:
            self._forget(session_id)
            if size > self._room:
                return
            self._kept[session_id] = (stored, size)
            self._bytes += size
            while self._bytes > self._room:
                self._forget(next(iter(self._kept)))

    def forget(self, session_id: str) -> None:
        with self._lock:
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        if session_id in self._kept:
            self._bytes -= self._kept.pop(session_id)[1]
