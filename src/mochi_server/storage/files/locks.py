"""File locks of a sessions directory: one lock for each write, and one for each running server process."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from mochi_server.errors import StorageBusy
from mochi_server.util.platform import exclusive_lock, is_locked, release_file, try_lock_file

SLOTS = 64
"""Number of lock files for the sessions of a directory. The session id selects the lock file."""
LOCK_TIMEOUT_SECONDS = 30.0
"""Default timeout for acquiring a lock."""
_SUFFIX = ".process"
_NAME = re.compile(r"(\d{1,10})-[0-9a-f]{12}")


class FileLocks:
    """File locks of a sessions directory, which exclude other threads and processes during one write.

    All methods raise StorageBusy after ``timeout`` seconds, and OSError if the lock file cannot be opened.
    """

    def __init__(self, directory: Path, timeout: float = LOCK_TIMEOUT_SECONDS) -> None:
        self._directory = directory
        self._timeout = timeout

    def exclusive(self, session_id: str) -> AbstractContextManager[None]:
        return self._locked(f"{int(session_id, 16) % SLOTS:02d}")

    def blobs(self) -> AbstractContextManager[None]:
        """Lock the images of all sessions. To lock a session as well, lock the session first."""
        return self._locked("blobs")

    def imports(self) -> AbstractContextManager[None]:
        return self._locked("import")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        path = self._directory / f"{name}.lock"
        with ExitStack() as stack:
            try:
                try:
                    stack.enter_context(exclusive_lock(path, self._timeout))
                except FileNotFoundError:
                    self._directory.mkdir(mode=0o700, exist_ok=True)
                    stack.enter_context(exclusive_lock(path, self._timeout))
            except TimeoutError as error:
                raise StorageBusy(
                    f"Another process or request has locked the file {name}.lock in the sessions directory."
                ) from error
            yield


class ProcessRegistry:
    """Registry of server processes, in a directory with one lock file for each process. Its methods block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._register_lock = threading.Lock()
        self.name: str | None = None
        """Name of this process, or None if this process is not registered."""

    def register(self) -> None:
        """Register this process if the system supports file locks. Raises OSError."""
        with self._register_lock:
            if self._descriptor is not None:
                return
            self._directory.mkdir(mode=0o700, exist_ok=True)
            name = f"{os.getpid()}-{uuid4().hex[:12]}"
            unfinished = self._directory / f".{name}"
            try:
                self._descriptor = try_lock_file(unfinished)
                if self._descriptor is not None:
                    unfinished.rename(self._path(name))  # only now, so that other processes find only locked files
                    self.name = name
            except OSError:
                self.unregister()
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                raise

    def unregister(self) -> None:
        if self.name is not None:
            with suppress(OSError):
                self._path(self.name).unlink(missing_ok=True)
        if self._descriptor is not None:
            release_file(self._descriptor)
        self._descriptor = self.name = None

    def other_processes(self) -> tuple[int, ...]:
        """Return the process ids of the other live processes, and remove the files of dead processes."""
        running: list[int] = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if self.is_running(path.stem):
                running.append(int(path.stem.partition("-")[0]))
            elif path.stem != self.name and _NAME.fullmatch(path.stem):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        return tuple(sorted(running))

    def is_running(self, name: str | None) -> bool:
        """Return whether ``name`` is the name of another live process."""
        if name is None or name == self.name or not _NAME.fullmatch(name):
            return False
        return is_locked(self._path(name))

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"
