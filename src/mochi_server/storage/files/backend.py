"""Blocking session storage in a directory of files, for worker threads.

A change outside a turn rewrites the session's file. A turn rewrites the file at its first change and at its end, and
appends the changes in between to the turn log. A turn of a large session rewrites the file only at its end.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from weakref import finalize

from mochi_server.errors import SessionConflict, SessionNotFound, SessionTooNew
from mochi_server.sessions import store as rules
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, SessionQuery
from mochi_server.storage.files import session_files
from mochi_server.storage.files.atomic_files import TEMPORARY, Signature
from mochi_server.storage.files.import_staging import import_all
from mochi_server.storage.files.session_files import FileSnapshot, SessionFiles, storage_errors
from mochi_server.storage.files.session_index import SessionIndex
from mochi_server.storage.session_locks import SessionLocks
from mochi_server.storage.session_record import SessionCache, SessionRecord
from mochi_server.util.clock import new_id, now

_LARGE_BYTES = 1024 * 1024
"""File size in bytes above which a turn writes the file only once, because writing the file is the slowest step."""

logger = logging.getLogger(__name__)


@dataclass
class _RunningTurn:
    """A turn that this process runs, with the current snapshot of the session's files."""

    stored: FileSnapshot
    has_changes: bool = False
    """Whether the turn has changed the history. Later changes are appended to the turn log."""


