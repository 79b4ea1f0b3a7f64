"""Blocking session storage in a directory of files, for worker threads.

A change outside a turn rewrites the session's file. A turn rewrites the file at its first change and at its end, and
appends the changes in between to the turn log. A turn of a large session rewrites the file only at its end.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from mochi_server.errors import SessionConflict, SessionNotFound, SessionTooNew, StorageBusy
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import (
    FieldChanges,
    NewSession,
    SessionPage,
    normalized,
    normalized_fields,
    normalized_message,
    searchable_texts,
)
from mochi_server.sessions.types import Message, SessionQuery
from mochi_server.storage.files.atomic_files import TEMPORARY, Signature
from mochi_server.storage.files.session_files import FileSnapshot, SessionFiles, storage_errors
from mochi_server.storage.files.session_index import SessionIndex
from mochi_server.storage.files.turn_log import fields_line, partial_line, tail_line
from mochi_server.storage.session_cache import SessionCache
from mochi_server.storage.session_locks import SessionLocks
from mochi_server.storage.session_record import SessionRecord
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
    """Store for the sessions in one directory. Its methods block.

    The first change locks the directory for this process until ``close``. From then on, changes of other processes
    raise ``DirectoryInUse``. Reads need no lock.
    """

    def __init__(self, path: Path) -> None:
        self._files = SessionFiles(path)
        self.blobs = self._files.blobs
        self._index = SessionIndex(path, self._files.scan, self._summary, self._texts, lambda: self.is_locked)
        self.turns: dict[str, _RunningTurn] = {}
        self.locks = SessionLocks()
        self._recent = SessionCache[FileSnapshot]()

    @property
    def is_locked(self) -> bool:
        """Whether this process has locked the directory."""
        return self._files.lock.is_held

    def check(self) -> None:
        """Raise StorageFailed if a small file cannot be written to the directory."""
        with storage_errors("write the sessions directory"):
            self._files.create_directory()
            with NamedTemporaryFile(buffering=0, dir=self._files.path, prefix=".check.", suffix=TEMPORARY) as file:
                file.write(b"can be written")

    def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a new session. If its id is in use, the session gets a new id."""
        fresh = normalized(session)
        with storage_errors("create a session"):
            self._files.create_directory()
            while (stored := self._files.create(fresh.session_id, SessionRecord.of(fresh), images)) is None:
                fresh.metadata.session_id = new_id()
            return self._cache_written(fresh.session_id, stored)

    def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        try:
            with storage_errors("store the sessions"):
                self._files.create_directory()
                return self._files.imports.store(sessions, check)
        except BaseException:
            self.sweep()
            raise

    def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        record = SessionRecord.of(normalized(session))
        with storage_errors(f"save session {session.session_id}"):
            self._files.create_directory()
            if stored := self._files.create(session.session_id, record, images):
                return self._cache_written(session.session_id, stored)
        with self._writing(session.session_id) as stored, self.blobs.storing(session.messages, images):
            put = self._cache_written(session.session_id, self._files.save(session.session_id, stored, record))
        self.sweep()
        return put

    def load(self, session_id: str) -> ChatSession:
        with storage_errors(f"read session {session_id}"):
            stored, visible = self._read(session_id)
        if stored.is_settled:
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
        """Append messages. If ``from_index`` is not None, replace all messages from that position instead.

        In a turn, also store the partial answer ``unfinished`` if it is not None.
        """
        moment = now()
        with self._writing(session_id) as stored:
            before = self._require_revision(session_id, stored, revision)
            start = len(before.messages) if from_index is None else before.position(from_index)
            new = [normalized_message(message, start + offset) for offset, message in enumerate(messages)]
            after, line = before.with_tail(start, new, moment), b""
            turn = self.turns.get(session_id)
            is_logged = turn is not None and (
                turn.has_changes or unfinished is not None or stored.file.size > _LARGE_BYTES
            )
            if is_logged and unfinished is not None:
                after, line = self._partial_record(after, unfinished)
            with self.blobs.storing(new, images):
                written = None
                if ends_turn or not is_logged:
                    # If the file cannot be written, the turn log stores the change instead.
                    with suppress(OSError) if is_logged else nullcontext():
                        written = self._files.save(session_id, stored, after)
                if written is None:
                    line = tail_line(before, start, after) + line
                    written = self._files.append_to_log(session_id, stored, after, line)
            if turn:
                turn.has_changes = True
            self._cache(session_id, written)
        if images_in(before.messages[start:]) - images_in(new):
            self.sweep()

    def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        """Set metadata fields. None resets a field to its default. Raises ValueError for an unknown field."""
        moment = now()
        with self._writing(session_id) as stored:
            visible = self._require_revision(session_id, stored, revision)
            values = normalized_fields(fields, stored.record.metadata)
            turn = self.turns.get(session_id)
            if turn and (stored.log or turn.has_changes):
                line = fields_line(stored.record, values, moment)
                written = self._files.append_to_log(session_id, stored, stored.record.with_fields(values, moment), line)
            else:
                written = self._files.save(session_id, stored, visible.with_fields(values, moment))
            return self._cache_written(session_id, written)

    def flush(self, session_id: str, partial: Message) -> None:
        """Append a partial answer to the turn log. The line survives a crash of the process, but not of the machine."""
        with self._writing(session_id) as stored:
            after, line = self._partial_record(stored.record, partial)
            self._cache(session_id, self._files.append_to_log(session_id, stored, after, line, durably=False))

    def flush_all(self, partials: Mapping[str, Message]) -> Mapping[str, Exception]:
        """Flush several sessions. Return the errors by session ID."""
        errors: dict[str, Exception] = {}
        for session_id, partial in partials.items():
            try:
                self.flush(session_id, partial)
            except Exception as error:
                errors[session_id] = error
        return errors

    def _partial_record(self, record: SessionRecord, unfinished: Message) -> tuple[SessionRecord, bytes]:
        """Return ``record`` with a partial answer, and the line for the turn log."""
        message = normalized_message(unfinished, len(record.messages))
        after = record.with_partial(message)
        return after, partial_line(after)

    def delete(self, session_id: str) -> None:
        """Delete a session. Raises the errors of ``load`` for a file that is not a session, and keeps the file."""
        with storage_errors(f"delete session {session_id}"), self._files.locked(session_id):
            if self._current(session_id) is None:
                self._files.read_locked(session_id)
            had_images = self._files.delete(session_id)
            self._recent.remove(session_id)
        if had_images:
            self.sweep()

    def load_image(self, sha256: str) -> bytes:
        with storage_errors("read an image"):
            return self.blobs.read(sha256)

    def sweep(self) -> None:
        """Remove the images that no session references, if this process has locked the directory."""
        if self.is_locked:
            self.blobs.sweep()

    def list(self, query: SessionQuery) -> SessionPage:
        """Return one page of the session list, most recently changed first. Unreadable sessions are omitted."""
        with storage_errors("list the sessions"):
            return self._index.list(query)

    def open(self) -> None:
        """Create and lock the directory. Complete or remove the imports of dead processes."""
        with storage_errors("lock the sessions directory"):
            self._files.create_directory()
        with storage_errors("complete an import"):
            self._files.imports.recover()

    def close(self) -> None:
        self._files.lock.release()

    def begin(self, session_id: str, *, is_turn: bool) -> None:
        """Repair a locked session if its last turn crashed. If ``is_turn`` is true, begin a turn."""
        with self._writing(session_id) as stored:
            current, recovered = stored, stored.record.after_crash()
            if stored.log or recovered is not stored.record:
                current = self._files.save(session_id, stored, recovered)
            if is_turn:
                self.turns[session_id] = _RunningTurn(current)

    def try_begin_fast(self, session_id: str, *, is_turn: bool) -> bool:
        """Run ``begin`` without I/O beyond two stat calls. Return False if the caller must run ``begin`` instead."""
        stored = self._current(session_id)
        if stored is None or stored.log or not self.is_locked or stored.record.after_crash() is not stored.record:
            return False
        if is_turn:
            self.turns[session_id] = _RunningTurn(stored)
        return True

    def load_cached(self, session_id: str) -> ChatSession | None:
        """Return the session of a running turn from the cache, or None if its files must be read."""
        stored = self._current(session_id) if session_id in self.turns else None
        return None if stored is None else stored.record.with_partial(None).session()

    def save_logged(self, session_id: str) -> None:
        """Write the changes in the session's turn log to the session's file."""
        with self._writing(session_id) as stored:
            if stored.log:
                self._cache(session_id, self._files.save(session_id, stored, stored.record.with_partial(None)))

    @contextmanager
    def _writing(self, session_id: str) -> Iterator[FileSnapshot]:
        with storage_errors(f"save session {session_id}"), self._files.locked(session_id):
            yield self._current(session_id) or self._files.read_locked(session_id)

    def _current(self, session_id: str) -> FileSnapshot | None:
        """Return the cached snapshot of a session, or None if it is missing or outdated."""
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

    def _summary(self, session_id: str) -> tuple[dict[str, Any], Signature | None] | None:
        """Return what ``SessionIndex`` requires for an entry of the session list."""
        try:
            stored, visible = self._read(session_id)
            return visible.summary(), None if stored.log else stored.file
        except SessionTooNew as error:
            logger.warning("session omitted from the list: %s", error.message)
        except OSError as error:
            logger.warning("session omitted from the list session_id=%s: its file is unreadable: %s", session_id, error)
        except SessionNotFound:
            pass
        return None

    def _texts(self, session_id: str) -> Sequence[str] | None:
        try:
            _, visible = self._read(session_id)
        except (SessionNotFound, SessionTooNew, StorageBusy, OSError):
            return None
        return searchable_texts(ChatSession(visible.metadata, visible.messages))
