"""Who may write now: one turn at a time within this process, one write at a time among processes."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from mochi_server.errors import StorageBusy
from mochi_server.util.platform import exclusive_lock

SLOTS = 64
"""Lock files of a directory; sessions share them."""

LOCK_TIMEOUT_SECONDS = 30.0
"""How long a thread waits for a lock by default."""


class FileLocks:
    """Locks among threads and processes, held for one write each. For threads.

    All methods raise StorageBusy after ``patience`` seconds, and OSError if the lock file cannot be opened.
    """

    def __init__(self, directory: Path, timeout: float = LOCK_TIMEOUT_SECONDS) -> None:
        self._directory = directory
        self._timeout = timeout
        names = [*(f"{slot:02d}" for slot in range(SLOTS)), "blobs", "import"]
        self._threads = {name: threading.Lock() for name in names}

    def exclusive(self, session_id: str) -> AbstractContextManager[None]:
        """Lock a session."""
        return self._locked(f"{int(session_id, 16) % SLOTS:02d}")

    def blobs(self) -> AbstractContextManager[None]:
        """Lock the images of all sessions. Lock the session first, if both are needed."""
        return self._locked("blobs")

    def imports(self) -> AbstractContextManager[None]:
        """Lock the directories of imports."""
        return self._locked("import")

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        threads, deadline = self._threads[name], time.monotonic() + self._timeout
        busy = StorageBusy(f"Another process or request holds the lock file {name}.lock of the sessions directory.")
        if not threads.acquire(timeout=self._timeout):
            raise busy
        with ExitStack() as stack:
            stack.callback(threads.release)
            if not self._directory.is_dir():
                self._directory.mkdir(mode=0o700, exist_ok=True)
            try:
                stack.enter_context(
                    exclusive_lock(self._directory / f"{name}.lock", max(0, deadline - time.monotonic()))
                )
            except TimeoutError as error:
                raise busy from error
            yield