class SessionDirectory:
    """Store for the sessions in one directory. Its methods block, and implement those of ``SessionStore``.

    The first change locks the directory for this process until ``close``. From then on, changes of other processes
    raise ``DirectoryInUse``. Reads need no lock.
    """

    def __init__(self, path: Path) -> None:
        self._files = SessionFiles(path)
        self._index = SessionIndex(self._files, self._read_for_index)
        self._recent = SessionCache[FileSnapshot]()
        self.turns: dict[str, _RunningTurn] = {}
        self.locks = SessionLocks()

    @property
    def is_locked(self) -> bool:
        """Whether this process has locked the directory."""
        return self._files.lock.is_held

    def open(self) -> None:
        """Create and lock the directory."""
        with storage_errors("lock the sessions directory"):
            self._files.create_directory()

    def close(self) -> None:
        self._files.lock.release()

    def check(self) -> None:
        """Raise StorageFailed if a small file cannot be written to the directory."""
        with storage_errors("write the sessions directory"):
            self._files.create_directory()
            with NamedTemporaryFile(buffering=0, dir=self._files.path, prefix=".check.", suffix=TEMPORARY) as file:
                file.write(b"can be written")

    def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        fresh = rules.normalized(session)
        with storage_errors("create a session"):
            self._files.create_directory()
            while (stored := self._files.create(fresh.session_id, SessionRecord.of(fresh), images)) is None:
                fresh.metadata.session_id = new_id()
            return self._cache_written(fresh.session_id, stored)

    def create_all(
        self, sessions: Sequence[rules.NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        try:
            with storage_errors("store the sessions"):
                self._files.create_directory()
                return import_all(self._files.path, self._files.blobs, sessions, check)
        except BaseException:
            self.sweep()
            raise

    def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        record = SessionRecord.of(rules.normalized(session))
        with storage_errors(f"save session {session.session_id}"):
            self._files.create_directory()
            if stored := self._files.create(session.session_id, record, images):
                return self._cache_written(session.session_id, stored)
        with self._writing(session.session_id) as stored, self._files.blobs.storing(session.messages, images):
            put = self._cache_written(session.session_id, self._files.save(session.session_id, stored, record))
        self.sweep()
        return put

    def load(self, session_id: str) -> ChatSession:
        with storage_errors(f"read session {session_id}"):
            stored, visible = self._read(session_id)
        self._recent.put(session_id, stored)
        return visible.session()

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        from_index: int | None = None,
        revision: str | None = None,
        ends_turn: bool = False,
        unfinished: Message | None = None,
        images: Sequence[Image] = (),
    ) -> None:
        moment = now()
        with self._writing(session_id) as stored:
            before = self._require_revision(session_id, stored, revision)
            start = before.position(from_index)
            new = rules.normalized_messages(messages, start)
            after, line = before.with_tail(start, new, moment), b""
            turn = self.turns.get(session_id)
            is_logged = turn is not None and (
                turn.has_changes or unfinished is not None or stored.file.size > _LARGE_BYTES
            )
            if is_logged and unfinished is not None:
                after, line = _with_partial(after, unfinished)
            with self._files.blobs.storing(new, images):
                written = None
                if ends_turn or not is_logged:
                    # If the file cannot be written, the turn log stores the change instead.
                    with suppress(OSError) if is_logged else nullcontext():
                        written = self._files.save(session_id, stored, after)
                if written is None:
                    line = session_files.tail_line(before, start, after) + line
                    written = self._files.append_to_log(session_id, stored, after, line)
            if turn:
                turn.has_changes = True
            self._cache(session_id, written)
        if images_in(before.messages[start:]) - images_in(new):
            self.sweep()

    def patch(self, session_id: str, fields: rules.FieldChanges, *, revision: str | None = None) -> ChatSession:
        moment = now()
        with self._writing(session_id) as stored:
            visible = self._require_revision(session_id, stored, revision)
            values = rules.normalized_fields(fields, stored.record.metadata)
            turn = self.turns.get(session_id)
            if turn and (stored.log or turn.has_changes):
                line = session_files.fields_line(stored.record, values, moment)
                written = self._files.append_to_log(session_id, stored, stored.record.with_fields(values, moment), line)
            else:
                written = self._files.save(session_id, stored, visible.with_fields(values, moment))
            return self._cache_written(session_id, written)

    def flush(self, session_id: str, partial: Message) -> None:
        """Append a partial answer to the turn log. The line survives a crash of the process, but not of the machine."""
        with self._writing(session_id) as stored:
            after, line = _with_partial(stored.record, partial)
            self._cache(session_id, self._files.append_to_log(session_id, stored, after, line, durably=False))

    def delete(self, session_id: str) -> None:
        """Delete a session. Raises the errors of ``load`` for a file that is not a session, and keeps the file."""
        with storage_errors(f"delete session {session_id}"), self._files.locked(session_id):
            stored = self._current(session_id) or self._files.read(session_id)
            self._files.delete(session_id)
            self._recent.remove(session_id)
        if images_in(stored.record.messages):
            self.sweep()

    def load_image(self, sha256: str) -> bytes:
        with storage_errors("read an image"):
            return self._files.blobs.read(sha256)

    def sweep(self) -> None:
        """Remove the images that no session references, if this process has locked the directory."""
        if self.is_locked:
            self._files.blobs.sweep()

    def list(self, query: SessionQuery) -> rules.SessionPage:
        """Return one page of the session list, most recently changed first. Unreadable sessions are omitted."""
        with storage_errors("list the sessions"):
            return self._index.list(query)

    def begin(self, session_id: str, *, is_turn: bool) -> None:
        """Repair a locked session if its last turn crashed. If ``is_turn`` is true, begin a turn."""
        with self._writing(session_id) as stored:
            current, recovered = stored, stored.record.after_crash()
            if stored.log or recovered is not stored.record:
                current = self._files.save(session_id, stored, recovered)
            if is_turn:
                self.turns[session_id] = _RunningTurn(current)

    def save_logged(self, session_id: str) -> None:
        """Write the changes in the session's turn log to the session's file."""
        with self._writing(session_id) as stored:
            if stored.log:
                self._cache(session_id, self._files.save(session_id, stored, stored.record.with_partial(None)))

    @contextmanager
    def _writing(self, session_id: str) -> Iterator[FileSnapshot]:
        with storage_errors(f"save session {session_id}"), self._files.locked(session_id):
            yield self._current(session_id) or self._files.read(session_id)

    def _current(self, session_id: str) -> FileSnapshot | None:
        turn = self.turns.get(session_id)
        cached = turn.stored if turn else self._recent.get(session_id)
        return cached if cached and self._files.is_current(session_id, cached) else None

    def _cache(self, session_id: str, stored: FileSnapshot) -> None:
        if turn := self.turns.get(session_id):
            turn.stored = stored
        self._recent.put(session_id, stored)

    def _cache_written(self, session_id: str, stored: FileSnapshot) -> ChatSession:
        self._cache(session_id, stored)
        return self._visible(session_id, stored).session()

    def _visible(self, session_id: str, stored: FileSnapshot) -> SessionRecord:
        """Return the record: during a turn without the partial answer, otherwise after crash recovery."""
        record = stored.record
        return record.with_partial(None) if session_id in self.turns else record.after_crash()

    def _read(self, session_id: str) -> tuple[FileSnapshot, SessionRecord]:
        """Read a session's files without a lock. Return the snapshot and the visible record."""
        was_running = session_id in self.turns
        stored = self._current(session_id) or self._files.read(session_id)
        # A turn that began or ended during the read has not crashed, so its partial answer is not recovered.
        return stored, stored.record.with_partial(None) if was_running else self._visible(session_id, stored)

    def _require_revision(self, session_id: str, stored: FileSnapshot, revision: str | None) -> SessionRecord:
        """Return the visible record. Raise ``SessionConflict`` if ``revision`` is not None and differs."""
        visible = self._visible(session_id, stored)
        if revision is not None and revision != visible.revision:
            raise SessionConflict(session_id)
        return visible

    def _read_for_index(self, session_id: str) -> tuple[ChatSession, Signature | None] | None:
        """Return a session and its file signature (None if it has a turn log), or None if it is unreadable."""
        try:
            stored, visible = self._read(session_id)
            return visible.view, None if stored.log else stored.file
        except SessionTooNew as error:
            logger.warning("session omitted from the list: %s", error.message)
        except OSError as error:
            logger.warning("session omitted from the list session_id=%s: its file is unreadable: %s", session_id, error)
        except SessionNotFound:
            pass
        return None


def _with_partial(record: SessionRecord, unfinished: Message) -> tuple[SessionRecord, bytes]:
    (message,) = rules.normalized_messages([unfinished], len(record.messages))
    after = record.with_partial(message)
    return after, session_files.partial_line(after)


_mutex = threading.RLock()  # reentrant, because garbage collection can run a finalizer at any time
_users: Counter[Path] = Counter()
_directories: dict[Path, SessionDirectory] = {}


class DirectoryUse:
    """Use of a directory by one store or manager until ``close``. The last use that ends unlocks it."""

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
