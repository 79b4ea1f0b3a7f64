"""Sharing of each sessions directory by all stores and managers of this process."""

import threading
from collections import Counter
from pathlib import Path
from weakref import finalize

from mochi_server.storage.files.backend import SessionDirectory

_mutex = threading.RLock()  # reentrant, because garbage collection can run a finalizer at any time
_users: Counter[Path] = Counter()
_directories: dict[Path, SessionDirectory] = {}


class DirectoryUse:
    """Use of a directory by one store or manager, from its first access until ``close`` or garbage collection.

    The last use that ends closes the directory, which unlocks it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory: SessionDirectory | None = None

    @property
    def directory(self) -> SessionDirectory:
        with _mutex:
            if self._directory is None:
                path = self._path.resolve()
                _users[path] += 1
                self._directory = _directories.setdefault(path, SessionDirectory(self._path))
                self._finalizer = finalize(self, _end_use, path)
            return self._directory

    def close(self) -> None:
        """End this use. The next access begins a new one."""
        with _mutex:
            if self._directory is not None:
                self._directory = None
                self._finalizer()


def _end_use(path: Path) -> None:
    with _mutex:
        _users[path] -= 1
        if not _users[path]:
            del _users[path]
            _directories.pop(path).close()
