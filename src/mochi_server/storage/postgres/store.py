"""Sessions as rows: a turn writes what is new, and reads what this process has not read before."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timezone
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mochi_server import errors
from mochi_server.sessions.crash_recovery import close_partial, with_missing_results
from mochi_server.sessions.history import History
from mochi_server.sessions.images import Image, is_sha256
from mochi_server.sessions.patching import FieldChanges, normalized, normalized_fields, normalized_message
from mochi_server.sessions.search import words
from mochi_server.sessions.serialization import decode, encode
from mochi_server.sessions.session import ChatSession, SessionMetadata, is_session_id, revision_at
from mochi_server.sessions.store import NewSession, SessionPage
from mochi_server.sessions.types import Message, SessionQuery
from mochi_server.storage.postgres import row_mapping
from mochi_server.storage.postgres.pool import Connection, Database, fetch_all, fetch_one
from mochi_server.storage.postgres.process_locks import IS_SILENT, ServerProcess, lock_key
from mochi_server.storage.postgres.row_mapping import CachedHistory, SessionRow, text_of
from mochi_server.storage.session_cache import SessionCache
from mochi_server.storage.session_locks import SessionLocks
from mochi_server.util.clock import new_id, timestamp
from mochi_server.util.shielding import run_shielded

RELEASED_CHANNEL = "mochi_freed"
"""Channel of notifications about sessions that a process has released."""
_RETRY_SECONDS = 0.25
_HEAD = "s.key, s.metadata, s.extra, s.updated_at, s.message_count, s.opening, s.change, s.fence"
_ONE = "s.collection = %(collection)s AND s.session_id = %(session_id)s"
_READ = f"""
SELECT {_HEAD}, p.body, new.positions, new.bodies
FROM sessions s LEFT JOIN partials p ON p.session = s.key
CROSS JOIN LATERAL (
    SELECT array_agg(m.position ORDER BY m.position) AS positions, array_agg(m.body ORDER BY m.position) AS bodies
    FROM messages m WHERE m.session = s.key AND m.change > %(change)s
) new
WHERE {_ONE}"""
_LOCK = f"""
SELECT {_HEAD}, p.body, coalesce(p.position, s.message_count)
FROM sessions s LEFT JOIN partials p ON p.session = s.key
WHERE {_ONE} FOR UPDATE OF s"""
_CREATE = f"""
INSERT INTO sessions AS s
    (collection, session_id, metadata, extra, updated_at, message_count, opening, searched, change)
VALUES (%(collection)s, %(session_id)s, %(metadata)s, %(extra)s, %(updated_at)s, 0, '[]', %(searched)s, 0)
ON CONFLICT DO NOTHING RETURNING {_HEAD}"""
_PATCH = """
UPDATE sessions SET metadata = %(metadata)s, searched = %(searched)s,
    updated_at = greatest(updated_at + interval '1 microsecond', clock_timestamp())
