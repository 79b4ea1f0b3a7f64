"""Files of the sessions in a directory: names, locks, reading, saving, and renaming of damaged files.

A turn log contains the changes since the session's file was written. Each line contains one change and the digest of
the history before the change. A line for another history is ignored, so that changes are never applied twice.
"""

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mochi_server.errors import DirectoryInUse, SessionNotFound, StorageBusy, StorageFailed
from mochi_server.sessions.images import Image
from mochi_server.sessions.serialization import decode, decode_file, encode
from mochi_server.sessions.session import is_session_id
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.image_files import ImageFiles
from mochi_server.storage.files.import_staging import recover_imports
from mochi_server.storage.session_record import SessionRecord
from mochi_server.util.platform import lock_file, sync_directory

logger = logging.getLogger(__name__)
_FILE, _LOG = ".json", ".turn.jsonl"
EDIT_SECONDS = 2.0
"""Age in seconds from which an unreadable file counts as damaged. An editor may still be writing a younger file."""
_THREAD_LOCKS = 64
# Decoded messages and encoded lines are both cached, and Python strings use up to four bytes per character.
_BYTES_PER_STORED_BYTE = 8
_SESSION_BYTES = 16 * 1024


@dataclass(frozen=True)
class FileSnapshot:
    """Content of a session's files, and the file signatures that show whether this content is current."""

    record: SessionRecord
    file: atomic_files.Signature
    log: atomic_files.Signature | None

    @property
    def memory(self) -> int:
        return _SESSION_BYTES + _BYTES_PER_STORED_BYTE * (self.file.size + (self.log.size if self.log else 0))


@contextmanager
def storage_errors(operation: str) -> Iterator[None]:
    """Convert every OSError in the ``with`` body to a StorageFailed error that names the failed ``operation``."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(operation, error) from error


class DirectoryLock:
    """Exclusive right of one process to change a sessions directory, which ends with the process. Thread-safe."""

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
        """Lock the directory for this process, and remove or complete what a dead process has left in it.

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
                recover_imports(self._directory)
                for path in self._directory.glob(f".*{atomic_files.TEMPORARY}"):
                    path.unlink()
            except BaseException:
                self._unlock()
                raise
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


