"""Session stores in one PostgreSQL database.

Turns write only new messages, and read only those that are not cached.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from psycopg.errors import ReadOnlySqlTransaction

from mochi_server import errors
from mochi_server.constants import FORMAT_VERSION
from mochi_server.sessions import store as rules
from mochi_server.sessions.change import Change, Notice
from mochi_server.sessions.history import History, with_missing_results
from mochi_server.sessions.serialization import encode
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    complete_message,
    is_session_id,
    revision_at,
)
from mochi_server.sessions.types import Blob, PartialMessage, SessionQuery, is_sha256
from mochi_server.sessions.versions import Versions, places_of, split_versions
from mochi_server.storage.postgres import row_mapping
from mochi_server.storage.postgres.database import (
    Connection,
    Database,
    fetch_all,
    fetch_one,
    migrate,
    require_current_schema,
    unreachable,
)
from mochi_server.storage.postgres.processes import (
    IS_RECENT,
    IS_SILENT,
    PeerDirectory,
    ServerProcess,
    lock_key,
    locked_names,
)
from mochi_server.storage.postgres.row_mapping import CachedHistory, SessionRow, text_of
from mochi_server.storage.postgres.secrets import PostgresSecretStore
from mochi_server.storage.postgres.turn_counts import PostgresTurnCounter
from mochi_server.storage.postgres.usage import PostgresUsageStore
from mochi_server.storage.postgres.versions import change_versions, insert_versions, load_versions
from mochi_server.storage.postgres.webhooks import PostgresWebhookOutbox, insert_notices
from mochi_server.storage.session_record import SessionCache, SessionLocks
from mochi_server.util.clock import as_datetime, as_text, new_id, now, timestamp
from mochi_server.util.tasks import cancel_and_wait, run_shielded

_POLL_SECONDS = 0.25
_CHECK_SECONDS = 3
_CLEAN_UP_SECONDS = 2.0
_COLUMNS = (
    "s.key, s.session_id, s.metadata, s.extra, s.updated_at, s.message_count, s.opening, "
    "s.change, s.fence"
)
_BY_ID = "s.collection = %(collection)s AND s.session_id = %(session_id)s"
_READ = f"""
SELECT {_COLUMNS}, p.body, new.positions, new.bodies
FROM sessions s LEFT JOIN partials p ON p.session = s.key
CROSS JOIN LATERAL (
    SELECT array_agg(m.position ORDER BY m.position) AS positions,
        array_agg(m.body ORDER BY m.position) AS bodies
    FROM messages m WHERE m.session = s.key AND m.change > %(change)s
) new
WHERE {_BY_ID}"""
_LOCK = f"""
SELECT {_COLUMNS}, p.body, coalesce(p.position, s.message_count)
FROM sessions s LEFT JOIN partials p ON p.session = s.key
WHERE {_BY_ID} FOR UPDATE OF s"""
_CREATE = f"""
INSERT INTO sessions AS s
    (collection, session_id, owner, metadata, extra, updated_at, message_count, opening,
    searched, change, tags, pinned, archived, temporary, expires_at)
VALUES (%(collection)s, %(session_id)s, %(owner)s, %(metadata)s, %(extra)s, %(updated_at)s, 0, '[]',
    %(searched)s, 0, %(tags)s, %(pinned)s, %(archived)s, %(temporary)s, %(expires_at)s)
ON CONFLICT DO NOTHING RETURNING {_COLUMNS}"""
_PATCH = """
UPDATE sessions SET metadata = %(metadata)s, searched = %(searched)s, tags = %(tags)s,
    pinned = %(pinned)s, archived = %(archived)s, temporary = %(temporary)s,
    expires_at = %(expires_at)s,
    updated_at = CASE WHEN %(touch)s
        THEN greatest(updated_at + interval '1 microsecond', clock_timestamp())
        ELSE updated_at END
WHERE key = %(key)s"""
_FLUSH = f"""
INSERT INTO partials (session, body, position)
SELECT s.key, %(body)s, coalesce(%(position)s::integer, s.message_count) FROM sessions s
WHERE {_BY_ID} AND s.key = coalesce(%(key)s::bigint, s.key)
    AND s.fence = coalesce(%(fence)s::bigint, s.fence)
