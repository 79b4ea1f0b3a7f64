"""The SQL of images: stored with the messages that name them, gone with the last of these."""

from collections.abc import Sequence

from mochi_server.postgres.database import Connection
from mochi_server.sessions.images import Image, images_of
from mochi_server.sessions.types import Message

_LOCK = 0x6D6F63686A
"""So that nobody names an image that somebody else is about to remove."""

_SWEEP = """
DELETE FROM images i WHERE sha256 = ANY(%s) AND NOT EXISTS (SELECT 1 FROM named_images n WHERE n.sha256 = i.sha256)"""


async def keep(
    connection: Connection, session: int, start: int, messages: Sequence[Message], images: Sequence[Image]
) -> None:
    """Store images, and which of the messages from a position on name which."""
    named = {(start + offset, name) for offset, message in enumerate(messages) for name in images_of(message)}
    if not named and not images:
        return
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    for image in {image.sha256: image for image in images}.values():
        await connection.execute(
            "INSERT INTO images VALUES (%s, %s) ON CONFLICT DO NOTHING", [image.sha256, image.data]
        )
    for position, name in sorted(named):
        await connection.execute("INSERT INTO named_images VALUES (%s, %s, %s)", [session, position, name])


async def named_from(connection: Connection, session: int, start: int) -> list[str]:
    """The images that messages from a position on name; held until the transaction's end, if there are any."""
    statement = "SELECT DISTINCT sha256 FROM named_images WHERE session = %s AND position >= %s"
    rows = await (await connection.execute(statement, [session, start])).fetchall()
    if rows:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    return [row[0] for row in rows]


async def sweep(connection: Connection, names: Sequence[str]) -> None:
    """Remove those of some images that no message names any more."""
    if names:
        await connection.execute(_SWEEP, [list(names)])


async def load(connection: Connection, sha256: str) -> bytes | None:
    """The bytes of an image, if it is there."""
    row = await (await connection.execute("SELECT data FROM images WHERE sha256 = %s", [sha256])).fetchone()
    return bytes(row[0]) if row else None
