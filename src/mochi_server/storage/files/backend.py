"""The store's verbs over the files of one directory, for threads. Knows no event loop and no holds.

A change outside a turn writes the session's file at once. A turn writes it at its first change of the history and at
its end, a large one at its end alone; the rest are lines of the turn log, which reading lays over the file.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mochi_server.errors import SessionConflict, SessionNotFound, StorageBusy
from mochi_server.sessions.images import Image, images_in
from mochi_server.sessions.patching import FieldChanges, settled, settled_fields, settled_message
from mochi_server.sessions.search import pieces
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import NewSession, SessionPage
from mochi_server.sessions.types import Message, SessionQuery
from mochi_server.storage.files import atomic_files
from mochi_server.storage.files.locks import PATIENCE_SECONDS
from mochi_server.storage.files.session_files import SessionFolder, Stored, storage
from mochi_server.storage.files.session_index import SessionIndex
from mochi_server.storage.files.turn_log import fields_line, partial_line, tail_line
from mochi_server.storage.session_cache import RecentSessions
from mochi_server.storage.session_record import Record
from mochi_server.util.clock import new_id, now

_LARGE_BYTES = 1024 * 1024
"""From here on a file is written once in a turn, since writing it takes longer than anything else in it."""

_IDS_TRIED = 5

_log = logging.getLogger(__name__)


@dataclass
class _Turn:
    """A turn of this process. ``stored`` is kept so that old messages need not be read and encoded again."""

    stored: Stored
    has_spoken: bool = False


class SessionDirectory:
    """The sessions of one directory, which other processes may use as well.

    Every method blocks, except ``begin_at_once`` and ``has_logged``.
    """

    def __init__(
        self, path: Path, recent: RecentSessions[Stored] | None = None, *, patience: float = PATIENCE_SECONDS
    ) -> None:
        """``recent`` may be shared with other directories. A lock is waited for ``patience`` seconds."""
        self._folder = SessionFolder(path, patience)
        self.blobs = self._folder.blobs
        self._index = SessionIndex(path, self._folder.scan, self._summary, self._pieces)
        self.turns: dict[str, _Turn] = {}
        self._recent = recent or RecentSessions[Stored]()
        self.sweep_is_due = False
        """Whether images could not be swept, because their lock was held."""

    def check(self) -> None:
        with storage("write the sessions directory"):
            self._folder.make()
            atomic_files.check(self._folder.path)

    def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a new session, under another id if its own is taken or the lock of its own is held."""
        fresh = settled(session)
        with storage("create a session"):
            self._folder.make()
            for _ in range(_IDS_TRIED):
                with suppress(StorageBusy), self._index.changing(fresh.session_id):
                    if stored := self._folder.create(fresh.session_id, Record.of(fresh), images):
                        return self._written(fresh.session_id, stored)
                fresh.metadata.session_id = new_id()
        raise StorageBusy("The locks of the sessions directory are held by another process or request.")

    def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        try:
            with storage("store the sessions"):
                self._folder.make()
                return self._folder.imports.store(sessions, check)
        except BaseException:
            self.sweep()
            raise

    def recover_imports(self) -> None:
        """Complete or remove what a killed process has left of an import; one that is under way is left alone."""
        with storage("complete an import"), suppress(StorageBusy):
            self._folder.imports.recover()

    def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        record = Record.of(settled(session))
        with storage(f"save session {session.session_id}"):
            self._folder.make()
            if stored := self._folder.create(session.session_id, record, images):
                return self._written(session.session_id, stored)
        with self._writing(session.session_id) as stored, self.blobs.keeping(session.messages, images):
            put = self._written(session.session_id, self._folder.save(session.session_id, stored, record))
        self.sweep()
        return put

    def load(self, session_id: str) -> ChatSession:
        with storage(f"read session {session_id}"):
            stored, visible = self._read(session_id)
        if stored.is_settled:
            self._recent.keep(session_id, stored)
        return visible.session()

    def replace_tail(
        self, session_id: str, from_index: int, messages: Sequence[Message], *, revision: str | None = None
    ) -> ChatSession:
        return self.append(session_id, messages, from_index=from_index, revision=revision)

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
    ) -> ChatSession:
        """Add messages at the end, or replace those from a position on.

        Outside a turn and at its first change the file is written, and at its end, so that no log is needed. Between
        these, and always in a turn on a large session or with an unfinished answer, the change is a line of the log.
        """
        moment = now()
        with self._writing(session_id) as stored:
            before = self._expect(session_id, stored, revision)
            start = len(before.messages) if from_index is None else before.position(from_index)
            new = [settled_message(message, start + offset) for offset, message in enumerate(messages)]
            after, line = before.with_tail(start, new, moment), b""
            turn = self.turns.get(session_id)
            is_logged = turn is not None and (
                turn.has_spoken or unfinished is not None or stored.file.size > _LARGE_BYTES
            )
            if is_logged and unfinished is not None:
                after, line = self._unfinished(after, unfinished)
            with self.blobs.keeping(new, images):
                written = None
                if ends_turn or not is_logged:
                    with suppress(OSError) if is_logged else nullcontext():
                        written = self._folder.save(session_id, stored, after)
                if written is None:
                    line = tail_line(before, start, after) + line
                    written = self._folder.note(session_id, stored, after, line)
            if turn:
                turn.has_spoken = True
            changed = self._written(session_id, written)
        if images_in(before.messages[start:]) - images_in(new):
            self.sweep()
        return changed

    def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        """Set metadata fields; null is a field's default. Raises ValueError for what is no field to be set.

        With a turn log there, the change becomes a line of it: the turn may be another process's, and go on.
        """
        moment = now()
        with self._writing(session_id) as stored:
            self._expect(session_id, stored, revision)
            values = settled_fields(fields, stored.record.metadata)
            after = stored.record.with_fields(values, moment)
            turn = self.turns.get(session_id)
            if stored.log or (turn and turn.has_spoken):
                written = self._folder.note(session_id, stored, after, fields_line(stored.record, values, moment))
            else:
                written = self._folder.save(session_id, stored, after)
            return self._written(session_id, written)

    def checkpoint(self, session_id: str, partial: Message) -> None:
        """Note an unfinished answer in the turn log, for a crash of the process; the machine's would cost it."""
        with self._writing(session_id) as stored:
            noted = self._folder.note(session_id, stored, *self._unfinished(stored.record, partial), durably=False)
            self._keep(session_id, noted)

    def _unfinished(self, record: Record, unfinished: Message) -> tuple[Record, bytes]:
        message = settled_message(unfinished, len(record.messages))
        after = record.with_partial(message, self._folder.presence.name)
        return after, partial_line(after)

    def delete(self, session_id: str) -> None:
        with storage(f"delete session {session_id}"), self._folder.alone(session_id), self._index.changing(session_id):
            had_images = self._folder.delete(session_id)
            self._recent.forget(session_id)
        if had_images:
            self.sweep()

    def load_image(self, sha256: str) -> bytes:
        with storage("read an image"):
            return self.blobs.read(sha256)

    def sweep(self) -> None:
        """Remove the images that no session names any more; a failing medium keeps them for the next time."""
        try:
            self.blobs.sweep()
        except StorageBusy:
            self.sweep_is_due = True

    def list(self, query: SessionQuery) -> SessionPage:
        """Sessions by their last change, newest first, or those found; files that cannot be read are left out."""
        with storage("list the sessions"):
            return self._index.list(query)

    def join(self) -> tuple[int, ...]:
        """Be known to the other processes that serve the directory; the ids of those there are."""
        with storage("join the processes that serve the directory"):
            self._folder.make()
            self._folder.presence.join()
            return self._folder.presence.others()

    def leave(self) -> None:
        self._folder.presence.leave()

    def begin(self, session_id: str, *, is_turn: bool) -> None:
        """Bring what a crashed turn has left into the file; for a turn, changes are its own from here on."""
        with self._writing(session_id) as stored:
            if is_turn:
                # Other processes take the unfinished answer of an unknown one for a crashed one, no more.
                with suppress(OSError):
                    self._folder.presence.join()
            whole = stored
            if not self._is_running(session_id, stored):
                recovered = stored.record.after_crash()
                if stored.log or recovered is not stored.record:
                    whole = self._folder.save(session_id, stored, recovered)
            if is_turn:
                self.turns[session_id] = _Turn(whole)

    def begin_at_once(self, session_id: str, *, is_turn: bool) -> bool:
        """Do ``begin`` without a lock for a session that is cached and in order; return False if it is not."""
        try:
            stored = self._current(session_id)
        except OSError:
            return False
        if stored is None or stored.log or (is_turn and self._folder.presence.name is None):
            return False
        if stored.record.after_crash() is not stored.record:
            return False
        if is_turn:
            self.turns[session_id] = _Turn(stored)
        return True

    def load_at_once(self, session_id: str) -> ChatSession | None:
        """Return the session of a running turn from the cache; None if it has to be read."""
        if session_id not in self.turns:
            return None
        try:
            stored = self._current(session_id)
        except OSError:
            return None
        return None if stored is None else stored.record.with_partial(None).session()

    def has_logged(self, session_id: str) -> bool:
        """Whether a turn of this process has changes in its log."""
        turn = self.turns.get(session_id)
        return turn is not None and turn.stored.log is not None

    def save_logged(self, session_id: str) -> None:
        """Bring what a turn has logged into the file."""
        with self._writing(session_id) as stored:
            if stored.log:
                self._keep(session_id, self._folder.save(session_id, stored, stored.record.with_partial(None)))

    @contextmanager
    def _writing(self, session_id: str) -> Iterator[Stored]:
        with storage(f"save session {session_id}"), self._folder.alone(session_id), self._index.changing(session_id):
            yield self._current(session_id) or self._folder.read_alone(session_id)

    def _current(self, session_id: str) -> Stored | None:
        """What is known of a session, if its files still say so. Raises OSError."""
        turn = self.turns.get(session_id)
        known = turn.stored if turn else self._recent.get(session_id)
        return known if known and self._folder.is_current(session_id, known) else None

    def _keep(self, session_id: str, stored: Stored) -> None:
        if turn := self.turns.get(session_id):
            turn.stored = stored
        self._recent.keep(session_id, stored)

    def _written(self, session_id: str, stored: Stored) -> ChatSession:
        """Cache what was written, and return what callers see of it."""
        self._keep(session_id, stored)
        return self._visible(session_id, stored).session()

    def _visible(self, session_id: str, stored: Stored) -> Record:
        record = stored.record
        return record.with_partial(None) if self._is_running(session_id, stored) else record.after_crash()

    def _is_running(self, session_id: str, stored: Stored) -> bool:
        """Whether an unfinished answer goes on, here or in another process; else a crash has cut it off."""
        return session_id in self.turns or self._folder.presence.lives(stored.record.writer)

    def _read(self, session_id: str) -> tuple[Stored, Record]:
        """A session's files without being alone with them, and what callers see."""
        was_running = session_id in self.turns
        stored = self._current(session_id) or self._folder.read(session_id)
        # A turn that began or ended meanwhile is running, too: its unfinished answer is no crashed one.
        return stored, stored.record.with_partial(None) if was_running else self._visible(session_id, stored)

    def _expect(self, session_id: str, stored: Stored, revision: str | None) -> Record:
        visible = self._visible(session_id, stored)
        if revision is not None and revision != visible.revision:
            raise SessionConflict(session_id)
        return visible

    def _summary(self, session_id: str) -> tuple[dict[str, Any], atomic_files.Signature | None] | None:
        """A list entry and the signature it is good for; None for what cannot be read. Raises StorageBusy."""
        try:
            stored, visible = self._read(session_id)
        except SessionNotFound:
            return None
        except OSError as error:
            _log.warning("session file %s is left out of the list: %s", session_id, error)
            return None
        return visible.summary(), None if stored.log else stored.file

    def _pieces(self, session_id: str) -> Sequence[str] | None:
        try:
            _, visible = self._read(session_id)
        except (SessionNotFound, StorageBusy, OSError):
            return None
        return pieces(ChatSession(visible.metadata, visible.messages))
