"""The SQL of sessions and messages. Knows rows, and no rules about who may change them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from mochi_server.postgres import pictures
from mochi_server.postgres.database import Connection
from mochi_server.postgres.rows import Head, metadata_text, opening_of, searched_text, searched_title, text_of
from mochi_server.sessions.encoding import decode
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, SessionMetadata, revision_at
from mochi_server.sessions.types import Message

_HEAD = "s.key, s.metadata, s.extra, s.updated_at, s.message_count, s.opening, s.change, s.fence, s.run_id"
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
_CREATE = """
INSERT INTO sessions AS s
    (collection, session_id, metadata, extra, updated_at, message_count, opening, searched, change)
VALUES (%(collection)s, %(session_id)s, %(metadata)s, '{}', %(updated_at)s, 0, '[]', %(searched)s, 0)
ON CONFLICT DO NOTHING RETURNING """
_INSERT = """
INSERT INTO messages (session, position, change, body, searched)
SELECT %(key)s, %(start)s + number - 1, %(change)s, body, searched
FROM unnest(%(bodies)s::text[], %(texts)s::text[]) WITH ORDINALITY AS new (body, searched, number)"""
_GROW = """
UPDATE sessions SET message_count = %(count)s, opening = %(opening)s, searched = %(searched)s, change = %(change)s,
    updated_at = CASE WHEN %(touch)s THEN greatest(updated_at + interval '1 microsecond', clock_timestamp())
        ELSE updated_at END
WHERE key = %(key)s"""
_PATCH = """
UPDATE sessions SET metadata = %(metadata)s, searched = %(searched)s,
    updated_at = greatest(updated_at + interval '1 microsecond', clock_timestamp())
WHERE key = %(key)s"""
_CHECKPOINT = f"""
INSERT INTO partials (session, body, position)
SELECT s.key, %(body)s, coalesce(%(position)s::integer, s.message_count) FROM sessions s
WHERE {_ONE} AND s.key = coalesce(%(key)s::bigint, s.key) AND s.fence = coalesce(%(fence)s::bigint, s.fence)
ON CONFLICT (session) DO UPDATE SET body = excluded.body, position = excluded.position"""
_PAGE = f"""
SELECT {_HEAD} FROM sessions s WHERE s.collection = %(collection)s {{found}}
ORDER BY s.updated_at DESC, s.session_id LIMIT %(limit)s OFFSET %(offset)s"""
_COUNT = "SELECT count(*) FROM sessions s WHERE s.collection = %(collection)s {found}"
_WITH_WORD = """
AND (s.searched LIKE %(word{0})s OR s.key IN (SELECT m.session FROM messages m WHERE m.searched LIKE %(word{0})s))"""


class Found(NamedTuple):
    """A session with what was written since a change of it. ``partial`` is an unfinished answer, as JSON."""

    head: Head
    partial: str | None
    positions: list[int]
    bodies: list[str]


class Hold(NamedTuple):
    """A session that this process may write until another hold raises the fence."""

    key: int
    fence: int
    run_id: str | None
    end: int
    """Length of the history that this process has written or read. What follows is not this holder's."""