class SessionFiles:
    """Session files in a directory: ``<id>.json``, and ``.<id>.turn.jsonl`` during a turn. Methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = DirectoryLock(path)
        self.blobs = ImageFiles(path)
        self._thread_locks = [threading.RLock() for _ in range(_THREAD_LOCKS)]
        self._warned: set[atomic_files.Signature] = set()

    def create_directory(self) -> None:
        """Create the directory with mode 0700 unless it exists, and lock it for this process."""
        if not self.path.exists():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_directory(self.path.parent)
            self.lock.release()  # a lock in a deleted directory has no effect
        self.lock.acquire()

    @contextmanager
    def locked(self, session_id: str) -> Iterator[None]:
        """Lock the directory for this process, and an existing session for this thread."""
        if not is_session_id(session_id) or atomic_files.signature(self._file(session_id)) is None:
            raise SessionNotFound(session_id)
        self.lock.acquire()
        with self._thread_lock(session_id):
            yield

    def read(self, session_id: str) -> FileSnapshot:
        """Read a session. Raises SessionNotFound for a damaged file and renames it, StorageBusy for a new one."""
        if not is_session_id(session_id):
            raise SessionNotFound(session_id)
        # Read the log first: if its changes are then moved to the file, applying them again has no effect.
        log, file = atomic_files.read(self._log(session_id)), atomic_files.read(self._file(session_id))
        if file is None:
            raise SessionNotFound(session_id)
        data, signature = file
        try:
            record = SessionRecord.of(decode_file(session_id, data, signature.modified_ns / 1e9))
        except ValueError as error:
            if 0 <= time.time() - signature.modified_ns / 1e9 < EDIT_SECONDS:
                text = f"The file of session {session_id!r} is incomplete: another program is writing it. Try again."
                raise StorageBusy(text) from error
            self._set_aside(session_id, signature, error)
            raise SessionNotFound(session_id) from error
        return FileSnapshot(apply_log(record, log[0]) if log else record, signature, log[1] if log else None)

    def is_current(self, session_id: str, stored: FileSnapshot) -> bool:
        """Return whether the files have the signatures of ``stored``. After an I/O error, return False."""
        try:
            file, log = atomic_files.signature(self._file(session_id)), atomic_files.signature(self._log(session_id))
        except OSError:
            return False
        return (file, log) == (stored.file, stored.log)

    def create(self, session_id: str, record: SessionRecord, images: Sequence[Image] = ()) -> FileSnapshot | None:
        """Write the file of a new session. Return None if the session id is in use."""
        with self._thread_lock(session_id):
            if os.path.lexists(self._file(session_id)):
                return None
            with self.blobs.storing(record.messages, images):
                self._log(session_id).unlink(missing_ok=True)
                return FileSnapshot(record, atomic_files.write(self._file(session_id), record.file()), None)

    def save(self, session_id: str, before: FileSnapshot, record: SessionRecord) -> FileSnapshot:
        """Write the whole session file, then remove the turn log. A log that remains after a crash has no effect."""
        written = atomic_files.write(self._file(session_id), record.file())
        if before.log:
            self._log(session_id).unlink(missing_ok=True)
        return FileSnapshot(record, written, None)

    def append_to_log(
        self, session_id: str, before: FileSnapshot, record: SessionRecord, line: bytes, *, durably: bool = True
    ) -> FileSnapshot:
        return FileSnapshot(record, before.file, atomic_files.append(self._log(session_id), line, durably=durably))

    def delete(self, session_id: str) -> None:
        """Remove the files of a session that the caller has locked, the turn log last."""
        atomic_files.remove_durably(self._file(session_id), self._log(session_id))

    def scan(self, known: Mapping[str, tuple[int | None, ...]]) -> tuple[set[str], set[str]]:
        """Return the ids of the sessions that differ from ``known`` or have a log, and of removed sessions."""
        unchanged: set[str] = set()
        changed: set[str] = set()
        logs: set[str] = set()
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(_LOG):
                    logs.add(name[1 : -len(_LOG)])
                elif name.endswith(_FILE):
                    session_id = name[: -len(_FILE)]
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if known.get(session_id) == (status.st_ino, status.st_mtime_ns, status.st_size):
                            unchanged.add(session_id)
                        elif is_session_id(session_id) and stat.S_ISREG(status.st_mode):
                            changed.add(session_id)
        existing = unchanged | changed
        return changed | (logs & existing), known.keys() - existing

    def _set_aside(self, session_id: str, damaged: atomic_files.Signature, error: ValueError) -> None:
        result = "it cannot be renamed"
        with self._thread_lock(session_id), suppress(OSError):
            if self.lock.is_held and atomic_files.signature(self._file(session_id)) == damaged:
                result = f"renamed to {atomic_files.quarantine(self._file(session_id)).name}"
                if atomic_files.signature(self._log(session_id)):
                    atomic_files.quarantine(self._log(session_id))
        if damaged not in self._warned:
            self._warned.add(damaged)
            logger.warning("session file cannot be read session_id=%s: %s; %s", session_id, error, result)

    def _thread_lock(self, session_id: str) -> threading.RLock:
        return self._thread_locks[int(session_id, 16) % _THREAD_LOCKS]

    def _file(self, session_id: str) -> Path:
        return self.path / f"{session_id}{_FILE}"

    def _log(self, session_id: str) -> Path:
        return self.path / f".{session_id}{_LOG}"


def tail_line(before: SessionRecord, from_index: int, after: SessionRecord) -> bytes:
    head = {"at": before.digest, "from": from_index, "updated_at": after.metadata.updated_at}
    new = map(encode, after.messages[from_index:])
    return encode(head)[:-1] + b',"messages":[' + b",".join(new) + b"]}\n"


def fields_line(before: SessionRecord, fields: Mapping[str, Any], updated_at: str) -> bytes:
    return encode({"at": before.digest, "fields": fields, "updated_at": updated_at}) + b"\n"


def partial_line(after: SessionRecord) -> bytes:
    return encode({"at": after.digest, "partial": after.partial}) + b"\n"


def apply_log(record: SessionRecord, log: bytes) -> SessionRecord:
    for encoded in log.split(b"\n")[:-1]:
        try:
            line = decode(encoded)
            if line["at"] != record.digest:
                continue
            if "fields" in line:
                record = record.with_fields(line["fields"], line["updated_at"])
            elif "partial" in line:
                record = record.with_partial(line["partial"])
            else:
                record = record.with_tail(line["from"], line["messages"], line["updated_at"])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return record
