"""Blocking session storage in a directory of files, for worker threads.

A session is ``<id>.json``. A change outside a turn rewrites this file. A turn rewrites the file at
its first change and at its end, and appends the changes in between to the turn log
``.<id>.turn.jsonl``. A turn of a large session rewrites the file only at its end, as does a turn
whose first change has a partial answer.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from weakref import finalize

from mochi_server.errors import SessionConflict, SessionNotFound, SessionTooNew, StorageBusy
from mochi_server.sessions import store as rules
from mochi_server.sessions.change import Change, Notice
from mochi_server.sessions.serialization import decode_file
from mochi_server.sessions.session import ChatSession, is_session_id
from mochi_server.sessions.types import Blob, Message, PartialMessage, SessionQuery, blobs_in
from mochi_server.sessions.versions import Versions, blobs_in_versions
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.atomic_files import Signature, storage_errors
from mochi_server.storage.files.directory_lock import DirectoryLock, import_all
from mochi_server.storage.files.image_files import ImageFiles
from mochi_server.storage.files.session_index import SessionIndex, session_ids
from mochi_server.storage.session_record import SessionCache, SessionLocks, SessionRecord
from mochi_server.util.clock import new_id, now

MIN_DAMAGED_SECONDS = 2.0
"""Age in seconds from which an unreadable file counts as damaged.

An editor may still be writing a younger file.
"""
_LARGE_BYTES = 1024 * 1024
"""File size in bytes above which a turn writes the file only once, because writing the file is the
slowest step.
"""
_THREAD_LOCKS = 64
# Decoded messages and encoded lines are both cached, and Python strings use up to four bytes per
# character.
_BYTES_PER_STORED_BYTE = 8
_SESSION_BYTES = 16 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FileSnapshot:
    """Content of a session's files, and the file signatures that show whether this content is
    current.
    """

    record: SessionRecord
    file: Signature
    log: Signature | None = None

    @property
    def memory(self) -> int:
        return _SESSION_BYTES + _BYTES_PER_STORED_BYTE * (
            self.file.size + (self.log.size if self.log else 0)
        )


@dataclass
class _RunningTurn:
    """A turn that this process runs, with the current snapshot of the session's files."""

    stored: FileSnapshot
    has_changes: bool = False
    """Whether the turn has written a change. Later changes are appended to the turn log."""

    def uses_log(self, stored: FileSnapshot, change: Change) -> bool:
        """Return whether the turn log stores a change of ``stored``, unless it ends the turn."""
        is_large = stored.file.size > _LARGE_BYTES
        return self.has_changes or change.partial is not None or is_large