class SessionTable:
    """The sessions of one collection."""

    def __init__(self, collection: str) -> None:
        self._collection = collection

    async def read(self, connection: Connection, session_id: str, change: int) -> Found | None:
        """A session with the messages written since that change; 0: all of them."""
        row = await self._one(connection, _READ, session_id, change=change)
        return row and Found(Head(*row[:-3]), row[-3], row[-2] or [], row[-1] or [])

    async def lock(self, connection: Connection, session_id: str) -> tuple[Head, str | None, int] | None:
        """A session's head, unfinished answer and the position of that, for this transaction alone to change."""
        row = await self._one(connection, _LOCK, session_id)
        return row and (Head(*row[:-2]), row[-2], row[-1])

    async def create(
        self, connection: Connection, session: ChatSession, updated_at: datetime, images: Sequence[Image] = ()
    ) -> bool:
        """Insert a session with its messages; False when its id is taken."""
        values = {
            "metadata": metadata_text(session.metadata),
            "updated_at": updated_at,
            "searched": searched_title(session.metadata, "[]"),
        }
        row = await self._one(connection, _CREATE + _HEAD, session.session_id, **values)
        if row is None:
            return False
        head = Head(*row)._replace(extra=text_of(session.extra))
        if session.extra:
            await connection.execute("UPDATE sessions SET extra = %s WHERE key = %s", [head.extra, head.key])
        await replace_tail(connection, head, 0, session.messages, images=images, touch=False)
        return True

    async def checkpoint(self, connection: Connection, session_id: str, partial: Message, hold: Hold | None) -> bool:
        """Note an unfinished answer; False when the session is not there, or held by others since that hold."""
        held = {"key": hold and hold.key, "fence": hold and hold.fence, "position": hold and hold.end}
        values = {**self._which(session_id), "body": text_of(partial), **held}
        return (await connection.execute(_CHECKPOINT, values)).rowcount == 1

    async def remove(self, connection: Connection, session_id: str) -> list[str]:
        """Remove a session's rows, if they are there; the images that its messages named."""
        found = await self.lock(connection, session_id)
        named = await pictures.named_from(connection, found[0].key, 0) if found else []
        await connection.execute(f"DELETE FROM sessions s WHERE {_ONE}", self._which(session_id))
        return named

    async def delete(self, connection: Connection, session_id: str) -> bool:
        """Remove a session; False when it was not there."""
        if await self.lock(connection, session_id) is None:
            return False
        await pictures.sweep(connection, await self.remove(connection, session_id))
        for table in ("idempotency_keys", "runs"):
            await connection.execute(f"DELETE FROM {table} WHERE session_id = %s", [session_id])
        return True

    async def hold(self, connection: Connection, session_id: str, run_id: str | None) -> int:
        """Raise the fence of a locked session, so that who held it before can write no more; the new one."""
        statement = f"UPDATE sessions s SET fence = fence + 1, run_id = %(run_id)s WHERE {_ONE} RETURNING fence"
        row = await self._one(connection, statement, session_id, run_id=run_id)
        return int(row[0])

    async def fences(self, connection: Connection, session_ids: list[str]) -> dict[str, tuple[int, int]]:
        """Key and fence of each session that is there."""
        statement = "SELECT session_id, key, fence FROM sessions WHERE collection = %s AND session_id = ANY(%s)"
        rows = await (await connection.execute(statement, [self._collection, session_ids])).fetchall()
        return {session_id: (key, fence) for session_id, key, fence in rows}

    async def let_go(self, connection: Connection, session_id: str, fence: int) -> None:
        """A turn has ended. An answer that is still unfinished stays, because its final write has failed."""
        values = {**self._which(session_id), "fence": fence}
        await connection.execute(f"UPDATE sessions s SET run_id = NULL WHERE {_ONE} AND fence = %(fence)s", values)

    async def holder(self, connection: Connection, session_id: str) -> tuple[str | None, str | None]:
        """The run that holds a session, or held it when its server died, and the process that runs it."""
        statement = "SELECT s.run_id, r.process FROM sessions s LEFT JOIN runs r ON r.run_id = s.run_id WHERE "
        row = await self._one(connection, statement + _ONE, session_id)
        return row or (None, None)

    async def left(self, connection: Connection) -> list[str]:
        """Sessions with an unfinished answer."""
        statement = "SELECT s.session_id FROM partials p JOIN sessions s ON s.key = p.session WHERE s.collection = %s"
        rows = await (await connection.execute(statement, [self._collection])).fetchall()
        return [row[0] for row in rows]

    async def page(
        self, connection: Connection, words: Sequence[str], limit: int | None, offset: int
    ) -> tuple[list[Head], int]:
        """A part of the list and how many there are, of all sessions or of those with these words."""
        found = "".join(_WITH_WORD.format(number) for number in range(len(words)))
        values: dict[str, Any] = {f"word{number}": _like(word) for number, word in enumerate(words)}
        values |= {"collection": self._collection, "limit": limit, "offset": offset}
        rows = await connection.execute(_PAGE.format(found=found), values)
        counted = await connection.execute(_COUNT.format(found=found), values)
        count = await counted.fetchone()
        return [Head(*row) for row in await rows.fetchall()], int(count[0]) if count else 0

    def _which(self, session_id: str) -> dict[str, Any]:
        return {"collection": self._collection, "session_id": session_id}

    async def _one(self, connection: Connection, statement: str, session_id: str, **values: Any) -> Any:
        rows = await connection.execute(statement, self._which(session_id) | values)
        return await rows.fetchone()


