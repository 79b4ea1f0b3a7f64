"""Sessions as rows: a turn writes what is new, and reads what this process has not read before."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timezone

from mochi_server.errors import (
    BlobNotFound,
    ServerLost,
    SessionBusy,
    SessionConflict,
    SessionNotFound,
    SessionTaken,
    StorageFailed,
    StorageUnavailable,
)
from mochi_server.postgres import pictures, tables
from mochi_server.postgres.database import Connection, Database
from mochi_server.postgres.errors import UNREACHABLE
from mochi_server.postgres.news import tell
from mochi_server.postgres.process import Process, lock_key
from mochi_server.postgres.rows import Head, Histories, Remembered, as_text
from mochi_server.sessions.changes import FieldChanges, settled_fields, settled_message
from mochi_server.sessions.encoding import decode, settle
from mochi_server.sessions.finishing import finished
from mochi_server.sessions.history import History
from mochi_server.sessions.images import Image, is_sha256
from mochi_server.sessions.locks import Holds
from mochi_server.sessions.search import words
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    is_session_id,
    new_id,
    revision_at,
    timestamp,
)
from mochi_server.sessions.store import NewSession, SessionPage
from mochi_server.sessions.types import Message, SessionQuery
from mochi_server.sessions.unfinished import cut_off, with_results

_RETRY_SECONDS = 0.25
_CHECK_SECONDS = 3

_log = logging.getLogger(__name__)


class PostgresSessionStore:
    """A ``SessionStore`` over the tables of one database; ``collection`` tells chats from agents' sessions.

    What it has begun to write it finishes, also when the caller is cancelled meanwhile.
    """

    others: tuple[int, ...] = ()
    """Others that serve the same sessions are no problem here."""

    def __init__(self, database: Database, process: Process, collection: str = "chats") -> None:
        self._database = database
        self._process = process
        self._collection = collection
        self._table = tables.SessionTable(collection)
        self._holds = Holds()
        self._held: dict[str, tables.Hold] = {}
        """The sessions that this process holds."""
        self._histories = Histories()
        self._freed: dict[str, asyncio.Event] = {}

    async def check(self) -> None:
        """See whether sessions can be stored. Raises ``StorageFailed``."""
        if not self._process.connected:
            raise StorageUnavailable("hold sessions", OSError(5, UNREACHABLE))
        async with self._database.connection("store sessions", _CHECK_SECONDS) as connection:
            await connection.execute("SELECT 1")

    async def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a new session, maybe under another id; unless it has a past elsewhere, its times are the database's."""
        return await finished(self._create(ChatSession.from_dict(settle(session.to_dict())), images))

    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        """Store new sessions, all of them or none."""
        return await finished(self._create_all(sessions, check))

    async def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        """Store a session as it is, in place of one that is there."""
        _require_id(session.session_id)
        return await finished(self._put(ChatSession.from_dict(settle(session.to_dict())), images))

    async def load_image(self, sha256: str) -> bytes:
        """The bytes of an image that a message names. Raises ``BlobNotFound``."""
        async with self._database.connection("read an image") as connection:
            data = await pictures.load(connection, sha256) if is_sha256(sha256) else None
        if data is None:
            raise BlobNotFound(sha256)
        return data

    async def load(self, session_id: str) -> ChatSession:
        """The session as it is now, what a running or crashed turn has brought so far included."""
        head, history, partial = await self._read(session_id)
        lacks_results = partial is None and with_results(history.messages) is not history.messages
        if lacks_results or (partial is not None and await self._is_left(session_id)):
            await self.fold(session_id)
            head, history, _ = await self._read(session_id)
        return head.session(history.messages)

    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        revision: str | None = None,
        ends_turn: bool = False,
        unfinished: Message | None = None,
        images: Sequence[Image] = (),
    ) -> ChatSession:
        """Add messages at the end, with the images that they name, and what a crash leaves behind them."""
        del ends_turn
        return await finished(
            self._replace_tail(session_id, None, messages, revision, images=images, unfinished=unfinished)
        )

    async def replace_tail(
        self, session_id: str, from_index: int, messages: Sequence[Message], *, revision: str | None = None
    ) -> ChatSession:
        """Replace everything from a position on (0: the whole history)."""
        return await finished(self._replace_tail(session_id, from_index, messages, revision))

    async def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        """Set metadata fields by name. Raises ValueError for names that are not fields to be set."""
        return await finished(self._patch(session_id, fields, revision))

    async def checkpoint(self, session_id: str, partial: Message) -> None:
        """Note how far an answer has come."""
        await finished(self._checkpoint(session_id, settled_message(partial, 0)))

    async def delete(self, session_id: str) -> None:
        """Remove the session, whoever holds it."""
        await finished(self._delete(session_id))

    async def list(self, query: SessionQuery) -> SessionPage:
        """Sessions by their last change, newest first; those that are found, where the query has a text."""
        async with self._database.connection("list the sessions") as connection:
            heads, total = await self._table.page(connection, words(query.text), query.limit, query.offset)
        return SessionPage.of([head.entry() for head in heads], total)

    @asynccontextmanager
    async def hold(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> AsyncIterator[None]:
        """Be the one writer of the history while inside, of all processes."""
        _require_id(session_id)
        async with self._holds.hold(session_id, run_id=run_id, wait=wait):
            try:
                while not await finished(self._take(session_id, run_id)):
                    await self._until_free(session_id, wait=wait)
                yield
            finally:
                if session_id in self._held:
                    await finished(self._let_go(session_id))

    def holds(self, session_id: str) -> bool:
        """Whether this process does."""
        return session_id in self._held

    async def taken_over(self, connection: Connection) -> set[str]:
        """The held sessions that another process has held since, or deleted."""
        fences = await self._table.fences(connection, list(self._held))
        return {name for name, hold in self._held.items() if fences.get(name) != (hold.key, hold.fence)}

    async def fold(self, session_id: str) -> None:
        """Make what a dead server left unfinished messages that are marked as interrupted.

        A call without a result gets one, unless a server is at work on it: then there is an unfinished message.
        """
        with suppress(SessionNotFound):
            async with self._changing(session_id, f"save session {session_id}") as (connection, head):
                found = await self._table.read(connection, session_id, 0)
                if found is None or found.partial is not None:
                    return
                history = History.of(decode(body.encode()) for body in found.bodies)
                if (complete := with_results(history)) is not history:
                    await tables.replace_tail(connection, head, 0, complete, touch=False)

    async def fold_all(self) -> None:
        """The same for every session that has one. Raises ``StorageFailed``."""
        async with self._database.connection("look for interrupted answers") as connection:
            left = [session_id for session_id in await self._table.left(connection) if session_id not in self._held]
            held = await self._process.held(connection, [self._key(session_id) for session_id in left])
        for session_id in left:
            if self._key(session_id) not in held:
                await self.fold(session_id)

    def freed(self, session_id: str) -> None:
        """Another process has let go of a session."""
        if (event := self._freed.get(session_id)) is not None:
            event.set()

    async def _create(self, fresh: ChatSession, images: Sequence[Image]) -> ChatSession:
        async with self._database.transaction("create a session") as connection:
            await self._insert(connection, fresh, images)
        return await self.load(fresh.session_id)

    async def _create_all(self, sessions: Sequence[NewSession], check: Callable[[], None]) -> Sequence[ChatSession]:
        stored = []
        async with self._database.transaction("store the sessions") as connection:
            for session, images in sessions:
                check()
                stored.append(ChatSession.from_dict(settle(session.to_dict())))
                await self._insert(connection, stored[-1], images)
        return stored

    async def _insert(self, connection: Connection, fresh: ChatSession, images: Sequence[Image]) -> None:
        """Insert a session, under another id should its own be taken."""
        moment = await tables.now(connection)
        if _has_a_past(fresh):
            moment = min(moment, datetime.fromtimestamp(timestamp(fresh.metadata.updated_at), timezone.utc))
        else:
            fresh.metadata.created_at = fresh.metadata.updated_at = as_text(moment)
        while not await self._table.create(connection, fresh, moment, images):
            fresh.metadata.session_id = new_id()

    async def _put(self, session: ChatSession, images: Sequence[Image]) -> ChatSession:
        moment = datetime.fromtimestamp(timestamp(session.metadata.updated_at), timezone.utc)
        async with self._database.transaction(f"save session {session.session_id}") as connection:
            named = await self._table.remove(connection, session.session_id)
            if not await self._table.create(connection, session, moment, images):
                raise SessionConflict(session.session_id)
            await pictures.sweep(connection, named)
        return await self.load(session.session_id)

    async def _replace_tail(
        self,
        session_id: str,
        from_index: int | None,
        messages: Sequence[Message],
        revision: str | None,
        *,
        images: Sequence[Image] = (),
        unfinished: Message | None = None,
    ) -> ChatSession:
        async with self._changing(session_id, f"save session {session_id}") as (connection, head):
            hold = self._held.get(session_id)
            # Behind the end that the holder knows is this write, committed unnoticed, or an answer recovered too early.
            end = hold.end if hold else head.message_count
            start = end if from_index is None else max(0, min(from_index, end))
            new = [settled_message(message, start + offset) for offset, message in enumerate(messages)]
            written = revision_at(start + len(new), new[-1]) if new else None
            await _require_revision(connection, head, revision, written)
            await tables.replace_tail(connection, head, start, new, images=images)
            if unfinished is not None:
                await self._table.checkpoint(
                    connection, session_id, settled_message(unfinished, 0), hold and hold._replace(end=start + len(new))
                )
        session = await self.load(session_id)
        if hold is not None and self._held.get(session_id) == hold:
            self._held[session_id] = hold._replace(end=start + len(new))
        return session

    async def _patch(self, session_id: str, fields: FieldChanges, revision: str | None) -> ChatSession:
        async with self._changing(session_id, f"save session {session_id}") as (connection, head):
            await _require_revision(connection, head, revision)
            stored = SessionMetadata.from_dict(head.metadata_object())
            await tables.set_fields(connection, head, settled_fields(fields, stored))
        return await self.load(session_id)

    async def _checkpoint(self, session_id: str, partial: Message) -> None:
        _require_id(session_id)
        hold = self._held.get(session_id)
        async with self._database.connection(f"save session {session_id}") as connection:
            if not await self._table.checkpoint(connection, session_id, partial, hold):
                if await self._table.read(connection, session_id, 0) is None:
                    raise SessionNotFound(session_id)
                raise SessionTaken(session_id)

    async def _delete(self, session_id: str) -> None:
        _require_id(session_id)
        async with self._database.transaction(f"delete session {session_id}") as connection:
            if not await self._table.delete(connection, session_id):
                raise SessionNotFound(session_id)
        self._histories.forget(session_id)

    @asynccontextmanager
    async def _changing(
        self, session_id: str, doing: str, *, alone: bool = False
    ) -> AsyncIterator[tuple[Connection, Head]]:
        """A transaction that is alone with a session, whose unfinished answer of a dead server is a message by now.

        ``alone``: this process has the lock and writes no answer yet, so an unfinished one is a dead server's.
        Raises ``SessionTaken`` where this process held the session and another one has taken it over.
        """
        _require_id(session_id)
        async with self._database.transaction(doing) as connection:
            found = await self._table.lock(connection, session_id)
            if found is None:
                raise SessionNotFound(session_id)
            head, partial, position = found
            hold = self._held.get(session_id)
            if hold is not None and (hold.key, hold.fence) != (head.key, head.fence):
                raise SessionTaken(session_id)
            if partial is not None and (alone or await self._is_left(session_id, connection)):
                left = cut_off(decode(partial.encode()))
                head = await tables.replace_tail(connection, head, position, left, touch=False)
            yield connection, head

    async def _read(self, session_id: str) -> tuple[Head, Remembered, str | None]:
        """A session's head, its messages, and an unfinished answer."""
        _require_id(session_id)
        async with self._database.connection(f"read session {session_id}") as connection:
            for known in (self._histories.get(session_id), None):
                found = await self._table.read(connection, session_id, known.change if known else 0)
                if found is None:
                    self._histories.forget(session_id)
                    raise SessionNotFound(session_id)
                before = known or Remembered(found.head.key)
                history = before.brought_up_to(found.head, found.positions, found.bodies)
                if history is not None:
                    self._histories.keep(session_id, history)
                    return found.head, history, found.partial
        raise StorageFailed(f"read session {session_id}", OSError(5, "its messages are not all there"))

    async def _is_left(self, session_id: str, connection: Connection | None = None) -> bool:
        """Whether nobody holds a session, so that what is unfinished of it stays so."""
        if session_id in self._held:
            return False
        key = self._key(session_id)
        if connection is not None:
            return key not in await self._process.held(connection, [key])
        async with self._database.connection("see who holds a session") as another:
            return key not in await self._process.held(another, [key])

    async def _take(self, session_id: str, run_id: str | None) -> bool:
        """Try to hold a session; False when another process does."""
        if not await self._process.take(self._key(session_id)):
            return False
        try:
            async with self._changing(session_id, f"hold session {session_id}", alone=True) as (connection, head):
                fence = await self._table.hold(connection, session_id, run_id)
                if run_id is not None and self._collection == "chats":
                    await tables.note_run(connection, run_id, session_id, self._process.name)
        except BaseException:
            await self._process.release(self._key(session_id))
            raise
        self._held[session_id] = tables.Hold(head.key, fence, run_id, head.message_count)
        return True

    async def _let_go(self, session_id: str) -> None:
        """End a hold. An unreachable database is no error: it has released the lock with the connection."""
        hold = self._held.pop(session_id)
        try:
            if self._process.connected:
                await self._note_end(session_id, hold)
        except StorageFailed as error:
            _log.warning("%s", error.message)
        finally:
            await self._process.release(self._key(session_id))
        if self._process.connected:
            with suppress(StorageFailed):
                async with self._database.connection(f"let go of session {session_id}") as connection:
                    await tell(connection, None, "freed", session_id)

    async def _note_end(self, session_id: str, hold: tables.Hold) -> None:
        async with self._database.transaction(f"let go of session {session_id}") as connection:
            await self._table.let_go(connection, session_id, hold.fence)
            if hold.run_id is not None:
                await tables.note_end(connection, hold.run_id)

    async def _until_free(self, session_id: str, *, wait: bool) -> None:
        """Rest until another process may have let go.

        Raises ``SessionBusy`` at a turn that is not to be waited for, ``ServerLost`` at one that is frozen.
        """
        async with self._database.connection(f"hold session {session_id}") as connection:
            run_id, process = await self._table.holder(connection, session_id)
            if run_id is not None and not wait:
                raise SessionBusy(session_id, run_id)
            if process is not None and await self._process.is_silent(connection, process):
                raise ServerLost(session_id)
        event = self._freed.setdefault(session_id, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), _RETRY_SECONDS)
        except (TimeoutError, asyncio.TimeoutError):
            return
        finally:
            self._freed.pop(session_id, None)

    def _key(self, session_id: str) -> int:
        return lock_key(self._collection, session_id)


async def _require_revision(
    connection: Connection, head: Head, expected: str | None, written: str | None = None
) -> None:
    """Raise ``SessionConflict`` unless the history is at the expected revision, or at the one to be written."""
    if expected is not None and await tables.revision(connection, head) not in (expected, written):
        session_id = head.metadata_object()["session_id"]
        raise SessionConflict(session_id)


def _has_a_past(session: ChatSession) -> bool:
    """Whether a new session comes from elsewhere, with times of its own."""
    return any(message["role"] != "system" for message in session.messages)


def _require_id(session_id: str) -> None:
    if not is_session_id(session_id):
        raise SessionNotFound(session_id)
