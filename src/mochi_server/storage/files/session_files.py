"""Files of the sessions in a directory: names, reading, saving, and renaming of damaged files."""

import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mochi_server.errors import SessionNotFound, StorageBusy, StorageFailed
from mochi_server.sessions.images import Image
from mochi_server.sessions.serialization import decode_file
from mochi_server.sessions.session import is_session_id
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.image_files import ImageFiles
from mochi_server.storage.files.import_staging import ImportStaging
from mochi_server.storage.files.locks import DirectoryLock, ThreadLocks
from mochi_server.storage.files.turn_log import apply_log
from mochi_server.storage.session_record import SessionRecord
from mochi_server.util.platform import scan_directory, sync_directory

logger = logging.getLogger(__name__)
_FILE, _LOG = ".json", ".turn.jsonl"
EDIT_SECONDS = 2.0
"""Age in seconds from which an unreadable file counts as damaged. An editor may still be writing a younger file."""
_STALE_SECONDS = 3600.0  # temporary files of this age belong to dead processes and are removed
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

    @property
    def is_settled(self) -> bool:
        """Whether the files are old enough that every later change results in different signatures."""
        return all(signature.is_settled for signature in (self.file, self.log) if signature)


class _Unreadable(Exception):
    """Exception for a file that does not contain a valid session."""


@contextmanager
def storage_errors(operation: str) -> Iterator[None]:
    """Convert every OSError in the ``with`` body to a StorageFailed error that names the failed ``operation``."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(operation, error) from error


class SessionFiles:
    """Session files in a directory: ``<id>.json`` and, during a turn or after a crash, ``.<id>.turn.jsonl``.

    Methods raise OSError, and SessionNotFound for an unknown session id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = DirectoryLock(path)
        self._locks = ThreadLocks()
        self.blobs = ImageFiles(path, self._locks)
        self.imports = ImportStaging(path, self._locks, self.blobs)
        self._warned: set[tuple[str, atomic_files.Signature | None]] = set()

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
        self._require(session_id)
        self.lock.acquire()
        with self._locks.session(session_id):
            yield

    def read(self, session_id: str) -> FileSnapshot:
        """Read a session. Raises SessionNotFound for a damaged file, or StorageBusy if the file is very new.

        If this process has locked the directory, it renames a damaged file.
        """
        if not is_session_id(session_id):
            raise SessionNotFound(session_id)
        try:
            return self._read(session_id)
        except _Unreadable:
            with self._locks.session(session_id):
                return self.read_locked(session_id)

    def read_locked(self, session_id: str) -> FileSnapshot:
        """Read a session that the caller has locked."""
        try:
            return self._read(session_id)
        except _Unreadable as error:
            status = atomic_files.signature(self._file(session_id))
            if status and 0 <= time.time() - status.modified_ns / 1e9 < EDIT_SECONDS:
                text = f"The file of session {session_id!r} is incomplete: another program is writing it. Try again."
                raise StorageBusy(text) from error
            self._set_aside(session_id, error)
            raise SessionNotFound(session_id) from error

    def is_current(self, session_id: str, stored: FileSnapshot) -> bool:
        """Return whether the files have the signatures of ``stored``. After an I/O error, return False."""
        try:
            file = atomic_files.signature(f"{self.path}{os.sep}{session_id}{_FILE}")
            log = atomic_files.signature(f"{self.path}{os.sep}.{session_id}{_LOG}")
        except OSError:
            return False
        return (file, log) == (stored.file, stored.log)

    def create(self, session_id: str, record: SessionRecord, images: Sequence[Image] = ()) -> FileSnapshot | None:
        """Write the file of a new session. Return None if the session id is in use."""
        with self._locks.session(session_id):
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

    def delete(self, session_id: str) -> bool:
        """Remove a session's files, the turn log last. Return whether the files may have referenced images."""
        self._require(session_id)
        files = self._file(session_id), self._log(session_id)
        had_images = self.blobs.may_be_referenced_in(*files)
        atomic_files.remove_durably(*files)
        return had_images

    def scan(self, known: Mapping[str, tuple[int | None, ...]]) -> tuple[set[str], set[str]]:
        """Compare the signatures of all session files with ``known``, and remove stale temporary files.

        Return the ids of the sessions that have changed or have a turn log, and the ids of removed sessions.
        """
        unchanged: set[str] = set()
        changed: set[str] = set()
        logs: set[str] = set()
        with suppress(FileNotFoundError), scan_directory(self.path) as entries:
            # A directory may have many files, so this loop does little more than a stat for an unchanged file.
            for entry in entries:
                name = entry.name
                if name.endswith(_FILE):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    session_id = name[: -len(_FILE)]
                    if known.get(session_id) == (status.st_ino, status.st_mtime_ns, status.st_size):
                        unchanged.add(session_id)
                    elif is_session_id(session_id) and stat.S_ISREG(status.st_mode):
                        changed.add(session_id)
                elif name[0] == "." and name.endswith(atomic_files.TEMPORARY):
                    self._remove_if_stale(self.path / name)
                elif name[0] == "." and name.endswith(_LOG) and is_session_id(name[1 : -len(_LOG)]):
                    logs.add(name[1 : -len(_LOG)])
        existing = unchanged | changed
        for session_id in logs - existing:
            self._remove_if_stale(self._log(session_id))
        return changed | (logs & existing), known.keys() - existing

    def _require(self, session_id: str) -> None:
        if not is_session_id(session_id) or atomic_files.signature(self._file(session_id)) is None:
            raise SessionNotFound(session_id)

    def _read(self, session_id: str) -> FileSnapshot:
        # Read the log first: if its changes are then moved to the file, applying them again has no effect.
        log = atomic_files.read(f"{self.path}{os.sep}.{session_id}{_LOG}")
        file = atomic_files.read(f"{self.path}{os.sep}{session_id}{_FILE}")
        if file is None:
            raise SessionNotFound(session_id)
        try:
            record = SessionRecord.of(decode_file(session_id, file[0], file[1].modified_ns / 1e9))
        except ValueError as error:
            raise _Unreadable(str(error)) from error
        return FileSnapshot(apply_log(record, log[0]) if log else record, file[1], log[1] if log else None)

    def _set_aside(self, session_id: str, error: _Unreadable) -> None:
        if not self.lock.is_held:
            self._warn_once(session_id, str(error))
            return
        try:
            target = atomic_files.quarantine(self._file(session_id), "corrupt")
            if atomic_files.signature(self._log(session_id)):
                atomic_files.quarantine(self._log(session_id), "corrupt")
        except OSError as failure:
            self._warn_once(session_id, f"{error}; it cannot be renamed: {failure}")
        else:
            logger.warning(
                "session file cannot be read session_id=%s: %s; renamed to %s", session_id, error, target.name
            )

    def _warn_once(self, session_id: str, reason: str) -> None:
        key = (session_id, atomic_files.signature(self._file(session_id)))
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("session file cannot be read session_id=%s: %s", session_id, reason)

    def _file(self, session_id: str) -> Path:
        return self.path / f"{session_id}{_FILE}"

    def _log(self, session_id: str) -> Path:
        return self.path / f".{session_id}{_LOG}"

    def _remove_if_stale(self, path: Path) -> None:
        with suppress(OSError):
            if self.lock.is_held and time.time() - path.lstat().st_mtime > _STALE_SECONDS:
                path.unlink()
