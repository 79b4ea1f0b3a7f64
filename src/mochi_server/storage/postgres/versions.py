"""Versions of sessions in the database."""

from collections.abc import Sequence

from mochi_server.sessions.change import VersionChange
from mochi_server.sessions.serialization import decode
from mochi_server.sessions.types import Blob, Message, blobs_in
from mochi_server.sessions.versions import (
    ChangedVersions,
    Version,
    Versions,
    changed_versions,
    places_of,
    read_versions,
)
from mochi_server.storage.postgres import row_mapping
from mochi_server.storage.postgres.database import Connection, fetch_all
from mochi_server.storage.postgres.row_mapping import SessionRow, text_of

_READ = """
SELECT version_id, message_id, replaced_at, inside, messages FROM versions
WHERE session = %s ORDER BY number"""
_TAIL = "SELECT body FROM messages WHERE session = %s AND position >= %s ORDER BY position"
_INSERT = """
INSERT INTO versions (session, number, version_id, message_id, replaced_at, inside, messages)
SELECT %(key)s, coalesce(max(number), 0) + 1, %(version_id)s, %(message_id)s, %(replaced_at)s,
    %(inside)s, %(messages)s
FROM versions WHERE session = %(key)s"""
_MOVE = """
UPDATE versions SET message_id = %(message_id)s, inside = %(inside)s
WHERE session = %(key)s AND version_id = %(version_id)s"""
_DELETE = "DELETE FROM versions WHERE session = %s AND version_id = ANY(%s)"
_IMAGES = "SELECT DISTINCT sha256 FROM version_images WHERE session = %s AND version_id = ANY(%s)"


async def load_versions(connection: Connection, session_key: int, session_id: str) -> Versions:
    """Return the versions of a session without damaged ones, the oldest first."""
    stored = []
    for version_id, message_id, replaced_at, inside, body in await fetch_all(
        connection, _READ, [session_key]
    ):
        try:
            messages = decode(body.encode())
        except ValueError as error:
            row_mapping.log_damage(session_id, f"version {version_id}", error)
            continue
        stored.append(
            {
                "version_id": version_id,
                "message_id": message_id,
                "replaced_at": replaced_at,
                "inside": inside,
                "messages": messages,
            }
        )
    return read_versions(stored)


async def insert_versions(
    connection: Connection, session_key: int, versions: Versions, images: Sequence[Blob] = ()
) -> None:
    """Store new versions with the references to their images, and the referenced ``images``.

    Images that messages had referenced are already stored.
    """
    for version in versions:
        values = {"key": session_key, **_row(version), "messages": text_of([*version.messages])}
        await connection.execute(_INSERT, values)
        names = blobs_in(version.messages)
        if names:
            await row_mapping.store_referenced(connection, images, names)
        for name in sorted(names):
            await connection.execute(
                "INSERT INTO version_images VALUES (%s, %s, %s)",
                [session_key, version.version_id, name],
            )


async def change_versions(
    connection: Connection,
    head: SessionRow,
    start: int,
    new: Sequence[Message],
    change: VersionChange,
) -> tuple[SessionRow, ChangedVersions, list[str]]:
    """Store the versions that follow when ``new`` messages replace those from position ``start``,
    which are still stored.

    Return the changed session row, which the caller stores, the versions, and the hashes of the
    images of deleted versions. Other messages may still reference these images.
    """
    before = await load_versions(connection, head.key, head.session_id)
    rows = await fetch_all(connection, _TAIL, [head.key, start])
    replaced = [head.message(body, start + offset) for offset, (body,) in enumerate(rows)]
    changed = changed_versions(before, replaced, new, change)
    stored = {version.version_id: version for version in before}
    remaining = {version.version_id for version in changed.versions}
    deleted = sorted(stored.keys() - remaining)
    names: list[str] = []
    if deleted:
        found = await fetch_all(connection, _IMAGES, [head.key, deleted])
        names = [name for (name,) in found]
        if names:
            await connection.execute(row_mapping.IMAGES_LOCK)
        await connection.execute(_DELETE, [head.key, deleted])
    added = []
    for version in changed.versions:
        earlier = stored.get(version.version_id)
        if earlier is None:
            added.append(version)
        elif earlier != version:
            await connection.execute(_MOVE, {"key": head.key, **_row(version)})
    await insert_versions(connection, head.key, tuple(added))
    metadata = head.metadata()
    metadata.versions = places_of(changed.versions)
    changed_head = head._replace(stored_metadata=row_mapping.metadata_text(metadata))
    return changed_head, changed, names


def _row(version: Version) -> dict[str, str | None]:
    return {
        "version_id": version.version_id,
        "message_id": version.message_id,
        "replaced_at": version.replaced_at,
        "inside": version.inside,
    }