ON CONFLICT (session) DO UPDATE SET body = excluded.body, position = excluded.position"""
_LIST = f"""
SELECT {_COLUMNS} FROM sessions s WHERE {{}}
ORDER BY {{}} LIMIT %(limit)s OFFSET %(offset)s"""
_NEWEST = "s.updated_at DESC, s.session_id"
_VERSION = FORMAT_VERSION.replace(".", ",")
_SUPPORTED = f"""s.key NOT IN (
    SELECT key FROM sessions WHERE string_to_array(substring(
        metadata FROM '"format_version":"([0-9]{{1,6}}([.][0-9]{{1,6}})*)"'), '.')::int[]
        > '{{{_VERSION}}}')"""
"""Condition without the sessions of later versions, for which there is an index."""
_FILTERS = {
    "owner": " AND s.owner = %(owner)s",
    "archived": " AND s.archived = %(archived)s",
    "temporary": " AND s.temporary = %(temporary)s",
}
"""Conditions for fields of a ``SessionQuery`` that are not None."""
_COUNT_TAGS = """
SELECT tag, count(*) FROM sessions s CROSS JOIN LATERAL unnest(s.tags) AS tag
WHERE {} GROUP BY tag"""
_EXPIRED = """
SELECT session_id FROM sessions WHERE collection = %(collection)s AND expires_at <= %(moment)s
UNION SELECT session_id FROM sessions
WHERE collection = %(collection)s AND temporary AND updated_at <= %(idle_since)s"""
_DUE_TEXT = r"""substring(metadata FROM '"(?:turn|pending_approval)":\{"due":([0-9.]+)')"""
_DUE = f"({_DUE_TEXT}::float8)"
_DUE_TURNS = f"""
SELECT s.session_id, {_DUE} FROM sessions s
LEFT JOIN runs r ON r.run_id = s.run_id LEFT JOIN processes p ON p.name = r.process
WHERE {_DUE_TEXT} IS NOT NULL AND {_DUE} <= %(until)s AND s.collection = %(collection)s
    AND NOT coalesce(r.process <> %(own)s AND {IS_RECENT}, FALSE)"""
"""A process that was connected a moment ago may reconnect and continue its turn."""
_WITH_WORD = """
AND (s.searched LIKE %(word{0})s OR s.key IN (
    SELECT m.session FROM messages m WHERE m.searched LIKE %(word{0})s))"""
_NEXT_FENCE = "UPDATE sessions SET fence = fence + 1, run_id = %s WHERE key = %s"
_BEGIN_RUN = "INSERT INTO runs (run_id, session_id, process) VALUES (%s, %s, %s)"
_CLEAR_RUN = "UPDATE sessions SET run_id = NULL WHERE key = %s AND fence = %s"
_END_RUN = "UPDATE runs SET ended = clock_timestamp() WHERE run_id = %s"
_OWNER = f"""
SELECT s.run_id, p.{IS_SILENT} FROM sessions s LEFT JOIN runs r ON r.run_id = s.run_id
LEFT JOIN processes p ON p.name = r.process WHERE {_BY_ID}"""
_P = ParamSpec("_P")
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


def _shielded(method: Callable[_P, Awaitable[_T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return a method that finishes even if its caller is cancelled."""

    @wraps(method)
    async def finish(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await run_shielded(method(*args, **kwargs))

    return finish


class SessionLock(NamedTuple):
    """Lock that this process has on a session.

    Each new lock has a higher ``fence``. Lower ones permit no writes.
    """

    key: int
    fence: int
    run_id: str | None
    # number of messages when the lock was acquired or last used. New messages are appended at this
    # position
    end: int


class PostgresSessionStore(rules.SessionStore):
    """``SessionStore`` in one PostgreSQL database. ``collection`` is "chats" or "agents"."""

    def __init__(
        self,
        database: Database,
        process: ServerProcess,
        outbox: PostgresWebhookOutbox,
        collection: str = "chats",
        *,
        reads_only: bool = False,
    ) -> None:
        """If ``reads_only`` is true, loaded sessions are repaired after a crash, but not stored."""
        self._database = database
        self._process = process
        self._outbox = outbox
        self._collection = collection
        self._reads_only = reads_only
        self._locks = SessionLocks()
        self.locked_sessions: dict[str, SessionLock] = {}  # locks of this process, by session id
        self._histories = SessionCache[CachedHistory]()

    async def create(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        is_copy = any(message["role"] != "system" for message in session.history)
        (stored,) = await self._create_all([(session, images)], keeps_times=is_copy)
        return await self.load(stored.session_id)

    async def create_all(
        self, sessions: Sequence[rules.NewSession], *, check: Callable[[], None] = lambda: None
    ) -> Sequence[ChatSession]:
        return await self._create_all(sessions, keeps_times=True, check=check)

    @_shielded
    async def _create_all(
        self,
        sessions: Sequence[rules.NewSession],
        *,
        keeps_times: bool,
        check: Callable[[], None] = lambda: None,
    ) -> Sequence[ChatSession]:
        stored = []
        async with self._database.transaction("store sessions") as connection:
            for session, images in sessions:
                check()
                stored.append(
                    await self._insert_new(connection, session, images, keeps_times=keeps_times)
                )
        return stored

    @_shielded
    async def put(self, session: ChatSession, *, images: Sequence[Blob] = ()) -> ChatSession:
        fresh = rules.normalized(session)
        async with self._database.transaction(f"save session {session.session_id}") as connection:
            removed_images = await self._remove(connection, session.session_id)
            if not await self._insert(
                connection, fresh, as_datetime(timestamp(fresh.metadata.updated_at)), images
            ):
                raise errors.SessionConflict(session.session_id)
            await row_mapping.delete_unreferenced_images(connection, removed_images or [])
        return await self.load(session.session_id)

    async def load_image(self, sha256: str) -> bytes:
        async with self._database.connection("read an image") as connection:
            statement = "SELECT data FROM images WHERE sha256 = %s"
            row = await fetch_one(connection, statement, [sha256]) if is_sha256(sha256) else None
        if row is None:
            raise errors.BlobNotFound(sha256)
        return bytes(row[0])

    async def load(self, session_id: str) -> ChatSession:
        head, history, needs_recovery = await self._read(session_id)
        if needs_recovery and self._reads_only:
            messages = await self._recovered(head, history.messages)
            return head._replace(message_count=len(messages)).session(messages)
        if needs_recovery:
            await self.recover_crashed(session_id)
            head, history, _ = await self._read(session_id)
        return head.session(history.messages)

    @_shielded
    async def write(self, session_id: str, change: Change) -> int:
        if change.only_partial is not None:
            await self._write_only_partial(session_id, change.only_partial)
            return 0
        removed = await self._write_messages(session_id, change)
        if change.notices:
            self._outbox.stored.set()
        return removed

    async def load_versions(self, session_id: str) -> Versions:
        async with self._database.connection(f"read session {session_id}") as connection:
            statement = f"SELECT s.key FROM sessions s WHERE {_BY_ID}"
            row = await fetch_one(connection, statement, self._parameters(session_id))
            if row is None:
                raise errors.SessionNotFound(session_id)
            return await load_versions(connection, row[0], session_id)

    @_shielded
    async def patch(
        self,
        session_id: str,
        fields: rules.FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        async with self._row_for_update(session_id) as (connection, head):
            await _require_revision(connection, head, revision)
            stored = head.metadata()
            metadata = SessionMetadata.from_dict(
                {**stored.to_dict(), **rules.normalized_fields(fields, stored)}
            )
            searched = row_mapping.searched_title(metadata, head.opening)
            values = {
                "key": head.key,
                "metadata": row_mapping.metadata_text(metadata),
                "searched": searched,
                "touch": touch,
                **row_mapping.order_columns(metadata),
            }
            await connection.execute(_PATCH, values)
        return await self.load(session_id)

    @_shielded
    async def delete(self, session_id: str) -> None:
        async with self._database.transaction(f"delete session {session_id}") as connection:
            removed_images = await self._remove(connection, session_id)
            if removed_images is None:
                raise errors.SessionNotFound(session_id)
            await row_mapping.delete_unreferenced_images(connection, removed_images)
            for table in ("idempotency_keys", "runs"):
                await connection.execute(f"DELETE FROM {table} WHERE session_id = %s", [session_id])
        self._histories.remove(session_id)

    async def list(self, query: SessionQuery) -> rules.SessionPage:
        condition, values = self._filters(query)
        for number, word in enumerate(rules.words(query.text)):
            condition += _WITH_WORD.format(number)
            values[f"word{number}"] = row_mapping.like_pattern(word)
        page = {**values, "limit": query.limit, "offset": query.offset}
        order = f"s.pinned DESC, {_NEWEST}" if query.pinned_first else _NEWEST
        async with self._database.connection("list the sessions") as connection:
            rows = await fetch_all(connection, _LIST.format(condition, order), page)
            statement = f"SELECT count(*) FROM sessions s WHERE {condition}"
            ((count,),) = await fetch_all(connection, statement, page)
        entries = []
        for row in rows:
            try:
                entries.append(encode(SessionRow(*row).list_entry()))
            except (errors.SessionDamaged, errors.SessionTooNew):
                continue  # damage was logged; the total includes the session
        return rules.SessionPage.of(entries, count)

    async def ids(self) -> Sequence[str]:
        statement = "SELECT session_id FROM sessions WHERE collection = %s"
        async with self._database.connection("list the sessions") as connection:
            rows = await fetch_all(connection, statement, [self._collection])
        return [session_id for (session_id,) in rows]

    async def count_tags(self, query: SessionQuery) -> Mapping[str, int]:
        condition, values = self._filters(query)
        async with self._database.connection("count the tags of the sessions") as connection:
            return dict(await fetch_all(connection, _COUNT_TAGS.format(condition), values))

    def _filters(self, query: SessionQuery) -> tuple[str, dict[str, Any]]:
        """Return the condition for the filters of a query, and its values.

        Sessions of later versions do not match.
        """
        condition = f"s.collection = %(collection)s AND {_SUPPORTED}"
        values: dict[str, Any] = {"collection": self._collection}
        for name, filter_condition in _FILTERS.items():
            value = getattr(query, name)
            if value is not None:
                condition += filter_condition
                values[name] = value
        if query.tags:
            condition += " AND s.tags @> %(tags)s"
            values["tags"] = [*query.tags]
        return condition, values

    async def expired(self, idle_seconds: float, moment: float) -> Sequence[str]:
        values = {
            "collection": self._collection,
            "moment": as_datetime(moment),
            "idle_since": as_datetime(moment - idle_seconds),
        }
        async with self._database.connection("find expired sessions") as connection:
            rows = await fetch_all(connection, _EXPIRED, values)
        return [session_id for (session_id,) in rows]

    async def due_turns(self, until: float) -> Mapping[str, float]:
        values = {"until": until, "collection": self._collection, "own": self._process.name}
        async with self._database.connection("find interrupted turns") as connection:
            due: dict[str, float] = dict(await fetch_all(connection, _DUE_TURNS, values))
            locked = await locked_names(connection, self._collection, due)
        return {session_id: time for session_id, time in due.items() if session_id not in locked}

    @asynccontextmanager
    async def hold(
        self, session_id: str, *, run_id: str | None = None, wait: bool = False
    ) -> AsyncIterator[None]:
        self._parameters(session_id)  # raises SessionNotFound
        async with self._locks.holding(session_id, run_id=run_id, wait=wait):
            try:
                while not await self._try_lock(session_id, run_id):
                    await self._wait_before_retry(session_id, wait=wait)
                yield
            finally:
                # The caller may have been cancelled after locking.
                if session_id in self.locked_sessions:
                    await self._release(session_id)

    async def lost_sessions(self, connection: Connection) -> set[str]:
        """Return the ids of sessions that this process had locked, but another process has since
        locked or deleted.
        """
        values = {"keys": [lock.key for lock in self.locked_sessions.values()]}
        current = await fetch_all(
            connection, "SELECT key, fence FROM sessions WHERE key = ANY(%(keys)s)", values
        )
        return {
            id_
            for id_, lock in self.locked_sessions.items()
            if (lock.key, lock.fence) not in current
        }

    async def recover_crashed(self, session_id: str) -> None:
        """Store the partial answer and missing tool results as messages, unless a live server runs
        the turn.

        Nothing changes if the session does not exist or is damaged, or if its turn survives a
        crash. Raises ``SessionTooNew``.
        """
        with suppress(errors.SessionNotFound):
            # `_row_for_update` has stored the partial answer of a dead server, if any.
            async with self._row_for_update(session_id) as (connection, head):
                row = await fetch_one(connection, _READ, self._parameters(session_id, change=0))
                if row is None:
                    return
                *_, partial, _, bodies = row
                if partial is not None or head.survives():
                    return  # a live turn that does not survive has a partial answer
                history = History.of(
                    head.message(body, position) for position, body in enumerate(bodies or [])
                )
                complete = with_missing_results(history)
                if complete is history:
                    return
                await row_mapping.replace_tail(connection, head, 0, complete, touch=False)
            lock = self.locked_sessions.get(session_id)
            if lock is not None:
                self.locked_sessions[session_id] = lock._replace(end=len(complete))

    async def recover_all_crashed(self) -> None:
        """Recover every session whose partial answer was written by a dead server, except damaged
        sessions and those of a later version.

        Raises ``StorageFailed``.
        """
        statement = (
            "SELECT session_id FROM partials JOIN sessions ON key = session WHERE collection = "
            "%(collection)s"
        )
        async with self._database.connection("find interrupted answers") as connection:
            rows = await fetch_all(connection, statement, {"collection": self._collection})
            ids = {id_ for (id_,) in rows} - self.locked_sessions.keys()
            locked = await locked_names(connection, self._collection, ids)
        for session_id in ids - locked:
            with suppress(errors.SessionTooNew):
                await self.recover_crashed(session_id)

    async def _insert_new(
        self,
        connection: Connection,
        session: ChatSession,
        images: Sequence[Blob],
        *,
        keeps_times: bool,
    ) -> ChatSession:
        """Store a session, with a new ID if its own is in use, and return it.

        If ``keeps_times`` is true, its times remain, except a change in the future. Otherwise, the
        time of the database replaces them.
        """
        fresh = rules.normalized(session)
        # The clocks of servers may differ.
        ((moment,),) = await fetch_all(connection, "SELECT clock_timestamp()")
        if keeps_times:
            moment = min(moment, as_datetime(timestamp(fresh.metadata.updated_at)))
        else:
            fresh.metadata.created_at = as_text(moment)
            fresh.metadata.updated_at = fresh.metadata.created_at
        while not await self._insert(connection, fresh, moment, images):
            fresh.metadata.session_id = new_id()
        return fresh

    async def _insert(
        self,
        connection: Connection,
        session: ChatSession,
        updated_at: datetime,
        images: Sequence[Blob],
    ) -> bool:
        """Store a session, or return False if its ID is in use.

        This changes the fields ``versions`` and ``notices`` of its metadata.
        """
        versions, extra = split_versions(session.extra)
        session.metadata.versions = places_of(versions)
        notices = [Notice.from_dict(notice) for notice in session.metadata.notices or ()]
        session.metadata.notices = None  # they have a table of their own
        values = self._parameters(
            session.session_id,
            owner=session.metadata.owner,
            metadata=row_mapping.metadata_text(session.metadata),
            extra=text_of(extra),
            updated_at=updated_at,
            searched=row_mapping.searched_title(session.metadata, "[]"),
            **row_mapping.order_columns(session.metadata),
        )
        row = await fetch_one(connection, _CREATE, values)
        if row is None:
            return False
        head = SessionRow(*row)
        await row_mapping.replace_tail(
            connection, head, 0, session.messages, images=images, touch=False
        )
        await insert_versions(connection, head.key, versions, images)
        await insert_notices(connection, filter(None, notices))
        return True

    async def _remove(self, connection: Connection, session_id: str) -> Sequence[str] | None:
        """Delete a session.

        Return the hashes of the images that it referenced, or None if it does not exist. Raises
        ``SessionTooNew``.
        """
        row = await fetch_one(connection, _LOCK, self._parameters(session_id))
        if row is None:
            return None
        *columns, _, _ = row
        head = SessionRow(*columns)
        with suppress(errors.SessionDamaged):
            head.metadata()  # raises SessionTooNew
        images = await row_mapping.images_from(connection, head.key, 0)
        await connection.execute("DELETE FROM sessions WHERE key = %s", [head.key])
        return images

    async def _write_messages(self, session_id: str, change: Change) -> int:
        """Store a change, and return how many versions it has removed.

        If this process has the lock, stored messages after ``SessionLock.end`` are replaced.
        """
        async with self._row_for_update(session_id) as (connection, head):
            lock = self.locked_sessions.get(session_id)
            # Messages after `end` are from a committed first attempt of this write, or from a
            # premature recovery.
            end = lock.end if lock else head.message_count
            start = end if change.start is None else max(0, min(change.start, end))
            new = rules.normalized_messages(change.messages, start)
            written = revision_at(start + len(new), new[-1]) if new else None
            await _require_revision(connection, head, change.revision, written)
            changed_head = head
            removed = 0
            removed_images: list[str] = []
            if change.versions is not None:
                changed_head, changed, removed_images = await change_versions(
                    connection, head, start, new, change.versions
                )
                removed = changed.removed
            await row_mapping.replace_tail(
                connection, changed_head, start, new, images=change.images, turn=change.turn
            )
            await row_mapping.delete_unreferenced_images(connection, removed_images)
            await insert_notices(connection, change.notices)
            advanced_lock = lock and lock._replace(end=start + len(new))
            if change.partial is not None:
                await self._write_partial(connection, session_id, change.partial, advanced_lock)
        if advanced_lock is not None and self.locked_sessions.get(session_id) == lock:
            self.locked_sessions[session_id] = advanced_lock
        return removed

    async def _write_only_partial(self, session_id: str, partial: PartialMessage) -> None:
        """Store a partial answer.

        Raises ``SessionNotFound``, and ``SessionTaken`` if another process has locked the session
        since.
        """
        async with self._database.connection(f"save session {session_id}") as connection:
            lock = self.locked_sessions.get(session_id)
            if not await self._write_partial(connection, session_id, partial, lock):
                exists = f"SELECT FROM sessions s WHERE {_BY_ID}"
                if await fetch_one(connection, exists, self._parameters(session_id)) is None:
                    raise errors.SessionNotFound(session_id)
                raise errors.SessionTaken(session_id)

    async def _write_partial(
        self,
        connection: Connection,
        session_id: str,
        partial: PartialMessage,
        lock: SessionLock | None,
    ) -> bool:
        """Store a partial answer after the messages of ``lock``, or after all messages.

        Return False if the session was deleted, or if a newer lock than ``lock`` exists.
        """
        values = self._parameters(
            session_id,
            body=text_of(complete_message(partial.copy(), 0, now())),
            key=lock and lock.key,
            fence=lock and lock.fence,
            position=lock and lock.end,
        )
        result = await connection.execute(_FLUSH, values)
        return result.rowcount == 1

    @asynccontextmanager
    async def _row_for_update(
        self, session_id: str, operation: str = "save", *, is_new_lock: bool = False
    ) -> AsyncIterator[tuple[Connection, SessionRow]]:
        """Provide a transaction and the locked row of a session, after storing a dead server's
        partial answer.

        If ``is_new_lock`` is true, this process has just locked the session, so any partial answer
        is from a dead server. Raises ``SessionNotFound``, and ``SessionTaken`` if another process
        has locked the session since this process locked it. With a partial answer, it also raises
        ``SessionDamaged`` and ``SessionTooNew``.
        """
        async with self._database.transaction(f"{operation} session {session_id}") as connection:
            row = await fetch_one(connection, _LOCK, self._parameters(session_id))
            if row is None:
                raise errors.SessionNotFound(session_id)
            *columns, partial, position = row
            head = SessionRow(*columns)
            lock = self.locked_sessions.get(session_id)
            if lock is not None and (lock.key, lock.fence) != (head.key, head.fence):
                raise errors.SessionTaken(session_id)
            if partial is not None and head.survives():
                partial = None  # the turn continues
            if partial is not None and (
                is_new_lock or await self._is_abandoned(connection, session_id)
            ):
                head = await row_mapping.recover_partial(connection, head, position, partial)
            yield connection, head

    async def _read(self, session_id: str) -> tuple[SessionRow, CachedHistory, bool]:
        """Return the row and the messages of a session, and whether it needs crash recovery."""
        async with self._database.connection(f"read session {session_id}") as connection:
            # The second attempt reads all messages, if the cache is outdated.
            for cached in (self._histories.get(session_id), None):
                values = self._parameters(session_id, change=cached.change if cached else 0)
                row = await fetch_one(connection, _READ, values)
                if row is None:
                    self._histories.remove(session_id)
                    raise errors.SessionNotFound(session_id)
                *columns, partial, positions, bodies = row
                head = SessionRow(*columns)
                history = (cached or CachedHistory(head.key)).updated_to(
                    head, positions or [], bodies or []
                )
                if history is None:
                    continue
                self._histories.put(session_id, history)
                if head.survives():
                    needs_recovery = False
                elif partial is None:
                    complete = with_missing_results(history.messages)
                    needs_recovery = complete is not history.messages
                else:
                    needs_recovery = await self._is_abandoned(connection, session_id)
                return head, history, needs_recovery
        raise errors.StorageFailed(
            f"read session {session_id}", OSError(5, "some of its messages are missing")
        )

    async def _recovered(self, head: SessionRow, messages: History) -> History:
        """Return the messages as ``recover_crashed`` would store them."""
        async with self._database.connection(f"read session {head.session_id}") as connection:
            row = await fetch_one(
                connection, "SELECT body, position FROM partials WHERE session = %s", [head.key]
            )
        if row is not None:
            body, position = row
            recovered = row_mapping.recovered_messages(head, position, body)
            if recovered is not None:
                messages = messages.prefix(position).extended(recovered)
        return with_missing_results(messages)

    async def _is_abandoned(self, connection: Connection, session_id: str) -> bool:
        """Return whether no process has locked the session."""
        is_own = session_id in self.locked_sessions
        return not is_own and not await locked_names(connection, self._collection, [session_id])

    @_shielded
    async def _try_lock(self, session_id: str, run_id: str | None) -> bool:
        """Lock a session and store its run, or return False if another process has the lock."""
        if not await self._process.try_lock(self._key(session_id)):
            return False
        try:
            async with self._row_for_update(session_id, "lock", is_new_lock=True) as (
                connection,
                head,
            ):
                await connection.execute(_NEXT_FENCE, [run_id, head.key])
                if run_id is not None:
                    await connection.execute(_BEGIN_RUN, [run_id, session_id, self._process.name])
        except BaseException:
            await self._process.release(self._key(session_id))
            raise
        self.locked_sessions[session_id] = SessionLock(
            head.key, head.fence + 1, run_id, head.message_count
        )
        return True

    @_shielded
    async def _release(self, session_id: str) -> None:
        """Unlock a session and end its run.

        A database outage is no error, because the lost connection has released the lock.
        """
        lock = self.locked_sessions.pop(session_id)
        try:
            if self._process.connected:
                async with self._database.transaction(f"unlock session {session_id}") as connection:
                    await connection.execute(_CLEAR_RUN, [lock.key, lock.fence])
                    await connection.execute(_END_RUN, [lock.run_id])
        except errors.StorageFailed as error:
            logger.warning("%s", error.message)
        finally:
            await self._process.release(self._key(session_id))

    async def _wait_before_retry(self, session_id: str, *, wait: bool) -> None:
        """Wait for ``_POLL_SECONDS``.

        Raises ``SessionBusy`` if a turn runs and ``wait`` is false, and ``ServerLost`` if the
        process of the turn is frozen.
        """
        async with self._database.connection(f"lock session {session_id}") as connection:
            row = await fetch_one(connection, _OWNER, self._parameters(session_id))
        run_id, is_silent = row or (None, None)
        if run_id is not None and not wait:
            raise errors.SessionBusy(session_id, run_id)
        if is_silent:
            raise errors.ServerLost(session_id)
        await asyncio.sleep(_POLL_SECONDS)

    def _parameters(self, session_id: str, **values: Any) -> dict[str, Any]:
        if not is_session_id(session_id):
            raise errors.SessionNotFound(session_id)
        return {"collection": self._collection, "session_id": session_id, **values}

    def _key(self, session_id: str) -> int:
        return lock_key(self._collection, session_id)


class PostgresStores(rules.Stores):
    """``Stores`` in one PostgreSQL database."""

    is_shared = True

    def __init__(self, url: str, own_url: str = "", *, reads_only: bool = False) -> None:
        """``own_url`` is the address at which other servers reach this process (see
        ``ServerProcess``). If ``reads_only`` is true, nothing in the database changes.
        """
        self._reads_only = reads_only
        self._database = Database(url)
        self._process = ServerProcess(self._database, own_url)
        self.webhooks: PostgresWebhookOutbox = PostgresWebhookOutbox(self._database)
        self.secrets: PostgresSecretStore = PostgresSecretStore(self._database)
        self.usage: PostgresUsageStore = PostgresUsageStore(self._database)
        shared = (self._database, self._process, self.webhooks)
        self.chats: PostgresSessionStore = PostgresSessionStore(
            *shared, "chats", reads_only=reads_only
        )
        self.agents: PostgresSessionStore = PostgresSessionStore(
            *shared, "agents", reads_only=reads_only
        )
        self.peers = PeerDirectory(self._database, self._process, self.chats.locked_sessions)
        self.turn_counts: PostgresTurnCounter = PostgresTurnCounter(self._database, self.peers)
        self._tasks: list[asyncio.Future[None]] = []

    @property
    def connected(self) -> bool:
        return self._process.connected

    async def open(self, on_sessions_lost: rules.OnSessionsLost = lambda _: None) -> None:
        """Connect, migrate the schema, register this process and start crash recovery.

        Stores that only read connect and check the version of the schema.

        Raises ``MochiError``.
        """
        await self._database.open()
        if self._reads_only:
            await require_current_schema(self._database)
            return
        await migrate(self._database)

        async def connected(connection: Connection) -> None:
            on_sessions_lost(await self.chats.lost_sessions(connection))

        await self._process.open(connected)
        await self.peers.open()
        self._tasks = [asyncio.ensure_future(self._clean_up())]

    async def check(self) -> None:
        if not self.connected:
            raise unreachable("lock sessions")
        async with self._database.connection("store sessions", _CHECK_SECONDS) as connection:
            if await fetch_one(connection, "SHOW transaction_read_only") == ("on",):
                raise ReadOnlySqlTransaction  # becomes StorageUnavailable

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)
        await self.turn_counts.aclose()
        await self._process.aclose()
        await self._database.aclose()

    async def _clean_up(self) -> None:
        while True:
            with suppress(errors.MochiError):
                await self.chats.recover_all_crashed()
                await self.agents.recover_all_crashed()
                await self._process.delete_dead_processes()
            await asyncio.sleep(_CLEAN_UP_SECONDS)


async def _require_revision(
    connection: Connection, head: SessionRow, expected: str | None, written: str | None = None
) -> None:
    """Raise ``SessionConflict`` if the revision is not ``expected``, nor that ``written`` by a
    first attempt.
    """
    if expected is None:
        return
    statement = "SELECT body FROM messages WHERE session = %(key)s AND position = %(last)s"
    last_position = head.message_count - 1
    row = await fetch_one(connection, statement, {"key": head.key, "last": last_position})
    last = head.message(row[0], last_position) if row else None
    if revision_at(head.message_count, last) not in (expected, written):
        raise errors.SessionConflict(head.session_id)