WHERE key = %(key)s"""
_CHECKPOINT = f"""
INSERT INTO partials (session, body, position)
SELECT s.key, %(body)s, coalesce(%(position)s::integer, s.message_count) FROM sessions s
WHERE {_ONE} AND s.key = coalesce(%(key)s::bigint, s.key) AND s.fence = coalesce(%(fence)s::bigint, s.fence)
ON CONFLICT (session) DO UPDATE SET body = excluded.body, position = excluded.position"""
_WITH_WORD = """
AND (s.searched LIKE %(word{0})s OR s.key IN (SELECT m.session FROM messages m WHERE m.searched LIKE %(word{0})s))"""
_HOLDER = f"""
SELECT s.run_id, p.{IS_SILENT} FROM sessions s LEFT JOIN runs r ON r.run_id = s.run_id
LEFT JOIN processes p ON p.name = r.process WHERE {_ONE}"""
_P = ParamSpec("_P")
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


def _shielded(method: Callable[_P, Awaitable[_T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Decorate a method that finishes its writes also when the caller is cancelled meanwhile."""

    @wraps(method)
    async def finish(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await run_shielded(method(*args, **kwargs))

    return finish


class SessionLock(NamedTuple):
    """A session that this process may write until another hold raises the fence."""

    key: int
    fence: int
    run_id: str | None
    end: int
    """Length of the history that this process has written or read. What follows is not this holder's."""


class PostgresSessionStore:
    """A ``SessionStore`` (see there) over one database; ``collection`` tells chats from agents' sessions."""

    def __init__(self, database: Database, process: ServerProcess, collection: str = "chats") -> None:
        self._database = database
        self._process = process
        self._collection = collection
        self._locks = SessionLocks()
        self.held: dict[str, SessionLock] = {}
        """The sessions that this process holds."""
        self._histories = SessionCache[CachedHistory](row_mapping.REMEMBERED_BYTES)
        self._freed: dict[str, asyncio.Event] = {}

    async def create(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        (stored,) = await self.create_all([(session, images)])
        return await self.load(stored.session_id)

    @_shielded
    async def create_all(
        self, sessions: Sequence[NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        stored = []
        async with self._database.transaction("store sessions") as connection:
            for session, images in sessions:
                check()
                stored.append(await self._insert_new(connection, session, images))
        return stored

    @_shielded
    async def put(self, session: ChatSession, *, images: Sequence[Image] = ()) -> ChatSession:
        fresh = normalized(session)
        async with self._database.transaction(f"save session {session.session_id}") as connection:
            named = await self._remove(connection, session.session_id)
            if not await self._insert(connection, fresh, _updated_at(fresh), images):
                raise errors.SessionConflict(session.session_id)
            await row_mapping.delete_unreferenced_images(connection, named or [])
        return await self.load(session.session_id)

    async def load_image(self, sha256: str) -> bytes:
        statement = "SELECT data FROM images WHERE sha256 = %(sha256)s"
        async with self._database.connection("read an image") as connection:
            row = await fetch_one(connection, statement, {"sha256": sha256}) if is_sha256(sha256) else None
        if row is None:
            raise errors.BlobNotFound(sha256)
        return bytes(row[0])

    async def load(self, session_id: str) -> ChatSession:
        head, history, is_broken_off = await self._read(session_id)
        if is_broken_off:
            await self.recover_crashed(session_id)
            head, history, _ = await self._read(session_id)
        return head.session(history.messages)

    @_shielded
    async def append(
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
        del ends_turn
        async with self._changing(session_id, f"save session {session_id}") as (connection, head):
            hold = self.held.get(session_id)
            # Behind the end that the holder knows is this write, committed unnoticed, or an answer recovered too early.
            end = hold.end if hold else head.message_count
            start = end if from_index is None else max(0, min(from_index, end))
            new = [normalized_message(message, start + offset) for offset, message in enumerate(messages)]
            await _require_revision(connection, head, revision, revision_at(start + len(new), new[-1]) if new else None)
            await row_mapping.replace_tail(connection, head, start, new, images=images)
            longer = hold and hold._replace(end=start + len(new))
            if unfinished is not None:
                await self._write_partial(connection, session_id, normalized_message(unfinished, 0), longer)
        session = await self.load(session_id)
        if longer is not None and self.held.get(session_id) == hold:
            self.held[session_id] = longer
        return session

    async def replace_tail(
        self, session_id: str, from_index: int, messages: Sequence[Message], *, revision: str | None = None
    ) -> ChatSession:
        return await self.append(session_id, messages, from_index=from_index, revision=revision)

    @_shielded
    async def patch(self, session_id: str, fields: FieldChanges, *, revision: str | None = None) -> ChatSession:
        async with self._changing(session_id, f"save session {session_id}") as (connection, head):
            await _require_revision(connection, head, revision)
            stored = head.metadata()
            metadata = SessionMetadata.from_dict({**stored.to_dict(), **normalized_fields(fields, stored)})
            searched = row_mapping.searched_title(metadata, head.opening)
            values = {"key": head.key, "metadata": row_mapping.metadata_text(metadata), "searched": searched}
            await connection.execute(_PATCH, values)
        return await self.load(session_id)

    @_shielded
    async def checkpoint(self, session_id: str, partial: Message) -> None:
        async with self._database.connection(f"save session {session_id}") as connection:
            hold = self.held.get(session_id)
            if not await self._write_partial(connection, session_id, normalized_message(partial, 0), hold):
                if (
                    await fetch_one(connection, f"SELECT FROM sessions s WHERE {_ONE}", self._fetch_row(session_id))
                    is None
                ):
                    raise errors.SessionNotFound(session_id)
                raise errors.SessionTaken(session_id)

    @_shielded
    async def delete(self, session_id: str) -> None:
        async with self._database.transaction(f"delete session {session_id}") as connection:
            named = await self._remove(connection, session_id)
            if named is None:
                raise errors.SessionNotFound(session_id)
            await row_mapping.delete_unreferenced_images(connection, named)
            for table in ("idempotency_keys", "runs"):
                await connection.execute(f"DELETE FROM {table} WHERE session_id = %s", [session_id])
        self._histories.remove(session_id)

    async def list(self, query: SessionQuery) -> SessionPage:
        searched = words(query.text)
        condition = "s.collection = %(collection)s" + "".join(_WITH_WORD.format(at) for at in range(len(searched)))
        values = {f"word{at}": row_mapping.like_pattern(word) for at, word in enumerate(searched)}
        page = {**values, "collection": self._collection, "limit": query.limit, "offset": query.offset}
        newest = "ORDER BY s.updated_at DESC, s.session_id LIMIT %(limit)s OFFSET %(offset)s"
        async with self._database.connection("list the sessions") as connection:
            found = await fetch_all(connection, f"SELECT {_HEAD} FROM sessions s WHERE {condition} {newest}", page)
            count = await fetch_one(connection, f"SELECT count(*) FROM sessions s WHERE {condition}", page)
        return SessionPage.of([encode(SessionRow(*row).entry()) for row in found], count[0] if count else 0)

    @asynccontextmanager
    async def hold(self, session_id: str, *, run_id: str | None = None, wait: bool = False) -> AsyncIterator[None]:
        _require_id(session_id)
        async with self._locks.lock(session_id, run_id=run_id, wait=wait):
            try:
                while not await self._take(session_id, run_id):
                    await self._wait_until_released(session_id, wait=wait)
                yield
            finally:
                if session_id in self.held:
                    await self._release(session_id)

    async def lost_sessions(self, connection: Connection) -> set[str]:
        """Return the held sessions that another process has held since, or deleted."""
        values = {"keys": [hold.key for hold in self.held.values()]}
        found = await fetch_all(connection, "SELECT key, fence FROM sessions WHERE key = ANY(%(keys)s)", values)
        return {name for name, hold in self.held.items() if (hold.key, hold.fence) not in found}

    async def recover_crashed(self, session_id: str) -> None:
        """Replace what a dead server left unfinished by messages that are marked as interrupted.

        A call without a result gets one, unless a server is at work on it: then there is an unfinished message.
        """
        with suppress(errors.SessionNotFound):
            async with self._changing(session_id, f"save session {session_id}") as (connection, head):
                row = await fetch_one(connection, _READ, self._fetch_row(session_id, change=0))
                if row is None or row[-3] is not None:
                    return
                history = History.of(decode(body.encode()) for body in row[-1] or [])
                if (complete := with_missing_results(history)) is not history:
                    await row_mapping.replace_tail(connection, head, 0, complete, touch=False)

    async def recover_all_crashed(self) -> None:
        """Do the same for every session that has an unfinished message. Raises ``StorageFailed``."""
        async with self._database.connection("look for interrupted answers") as connection:
            statement = (
                "SELECT session_id FROM partials JOIN sessions ON key = session WHERE collection = %(collection)s"
            )
            found = await fetch_all(connection, statement, {"collection": self._collection})
            keys = {session_id: self._key(session_id) for (session_id,) in found if session_id not in self.held}
            held = await self._process.held(connection, keys.values())
        for session_id, key in keys.items():
            if key not in held:
                await self.recover_crashed(session_id)

    def session_released(self, session_id: str) -> None:
        """Wake the requests that wait for a session, because another process has released it."""
        if (event := self._freed.get(session_id)) is not None:
            event.set()

    async def _insert_new(self, connection: Connection, session: ChatSession, images: Sequence[Image]) -> ChatSession:
        """Insert a session, under another id should its own be taken."""
        fresh = normalized(session)
        row = await fetch_one(connection, "SELECT clock_timestamp()")  # the clocks of the hosts may differ
        moment: datetime = row[0] if row else datetime.now(timezone.utc)
        if any(message["role"] != "system" for message in fresh.messages):  # it comes from elsewhere
            moment = min(moment, _updated_at(fresh))
        else:
            fresh.metadata.created_at = fresh.metadata.updated_at = row_mapping.as_text(moment)
        while not await self._insert(connection, fresh, moment, images):
            fresh.metadata.session_id = new_id()
        return fresh

    async def _insert(
        self, connection: Connection, session: ChatSession, updated_at: datetime, images: Sequence[Image]
    ) -> bool:
        """Insert a session with its messages; return False if its id is taken."""
        values = {
            "metadata": row_mapping.metadata_text(session.metadata),
            "extra": text_of(session.extra),
            "updated_at": updated_at,
            "searched": row_mapping.searched_title(session.metadata, "[]"),
        }
        row = await fetch_one(connection, _CREATE, self._fetch_row(session.session_id, **values))
        if row is not None:
            await row_mapping.replace_tail(
                connection, SessionRow(*row), 0, session.messages, images=images, touch=False
            )
        return row is not None

    async def _remove(self, connection: Connection, session_id: str) -> Sequence[str] | None:
        """Remove a session's rows; return the images that its messages named, None if there is no session."""
        found = await fetch_one(connection, _LOCK, self._fetch_row(session_id))
        if found is None:
            return None
        named = await row_mapping.images_from(connection, found[0], 0)
        await connection.execute("DELETE FROM sessions WHERE key = %s", [found[0]])
        return named

    async def _write_partial(
        self, connection: Connection, session_id: str, partial: Message, hold: SessionLock | None
    ) -> bool:
        """Store an unfinished answer; return False if there is no session, or another process has held it since."""
        held = {"key": hold and hold.key, "fence": hold and hold.fence, "position": hold and hold.end}
        values = self._fetch_row(session_id, body=text_of(partial), **held)
        return (await connection.execute(_CHECKPOINT, values)).rowcount == 1

    @asynccontextmanager
    async def _changing(
        self, session_id: str, doing: str, *, alone: bool = False
    ) -> AsyncIterator[tuple[Connection, SessionRow]]:
        """Lock a session in a transaction, and store the unfinished answer of a dead server as a message.

        ``alone``: this process has the lock and writes no answer yet, so an unfinished one is a dead server's.
        Raises ``SessionTaken`` if this process held the session and another one has taken it over.
        """
        async with self._database.transaction(doing) as connection:
            row = await fetch_one(connection, _LOCK, self._fetch_row(session_id))
            if row is None:
                raise errors.SessionNotFound(session_id)
            *columns, partial, position = row
            head = SessionRow(*columns)
            hold = self.held.get(session_id)
            if hold is not None and (hold.key, hold.fence) != (head.key, head.fence):
                raise errors.SessionTaken(session_id)
            if partial is not None and (alone or await self._is_abandoned(connection, session_id)):
                left = close_partial(decode(partial.encode()))
                head = await row_mapping.replace_tail(connection, head, position, left, touch=False)
            yield connection, head

    async def _read(self, session_id: str) -> tuple[SessionRow, CachedHistory, bool]:
        """Return a session's head, its messages, and whether a dead server has left something of it unfinished."""
        async with self._database.connection(f"read session {session_id}") as connection:
            for known in (self._histories.get(session_id), None):
                row = await fetch_one(
                    connection, _READ, self._fetch_row(session_id, change=known.change if known else 0)
                )
                if row is None:
                    self._histories.remove(session_id)
                    raise errors.SessionNotFound(session_id)
                *columns, partial, positions, bodies = row
                head = SessionRow(*columns)
                history = (known or CachedHistory(head.key)).updated_to(head, positions or [], bodies or [])
                if history is None:
                    continue
                self._histories.put(session_id, history)
                if partial is None:
                    return head, history, with_missing_results(history.messages) is not history.messages
                return head, history, await self._is_abandoned(connection, session_id)
        raise errors.StorageFailed(f"read session {session_id}", OSError(5, "its messages are not all there"))

    async def _is_abandoned(self, connection: Connection, session_id: str) -> bool:
        """Return whether no process holds a session, so that what is unfinished of it stays so."""
        key = self._key(session_id)
        return session_id not in self.held and key not in await self._process.held(connection, [key])

    @_shielded
    async def _take(self, session_id: str, run_id: str | None) -> bool:
        """Try to hold a session; return False if another process holds it."""
        if not await self._process.take(self._key(session_id)):
            return False
        try:
            async with self._changing(session_id, f"hold session {session_id}", alone=True) as (connection, head):
                fenced = "UPDATE sessions SET fence = fence + 1, run_id = %s WHERE key = %s"
                await connection.execute(fenced, [run_id, head.key])
                if run_id is not None and self._collection == "chats":
                    noted = "INSERT INTO runs (run_id, session_id, process) VALUES (%s, %s, %s)"
                    await connection.execute(noted, [run_id, session_id, self._process.name])
        except BaseException:
            await self._process.release(self._key(session_id))
            raise
        self.held[session_id] = SessionLock(head.key, head.fence + 1, run_id, head.message_count)
        return True

    @_shielded
    async def _release(self, session_id: str) -> None:
        """End a hold. An unreachable database is no error: it has released the lock with the connection."""
        hold = self.held.pop(session_id)
        try:
            if self._process.connected:
                async with self._database.transaction(f"let go of session {session_id}") as connection:
                    ended = "UPDATE sessions SET run_id = NULL WHERE key = %s AND fence = %s"
                    await connection.execute(ended, [hold.key, hold.fence])
                    if hold.run_id is not None:
                        ended = "UPDATE runs SET ended = clock_timestamp() WHERE run_id = %s"
                        await connection.execute(ended, [hold.run_id])
        except errors.StorageFailed as error:
            logger.warning("%s", error.message)
        finally:
            await self._process.release(self._key(session_id))
        if self._process.connected:
            with suppress(errors.StorageFailed):
                async with self._database.connection(f"let go of session {session_id}") as connection:
                    await connection.execute("SELECT pg_notify(%s, %s)", [RELEASED_CHANNEL, session_id])

    async def _wait_until_released(self, session_id: str, *, wait: bool) -> None:
        """Wait until another process may have released a session.

        Raises ``SessionBusy`` for a turn that is not to be waited for, ``ServerLost`` for one that is frozen.
        """
        async with self._database.connection(f"hold session {session_id}") as connection:
            run_id, is_silent = await fetch_one(connection, _HOLDER, self._fetch_row(session_id)) or (None, None)
        if run_id is not None and not wait:
            raise errors.SessionBusy(session_id, run_id)
        if is_silent:
            raise errors.ServerLost(session_id)
        event = self._freed.setdefault(session_id, asyncio.Event())
        try:
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(event.wait(), _RETRY_SECONDS)
        finally:
            self._freed.pop(session_id, None)

    def _fetch_row(self, session_id: str, **values: Any) -> dict[str, Any]:
        """Return parameters of a statement about one session. Raises ``SessionNotFound`` for what is no id."""
        _require_id(session_id)
        return {"collection": self._collection, "session_id": session_id, **values}

    def _key(self, session_id: str) -> int:
        return lock_key(self._collection, session_id)


async def _require_revision(
    connection: Connection, head: SessionRow, expected: str | None, written: str | None = None
) -> None:
    """Raise ``SessionConflict`` unless the history is at the expected revision, or at the one to be written."""
    if expected is None:
        return
    statement = "SELECT body FROM messages WHERE session = %(key)s AND position = %(last)s"
    row = await fetch_one(connection, statement, {"key": head.key, "last": head.message_count - 1})
    if revision_at(head.message_count, decode(row[0].encode()) if row else None) not in (expected, written):
        raise errors.SessionConflict(head.metadata().session_id)


def _updated_at(session: ChatSession) -> datetime:
    return datetime.fromtimestamp(timestamp(session.metadata.updated_at), timezone.utc)


def _require_id(session_id: str) -> None:
    if not is_session_id(session_id):
        raise errors.SessionNotFound(session_id)
