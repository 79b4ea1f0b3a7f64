"""File locks that allow only one thread of one process at a time to write a session's files."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from mochi_server.errors import StorageBusy
from mochi_server.util.platform import exclusive_lock

SLOTS = 64
"""Number of lock files for the sessions of a directory. The session id selects the lock file."""
LOCK_TIMEOUT_SECONDS = 30.0
"""Default timeout for acquiring a lock."""


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
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o700, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive_lock(self._directory / f"{name}.lock", self._timeout))
            except TimeoutError as error:
                raise StorageBusy(
                    f"Another process or request has locked the file {name}.lock in the sessions directory."
                ) from error
            yield