class SessionDirectory:
    """Store for the sessions in one directory.

    Its methods block, and implement those of ``SessionStore``.

    The first change locks the directory for this process until ``close``. From then on, changes of
    other processes raise ``DirectoryInUse``. Reads need no lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.turns: dict[str, _RunningTurn] = {}
        self.locks = SessionLocks()
        self._lock = DirectoryLock(path)
        self._images = ImageFiles(path)
        self._index = SessionIndex(path, self._read_for_index)
        self._recent = SessionCache[FileSnapshot]()
        self._thread_locks = [threading.RLock() for _ in range(_THREAD_LOCKS)]
        self._warned: set[Signature] = set()
        # Monotonic times at which unreadable files with a future modification time were first read.
        self._first_read: dict[Signature, float] = {}

    def open(self) -> None:
        """Create the directory with mode 0700 unless it exists, and lock it for this process."""
        with storage_errors("lock the sessions directory"):
            self._lock.create()

    def close(self) -> None:
        self._lock.release()

    def check(self) -> None:
        """Lock the directory as in ``open``, and write and remove a small file.

        Raises StorageFailed, DirectoryInUse.
        """
        with storage_errors("write the sessions directory"):
            self._lock.create()
            suffix = atomic_files.TEMPORARY
            with NamedTemporaryFile(
                buffering=0, dir=self.path, prefix=".check.", suffix=suffix
            ) as file:
                file.write(b"can be written")

    def create(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        fresh = rules.normalized(session)
        with storage_errors("create a session"):
            self._lock.create()
            while not (created := self._create_file(fresh, images)):
                fresh.metadata.session_id = new_id()
            return created

    def create_all(
        self, sessions: Sequence[rules.NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        messages: list[Message] = []
        images: list[Blob] = []
        for session, blobs in sessions:
            messages += session.messages
            images += blobs
        try:
            with storage_errors("store the sessions"):
                self._lock.create()
                with self._images.storing(messages, images):
                    return import_all(self.path, sessions, check)
        except BaseException:
            self.sweep()
            raise

    def put(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        fresh = rules.normalized(session)
        session_id = session.session_id
        with storage_errors(f"save session {session_id}"):
            self._lock.create()
            created = self._create_file(fresh, images)
            if created is not None:
                return created
            try:
                replaced = self._replace_file(fresh, images)
            except SessionNotFound:  # it was damaged, and now has another name, or it was deleted
                created = self._create_file(fresh, images)
                if created is None:
                    raise
                return created
        self.sweep()
        return replaced

    def load(self, session_id: str) -> ChatSession:
        with storage_errors(f"read session {session_id}"):
            stored, visible = self._read(session_id)
        self._recent.put(session_id, stored)
        return visible.session()

    def load_cached(self, session_id: str) -> ChatSession | None:
        """Return a session whose files have not changed since they were cached, or None.

        Reads no content of files.
        """
        stored = self._current(session_id)
        return None if stored is None else self._visible(session_id, stored).session()

    def write(self, session_id: str, change: Change) -> int:
        """Store a change, and return how many of the oldest versions it has removed."""
        if change.only_partial is not None:
            self._write_partial(session_id, change.only_partial)
            return 0
        moment = now()
        with self._writing(session_id) as stored:
            before = self._require_revision(session_id, stored, change.revision)
            start = before.position(change.start)
            new = rules.normalized_messages(change.messages, start)
            changed = before.versions_after(start, new, change.versions)
            after = before.with_tail(
                start,
                new,
                moment,
                change.turn,
                change.notices,
                versions=changed.versions,
            )
            turn = self.turns.get(session_id)
            with self._images.storing(new, change.images):
                if turn is not None and turn.uses_log(stored, change):
                    written = self._log_change(
                        session_id, stored, before, after, start=start, change=change
                    )
                else:
                    written = self._save(session_id, stored, after)
            if turn is not None:
                turn.has_changes = True
            self._cache(session_id, written)
        blobs_before = blobs_in(before.messages[start:]) | blobs_in_versions(before.versions)
        blobs_after = blobs_in(new) | blobs_in_versions(after.versions)
        if blobs_before - blobs_after:
            self.sweep()
        return changed.removed

    def _log_change(
        self,
        session_id: str,
        stored: FileSnapshot,
        before: SessionRecord,
        after: SessionRecord,
        *,
        start: int,
        change: Change,
    ) -> FileSnapshot:
        """Append a change to the turn log, or, if it ends the turn, write the session's file."""
        if change.ends_turn:
            # If the file cannot be written, the turn log stores the change instead.
            with suppress(OSError):
                return self._save(session_id, stored, after)
        line = before.tail_line(start, after, change.versions)
        if change.partial is not None:
            after, partial_line = after.with_partial_line(change.partial)
            line += partial_line
        return self._append_to_log(session_id, stored, after, line)

    def load_versions(self, session_id: str) -> Versions:
        with storage_errors(f"read session {session_id}"):
            stored, visible = self._read(session_id)
        self._recent.put(session_id, stored)
        return visible.versions

    def patch(
        self,
        session_id: str,
        fields: rules.FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        with self._writing(session_id) as stored:
            visible = self._require_revision(session_id, stored, revision)
            values = rules.normalized_fields(fields, stored.record.metadata)
            moment = now() if touch else stored.record.metadata.updated_at
            turn = self.turns.get(session_id)
            if turn and (stored.log or turn.has_changes):
                after = stored.record.with_fields(values, moment)
                line = stored.record.fields_line(values, moment)
                written = self._append_to_log(session_id, stored, after, line)
            else:
                written = self._save(session_id, stored, visible.with_fields(values, moment))
            return self._cache_written(session_id, written)

    def delete(self, session_id: str) -> None:
        """Delete a session.

        Raises the errors of ``load`` for a file that is not a session, and does not delete it.
        """
        with self._writing(session_id, "delete") as stored:
            atomic_files.remove_durably(self._file(session_id), self._log(session_id))
            self._recent.remove(session_id)
        if blobs_in(stored.record.messages) | blobs_in_versions(stored.record.versions):
            self.sweep()

    def load_image(self, sha256: str) -> bytes:
        with storage_errors("read an image"):
            return self._images.read(sha256)

    def sweep(self) -> None:
        """Remove the images that no session references, if this process has locked the
        directory.

        I/O errors are only logged.
        """
        if self._lock.is_held:
            self._images.sweep()

    def list(self, query: SessionQuery) -> rules.SessionPage:
        """Return one page of the session list, most recently changed first.

        Unreadable sessions are omitted.
        """
        with storage_errors("list the sessions"):
            return self._index.list(query, use_file=self._lock.is_held)

    def ids(self) -> Sequence[str]:
        """Return the IDs of all sessions, also of unreadable ones."""
        with storage_errors("list the sessions"):
            return session_ids(self.path)

    def count_tags(self, query: SessionQuery) -> dict[str, int]:
        with storage_errors("count the tags of the sessions"):
            return self._index.count_tags(query, use_file=self._lock.is_held)

    def expired(self, idle_seconds: float, moment: float) -> Sequence[str]:
        """Return the IDs of the sessions that have expired at ``moment``."""
        with storage_errors("find expired sessions"):
            return self._index.expired(idle_seconds, moment, use_file=self._lock.is_held)

    def due_turns(self, until: float) -> dict[str, float]:
        """Return the sessions whose turn must continue at ``until`` or before, with the Unix time
        of each.

        Turns that this process runs are omitted.
        """
        with storage_errors("find interrupted turns"):
            due = self._index.due_turns(until, use_file=self._lock.is_held)
        return {key: moment for key, moment in due.items() if key not in self.turns}

    def undelivered(self) -> Sequence[Notice]:
        """Return the webhooks in all session files, oldest first."""
        with storage_errors("find webhooks"):
            return self._index.undelivered(use_file=self._lock.is_held)

    def begin(self, session_id: str, *, is_turn: bool) -> None:
        """Repair a session if its last turn crashed. The caller holds its lock in ``locks``.

        If ``is_turn`` is true, begin a turn.
        """
        with self._writing(session_id) as stored:
            current = stored
            recovered = stored.record.after_crash()
            if stored.log or recovered is not stored.record:
                # On a full disk, a session can be read and deleted. Other changes outside a turn
                # write the whole file again.
                with nullcontext() if is_turn else suppress(OSError):
                    current = self._save(session_id, stored, recovered)
            if is_turn:
                self.turns[session_id] = _RunningTurn(current)

    def begin_cached(self, session_id: str, *, is_turn: bool) -> bool:
        """Do the work of ``begin`` if this reads and writes no file, else return False."""
        stored = self._current(session_id) if self._lock.is_held else None
        if stored is None or stored.log or stored.record.after_crash() is not stored.record:
            return False
        if is_turn:
            self.turns[session_id] = _RunningTurn(stored)
        return True

    def save_logged(self, session_id: str) -> None:
        """Write the changes in the session's turn log to the session's file."""
        with self._writing(session_id) as stored:
            if stored.log:
                complete = stored.record.with_partial(None)
                self._cache(session_id, self._save(session_id, stored, complete))

    def _write_partial(self, session_id: str, partial: PartialMessage) -> None:
        """Append a partial answer to the turn log.

        The line survives a crash of the process, but not of the machine.
        """
        with self._writing(session_id) as stored:
            after, line = stored.record.with_partial_line(partial)
            written = self._append_to_log(session_id, stored, after, line, durably=False)
            self._cache(session_id, written)

    def read(self, session_id: str) -> FileSnapshot:
        """Read the files of a session without the cache.

        Raises SessionNotFound, StorageBusy for a damaged file that has just changed, SessionTooNew
        and OSError. Other damaged files raise SessionNotFound, and are renamed if this process has
        locked the directory.
        """
        if not is_session_id(session_id):
            raise SessionNotFound(session_id)
        # Read the log first: if its changes are then moved to the file, applying them again has no
        # effect.
        log = atomic_files.read(self._log(session_id))
        file = atomic_files.read(self._file(session_id))
        if file is None:
            raise SessionNotFound(session_id)
        data, signature = file
        try:
            record = SessionRecord.of(decode_file(session_id, data, signature.modified_ns / 1e9))
        except ValueError as error:
            if self._unreadable_seconds(signature) < MIN_DAMAGED_SECONDS:
                text = (
                    f"The file of session {session_id!r} is incomplete: another program is "
                    "writing it. Try again."
                )
                raise StorageBusy(text) from error
            self._quarantine(session_id, signature, error)
            raise SessionNotFound(session_id) from error
        if log is None:
            return FileSnapshot(record, signature)
        return FileSnapshot(record.with_log(log[0]), signature, log[1])

    @contextmanager
    def _writing(self, session_id: str, operation: str = "save") -> Iterator[FileSnapshot]:
        """Lock the directory for this process, and an existing session for this thread.

        Provide its snapshot.
        """
        with storage_errors(f"{operation} session {session_id}"):
            if not is_session_id(session_id):
                raise SessionNotFound(session_id)
            if not self._lock.is_held:
                if atomic_files.signature(self._file(session_id)) is None:
                    raise SessionNotFound(session_id)
                self._lock.acquire()
            with self._thread_lock(session_id):
                yield self._current(session_id) or self.read(session_id)

    def _create_file(self, session: ChatSession, images: Sequence[Blob]) -> ChatSession | None:
        """Create the file of a session, or return None if it exists."""
        session_id = session.session_id
        record = SessionRecord.of(session)
        with self._thread_lock(session_id):
            if os.path.lexists(self._file(session_id)):
                return None
            with self._images.storing(record.messages, images):
                atomic_files.remove(self._log(session_id))
                return self._cache_written(session_id, self._save(session_id, None, record))

    def _replace_file(self, session: ChatSession, images: Sequence[Blob]) -> ChatSession:
        """Replace the file of a session. Raises the errors of ``read``."""
        session_id = session.session_id
        record = SessionRecord.of(session)
        with self._writing(session_id) as stored, self._images.storing(record.messages, images):
            return self._cache_written(session_id, self._save(session_id, stored, record))

    def _save(
        self, session_id: str, before: FileSnapshot | None, record: SessionRecord
    ) -> FileSnapshot:
        """Write the session's file without its partial answer, and remove the turn log of
        ``before``.
        """
        written = atomic_files.write(self._file(session_id), record.file())
        if before and before.log:
            atomic_files.remove(self._log(session_id))
        return FileSnapshot(record, written)

    def _append_to_log(
        self,
        session_id: str,
        before: FileSnapshot,
        record: SessionRecord,
        line: bytes,
        *,
        durably: bool = True,
    ) -> FileSnapshot:
        size = before.log.size if before.log else 0
        log = atomic_files.append(self._log(session_id), line, size, durably=durably)
        return FileSnapshot(record, before.file, log)

    def _current(self, session_id: str) -> FileSnapshot | None:
        """Return the cached snapshot, or None if it is missing or a file has changed."""
        turn = self.turns.get(session_id)
        cached = turn.stored if turn else self._recent.get(session_id)
        if cached is None:
            return None
        with suppress(OSError):
            file = atomic_files.signature(self._file(session_id))
            log = atomic_files.signature(self._log(session_id))
            if file == cached.file and log == cached.log:
                return cached
        return None

    def _cache(self, session_id: str, stored: FileSnapshot) -> None:
        if turn := self.turns.get(session_id):
            turn.stored = stored
        self._recent.put(session_id, stored)

    def _cache_written(self, session_id: str, stored: FileSnapshot) -> ChatSession:
        self._cache(session_id, stored)
        return self._visible(session_id, stored).session()

    def _visible(self, session_id: str, stored: FileSnapshot) -> SessionRecord:
        """Return the record for clients: without a running turn, after crash recovery."""
        record = stored.record
        return record.with_partial(None) if session_id in self.turns else record.after_crash()

    def _read(self, session_id: str) -> tuple[FileSnapshot, SessionRecord]:
        """Return the current snapshot of a session, without a lock, and the visible record."""
        was_running = session_id in self.turns
        stored = self._current(session_id) or self.read(session_id)
        if was_running:
            # Even if the turn has ended during the read, it has not crashed.
            return stored, stored.record.with_partial(None)
        return stored, self._visible(session_id, stored)

    def _require_revision(
        self, session_id: str, stored: FileSnapshot, revision: str | None
    ) -> SessionRecord:
        """Return the visible record. Raise SessionConflict if it has another revision."""
        visible = self._visible(session_id, stored)
        if revision is not None and revision != visible.revision:
            raise SessionConflict(session_id)
        return visible

    def _read_for_index(self, session_id: str) -> tuple[ChatSession, Signature | None] | None:
        """Return a session and its file signature (None if it has a turn log), or None if it is
        missing or unreadable.

        Raises StorageBusy if another program is writing the file.
        """
        try:
            stored, visible = self._read(session_id)
            return visible.view, None if stored.log else stored.file
        except SessionTooNew as error:
            logger.warning("session omitted from the list: %s", error.message)
        except OSError as error:
            logger.warning(
                "session omitted from the list session_id=%s: its file is unreadable: %s",
                session_id,
                error,
            )
        except SessionNotFound:
            pass
        return None

    def _unreadable_seconds(self, file: Signature) -> float:
        """Return the seconds since an unreadable file was modified, or, if its modification time is
        in the future, since it was first read.

        The clock of a network drive can be ahead.
        """
        age = time.time() - file.modified_ns / 1e9
        if age >= 0:
            return age
        moment = time.monotonic()
        return moment - self._first_read.setdefault(file, moment)

    def _quarantine(self, session_id: str, damaged: Signature, error: ValueError) -> None:
        result = "it cannot be renamed"
        with self._thread_lock(session_id), suppress(OSError):
            if self._lock.is_held and atomic_files.signature(self._file(session_id)) == damaged:
                result = f"renamed to {atomic_files.quarantine(self._file(session_id)).name}"
                if atomic_files.signature(self._log(session_id)):
                    atomic_files.quarantine(self._log(session_id))
        if damaged not in self._warned:
            self._warned.add(damaged)
            logger.warning(
                "session file cannot be read session_id=%s: %s; %s", session_id, error, result
            )

    def _thread_lock(self, session_id: str) -> threading.RLock:
        return self._thread_locks[int(session_id, 16) % _THREAD_LOCKS]

    def _file(self, session_id: str) -> str:
        return f"{self.path}/{session_id}.json"  # a `Path` would take longer

    def _log(self, session_id: str) -> str:
        return f"{self.path}/.{session_id}.turn.jsonl"


_mutex = threading.RLock()  # reentrant, because garbage collection can run a finalizer at any time
_users: Counter[Path] = Counter()
_directories: dict[Path, SessionDirectory] = {}


class DirectoryUse:
    """Use of a directory by one store or manager, until ``close`` or garbage collection.

    The end of the last use unlocks the directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory: SessionDirectory | None = None

    @property
    def directory(self) -> SessionDirectory:
        with _mutex:
            if self._directory is None:
                path = self._path.resolve()
                if path not in _directories:
                    _directories[path] = SessionDirectory(self._path)
                _users[path] += 1
                self._directory = _directories[path]
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
