"""SQL of messages and images, for transactions that have locked the session."""

from collections.abc import Sequence
from typing import Any

from mochi_server.postgres.database import Connection
from mochi_server.postgres.rows import Head, opening_of, searched_title, text_of
from mochi_server.sessions.images import Image, images_of
from mochi_server.sessions.search import folded
from mochi_server.sessions.types import Message

_INSERT = """
INSERT INTO messages (session, position, change, body, searched)
SELECT %(key)s, %(start)s + number - 1, %(change)s, body, searched
FROM unnest(%(bodies)s::text[], %(texts)s::text[]) WITH ORDINALITY AS new (body, searched, number)"""
_GROW = """
UPDATE sessions SET message_count = %(count)s, opening = %(opening)s, searched = %(searched)s, change = %(change)s,
    updated_at = CASE WHEN %(touch)s THEN greatest(updated_at + interval '1 microsecond', clock_timestamp())
        ELSE updated_at END
WHERE key = %(key)s"""
_SWEEP = """
DELETE FROM images i WHERE sha256 = ANY(%(names)s)
AND NOT EXISTS (SELECT 1 FROM named_images n WHERE n.sha256 = i.sha256)"""
_IMAGES_LOCK = "SELECT pg_advisory_xact_lock(470020221034)"
"""Prevents that an image gets a new name while it is removed."""


async def replace_tail(
    connection: Connection,
    head: Head,
    start: int,
    messages: Sequence[Message],
    *,
    images: Sequence[Image] = (),
    touch: bool = True,
) -> Head:
    """Replace the messages from a position on, and the partial answer; ``touch`` makes it the session's last change."""
    opening = opening_of(head.opening, start, messages)
    values: dict[str, Any] = {
        "key": head.key,
        "start": start,
        "change": head.change + 1,
        "bodies": [text_of(message) for message in messages],
        "texts": [folded(str(message.get("content") or "")) for message in messages],
        "count": start + len(messages),
        "opening": opening,
        "searched": searched_title(head.metadata(), opening),
        "touch": touch,
    }
    gone: list[str] = []
    if start < head.message_count:
        gone = await images_from(connection, head.key, start)
        await connection.execute("DELETE FROM messages WHERE session = %(key)s AND position >= %(start)s", values)
    if messages:
        await connection.execute(_INSERT, values)
    await _store_images(connection, head.key, start, messages, images)
    await remove_unnamed(connection, gone)
    await connection.execute(_GROW, values)
    await connection.execute("DELETE FROM partials WHERE session = %(key)s", values)
    return head._replace(message_count=values["count"], opening=opening, change=values["change"])


async def images_from(connection: Connection, session: int, start: int) -> list[str]:
    """Return the images that messages from a position on name, and lock images if there are any."""
    statement = "SELECT DISTINCT sha256 FROM named_images WHERE session = %s AND position >= %s"
    rows = await (await connection.execute(statement, [session, start])).fetchall()
    if rows:
        await connection.execute(_IMAGES_LOCK)
    return [row[0] for row in rows]


async def remove_unnamed(connection: Connection, names: Sequence[str]) -> None:
    """Remove those of some images that no message names any more."""
    if names:
        await connection.execute(_SWEEP, {"names": list(names)})


async def _store_images(
    connection: Connection, session: int, start: int, messages: Sequence[Message], images: Sequence[Image]
) -> None:
    named = {(start + offset, name) for offset, message in enumerate(messages) for name in images_of(message)}
    if not named and not images:
        return
    await connection.execute(_IMAGES_LOCK)
    for sha256, data in {image.sha256: image.data for image in images}.items():
        await connection.execute("INSERT INTO images VALUES (%s, %s) ON CONFLICT DO NOTHING", [sha256, data])
    for position, name in sorted(named):
        await connection.execute("INSERT INTO named_images VALUES (%s, %s, %s)", [session, position, name])
