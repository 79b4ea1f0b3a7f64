"""Lock of a sessions directory, and the import of many sessions.

After a crash, the next lock completes the import.

An import writes its files to the directory ``.import-<id>.tmp/``. Renaming it to ``.import-<id>/``
commits the import. Then each file is moved to the sessions directory.
"""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from mochi_server.errors import DirectoryInUse
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import NewSession, normalized
from mochi_server.storage.files import atomic_files
from mochi_server.storage.session_record import SessionRecord
from mochi_server.util.clock import new_id
from mochi_server.util.platform import lock_file, sync_directory

_IMPORT_PREFIX = ".import-"
_WRITE_THREADS = 16  # concurrent fsync calls take a tenth of the time of sequential ones


class DirectoryLock:
    """Exclusive right of one process to change a sessions directory, which ends with the process.

    Thread-safe.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owner_file = directory / ".lock-owner"
        self._mutex = threading.RLock()
        self._process_id: int | None = None
        self._unlock: Callable[[], None] = lambda: None

    @property
    def is_held(self) -> bool:
        return self._process_id == os.getpid()  # a forked child does not have the lock

    def create(self) -> None:
        """Create the directory with mode 0700 unless it exists, and lock it with ``acquire``."""
        with self._mutex:
            if not self._directory.exists():
                atomic_files.create_directory(self._directory)
                sync_directory(self._directory.parent)
                self.release()  # a lock in a deleted directory has no effect
            self.acquire()

    def acquire(self) -> None:
        """Lock the directory for this process, and remove or complete what a dead process has left
        in it.

        Raises ``DirectoryInUse`` if another process has locked it, OSError.
        """
        with self._mutex:
            if self.is_held:
                return
            try:
                self._unlock = lock_file(self._directory / ".lock")
            except BlockingIOError as error:
                raise self._in_use() from error
            try:
                _recover(self._directory)
            except BaseException:
                self._unlock()
                raise
            self._process_id = os.getpid()
            with suppress(OSError):  # the file only explains the lock to other processes
                owner = f"{self._process_id} {socket.gethostname()}"
                atomic_files.write(self._owner_file, owner.encode())

    def release(self) -> None:
        with self._mutex:
            if self.is_held:
                with suppress(OSError):
                    self._owner_file.unlink(missing_ok=True)
                self._unlock()
                self._process_id = None

    def _in_use(self) -> DirectoryInUse:
        process_id, host = "", ""
        with suppress(OSError, ValueError):
            process_id, _, host = self._owner_file.read_text("utf-8").partition(" ")
        return DirectoryInUse(
            str(self._directory), process_id, "" if host == socket.gethostname() else host
        )


def import_all(
    directory: Path, sessions: Sequence[NewSession], check: Callable[[], None]
) -> list[ChatSession]:
    """Store all new sessions, or none of them after an error. Return them in the same order.

    Sessions whose id is in use get a new id. The caller stores their blobs. Raises OSError and the
    exceptions of ``check``, which is called before each session and before the commit.
    """
    staging = directory / f"{_IMPORT_PREFIX}{new_id()}"
    unfinished = staging.with_suffix(atomic_files.TEMPORARY)
    try:
        stored = _stage(directory, unfinished, sessions, check)
        unfinished.rename(staging)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    try:
        _publish(staging)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)
        for session in stored:
            with suppress(OSError):  # the other files must not remain
                atomic_files.remove(directory / f"{session.session_id}.json")
        sync_directory(directory)
        raise
    return stored


def _recover(directory: Path) -> None:
    """Remove the temporary files of a dead process, and complete its committed imports."""
    for path in directory.glob(f".*{atomic_files.TEMPORARY}"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in directory.glob(f"{_IMPORT_PREFIX}*"):
        if path.is_dir():
            _publish(path)


def _stage(
    directory: Path, folder: Path, sessions: Sequence[NewSession], check: Callable[[], None]
) -> list[ChatSession]:
    folder.mkdir(mode=0o700)
    stored: dict[str, ChatSession] = {}
    with ThreadPoolExecutor(_WRITE_THREADS) as threads:
        writes = []
        for session, _ in sessions:
            check()
            fresh = normalized(session)
            while fresh.session_id in stored or os.path.lexists(
                directory / f"{fresh.session_id}.json"
            ):
                fresh.metadata.session_id = new_id()
            stored[fresh.session_id] = fresh
            path = folder / f"{fresh.session_id}.json"
            writes.append(
                threads.submit(atomic_files.write_new, path, SessionRecord.of(fresh).file())
            )
    for write in writes:
        write.result()
    sync_directory(folder)
    check()
    return list(stored.values())


def _publish(staging: Path) -> None:
    """Move the files of a committed import to the sessions directory. Raises OSError."""
    sync_directory(staging.parent)
    for path in staging.iterdir():
        path.rename(staging.parent / path.name)
    sync_directory(staging.parent)
    staging.rmdir()
