"""Locks of a sessions directory: one for the process that changes it, and locks between the threads of this process."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mochi_server.errors import DirectoryInUse
from mochi_server.util.platform import lock_file

_SLOTS = 64


class DirectoryLock:
    """Exclusive right of one process to change a sessions directory. Thread-safe.

    The system releases the lock when the process ends. Child processes do not inherit it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owner_file = directory / ".lock-owner"
        self._mutex = threading.Lock()
        self._process_id: int | None = None
        self._unlock: Callable[[], None] = lambda: None

    @property
    def is_held(self) -> bool:
        return self._process_id == os.getpid()  # a forked child does not have the lock

    def acquire(self) -> None:
        """Lock the directory for this process. Raises ``DirectoryInUse`` if another process has locked it, OSError."""
        with self._mutex:
            if self.is_held:
                return
            try:
                self._unlock = lock_file(self._directory / ".lock")
            except BlockingIOError as error:
                raise self._in_use() from error
            self._process_id = os.getpid()
            with suppress(OSError):  # the file only explains the lock to other processes
                self._owner_file.write_text(f"{self._process_id} {socket.gethostname()}", "utf-8")

    def release(self) -> None:
        with self._mutex:
            if self.is_held:
                with suppress(OSError):
                    self._owner_file.unlink(missing_ok=True)
                self._unlock()
                self._process_id = None

    def _in_use(self) -> DirectoryInUse:
        try:
            process_id, _, host = self._owner_file.read_text("utf-8").partition(" ")
        except (OSError, ValueError):
            process_id, host = "", ""
        return DirectoryInUse(str(self._directory), process_id, "" if host == socket.gethostname() else host)


class ThreadLocks:
    """Locks between the threads of this process. To lock a session and the images, lock the session first."""

    def __init__(self) -> None:
        self._sessions = [threading.Lock() for _ in range(_SLOTS)]
        self.images = threading.Lock()
        self.imports = threading.Lock()

    def session(self, session_id: str) -> threading.Lock:
        return self._sessions[int(session_id, 16) % _SLOTS]