async def replace_tail(
    connection: Connection,
    head: Head,
    start: int,
    messages: Sequence[Message],
    *,
    images: Sequence[Image] = (),
    touch: bool = True,
) -> Head:
    """Write messages from a position on in place of those there; ``touch`` makes it the session's last change."""
    values: dict[str, Any] = {
        "key": head.key,
        "start": start,
        "change": head.change + 1,
        "bodies": [text_of(message) for message in messages],
        "texts": [searched_text(message) for message in messages],
        "count": start + len(messages),
        "opening": opening_of(head.opening, start, messages),
        "touch": touch,
    }
    values["searched"] = searched_title(SessionMetadata.from_dict(head.metadata_object()), values["opening"])
    gone: list[str] = []
    if start < head.message_count:
        gone = await pictures.named_from(connection, head.key, start)
        await connection.execute("DELETE FROM messages WHERE session = %(key)s AND position >= %(start)s", values)
    if messages:
        await connection.execute(_INSERT, values)
    await pictures.keep(connection, head.key, start, messages, images)
    await pictures.sweep(connection, gone)
    await connection.execute(_GROW, values)
    await connection.execute("DELETE FROM partials WHERE session = %(key)s", values)
    return head._replace(message_count=values["count"], opening=values["opening"], change=values["change"])


async def set_fields(connection: Connection, head: Head, fields: Mapping[str, Any]) -> None:
    """Set metadata fields; null is a field's default."""
    metadata = SessionMetadata.from_dict({**head.metadata_object(), **fields})
    searched = searched_title(metadata, head.opening)
    values = {"key": head.key, "metadata": metadata_text(metadata), "searched": searched}
    await connection.execute(_PATCH, values)


async def revision(connection: Connection, head: Head) -> str:
    """The revision of a session's history."""
    statement = "SELECT body FROM messages WHERE session = %s AND position = %s"
    row = await (await connection.execute(statement, [head.key, head.message_count - 1])).fetchone()
    return revision_at(head.message_count, decode(row[0].encode()) if row else None)


async def note_run(connection: Connection, run_id: str, session_id: str, process: str) -> None:
    """Where a run is, so that whoever is asked about it can find it."""
    statement = "INSERT INTO runs (run_id, session_id, process) VALUES (%s, %s, %s)"
    await connection.execute(statement, [run_id, session_id, process])


async def note_end(connection: Connection, run_id: str) -> None:
    """A run has ended; it can be listened to for a while."""
    await connection.execute("UPDATE runs SET ended = clock_timestamp() WHERE run_id = %s", [run_id])


async def tidy(connection: Connection, dead: Sequence[str]) -> None:
    """Remove what dead processes have left, and what nobody asks for any more."""
    values = {"dead": list(dead)}
    for statement in (
        "UPDATE runs SET ended = clock_timestamp() WHERE process = ANY(%(dead)s) AND ended IS NULL",
        "DELETE FROM runs WHERE ended < clock_timestamp() - interval '6 minutes'",
        "DELETE FROM idempotency_keys WHERE process = ANY(%(dead)s) OR claimed < clock_timestamp() - interval '1 day'",
        "DELETE FROM processes WHERE name = ANY(%(dead)s)",
    ):
        await connection.execute(statement, values)


async def quiet_processes(connection: Connection) -> list[str]:
    """The processes without a heartbeat for a while: those that have not just lost the database for a moment."""
    statement = "SELECT name FROM processes WHERE seen < clock_timestamp() - interval '30 s'"
    return [row[0] for row in await (await connection.execute(statement)).fetchall()]


async def now(connection: Connection) -> datetime:
    """The time, as the database has it: hosts may differ about it."""
    row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
    assert row is not None  # noqa: S101 - it always has one
    moment: datetime = row[0]
    return moment


def _like(word: str) -> str:
    escaped = word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"
