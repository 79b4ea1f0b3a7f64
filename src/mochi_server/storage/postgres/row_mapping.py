"""Conversion between sessions and database rows, and the SQL statements that change messages and
images.
"""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from mochi_server.errors import SessionDamaged
from mochi_server.sessions.history import History, close_partial
from mochi_server.sessions.serialization import decode, encode
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    automatic_title,
    complete_message,
)
from mochi_server.sessions.store import normalized_text
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Blob, Message, blobs_of
from mochi_server.storage.postgres.database import Connection, fetch_all
from mochi_server.util.clock import as_datetime, as_text, timestamp

_MESSAGE_BYTES = 700
_OPENING_CHARS = 2000
_MESSAGE_KEYS = {"role", "content", "message_id", "timestamp"}
_INSERT = """
INSERT INTO messages (session, position, change, body, searched)
SELECT %(key)s, %(start)s + number - 1, %(change)s, body, searched
FROM unnest(%(bodies)s::text[], %(texts)s::text[])
    WITH ORDINALITY AS new (body, searched, number)"""
_UPDATE_SESSION = """
UPDATE sessions SET message_count = %(count)s, opening = %(opening)s, searched = %(searched)s,
    change = %(change)s, metadata = %(metadata)s,
    updated_at = CASE WHEN %(touch)s
        THEN greatest(updated_at + interval '1 microsecond', clock_timestamp())
        ELSE updated_at END
WHERE key = %(key)s"""
_DELETE_IMAGES = """
DELETE FROM images i WHERE sha256 = ANY(%(names)s)
AND NOT EXISTS (SELECT 1 FROM named_images n WHERE n.sha256 = i.sha256)
AND NOT EXISTS (SELECT 1 FROM version_images v WHERE v.sha256 = i.sha256)"""
_NAMED = """
SELECT sha256 FROM named_images WHERE session = %(key)s AND position >= %(start)s
UNION SELECT sha256 FROM version_images WHERE session = %(key)s AND %(start)s = 0"""
# The lock of all images prevents new references to images that are being removed. The transaction
# holds it until its end.
IMAGES_LOCK = "SELECT pg_advisory_xact_lock(470020221034)"


logger = logging.getLogger(__name__)
_logged: set[tuple[str, str]] = set()  # damaged parts of sessions that were logged


class SessionRow(NamedTuple):
    """Row of the table ``sessions``.

    ``opening`` is a JSON list of user messages (see ``changed_opening``).

    All methods raise ``SessionDamaged`` if the row is damaged, and ``SessionTooNew``.
    """

    key: int
    session_id: str
    stored_metadata: str
    extra: str
    updated_at: datetime
    message_count: int
    opening: str
    change: int
    fence: int

    def metadata(self) -> SessionMetadata:
        """Return the metadata. Only ``session`` sets their ``message_count``, which is 0 here."""
        own = {"session_id": self.session_id, "updated_at": as_text(self.updated_at)}
        stored = self._object(self.stored_metadata, "metadata")
        self._object(self.extra, "extra")  # raises SessionDamaged
        try:
            return SessionMetadata.from_dict({**stored, **own})
        except ValueError as error:
            raise log_damage(self.session_id, "metadata", error) from error

    def survives(self) -> bool:
        """Return whether the turn of the session continues after a crash."""
        turn = self.metadata().turn
        return turn is not None and turn.survives

    def session(self, messages: History) -> ChatSession:
        metadata = self.metadata()
        metadata.message_count = self.message_count
        return ChatSession(metadata, messages, self._object(self.extra, "extra"))

    def message(self, body: str, position: int) -> Message:
        """Return the message in the column ``body`` of a row of the table ``messages``.

        Missing fields are completed.
        """
        message: Message = self._object(body, f"message {position}")  # type: ignore[assignment]
        if message.keys() >= _MESSAGE_KEYS and isinstance(message["content"], str):
            return message
        return complete_message(message, position, as_text(self.updated_at))

    def _object(self, text: str, part: str) -> dict[str, Any]:
        try:
            value = decode(text.encode())
            if not isinstance(value, dict):
                raise ValueError("it is not a JSON object")
        except ValueError as error:
            raise log_damage(self.session_id, part, error) from error
        return value

    def list_entry(self) -> dict[str, Any]:
        return _list_entry(self.metadata(), self.opening, self.message_count)


def log_damage(session_id: str, part: str, error: ValueError) -> SessionDamaged:
    """Log a damaged part of a session, once, and return the error for it."""
    if (session_id, part) not in _logged:
        _logged.add((session_id, part))
        logger.warning("session is damaged session_id=%s part=%s: %s", session_id, part, error)
    return SessionDamaged(session_id)


def text_of(value: object) -> str:
    return encode(value).decode()


def metadata_text(metadata: SessionMetadata) -> str:
    """Return the JSON text for the column ``sessions.metadata``, which does not include
    ``updated_at``.
    """
    values = metadata.to_dict()
    values.pop("updated_at", None)
    return text_of(values)


def order_columns(metadata: SessionMetadata) -> dict[str, Any]:
    """Return the columns of the table ``sessions`` that lists filter and sort by."""
    expires_at = metadata.expires_at
    return {
        "tags": [tag.replace("\0", "") for tag in metadata.tags],
        "pinned": metadata.pinned,
        "archived": metadata.archived,
        "temporary": metadata.temporary,
        "expires_at": None if expires_at is None else as_datetime(timestamp(expires_at)),
    }


def searched_title(metadata: SessionMetadata, opening: str) -> str:
    """Return the normalized title of a session for the column ``sessions.searched``."""
    return normalized_text(_list_entry(metadata, opening, 0)["title"] or "")


def like_pattern(word: str) -> str:
    """Return an SQL LIKE pattern that matches all texts that contain ``word``."""
    escaped = word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"


def changed_opening(opening: str, start: int, messages: Sequence[Message]) -> str:
    """Return the column ``opening`` after ``messages`` replace those from position ``start``.

    It has the first user message, and the first one that is not blank, for the title.
    """
    items = [item for item in _opening_items(opening) if item["at"] < start]
    for at, message in enumerate(messages, start):
        if items and automatic_title(_user_messages(items[-1:]), None):
            break
        if message.get("role") == "user":
            items = [
                *items[:1],
                {"at": at, "content": str(message.get("content") or "")[:_OPENING_CHARS]},
            ]
    return text_of(items)


def _list_entry(metadata: SessionMetadata, opening: str, message_count: int) -> dict[str, Any]:
    session = ChatSession(metadata, _user_messages(_opening_items(opening)))
    return {**session.summary_object(), "message_count": message_count}


def _opening_items(opening: str) -> list[dict[str, Any]]:
    """Return the items of the column ``opening``.

    A damaged column counts as empty: it only copies messages.
    """
    try:
        items = decode(opening.encode())
    except ValueError:
        return []
    is_valid = isinstance(items, list) and all(map(_is_opening_item, items))
    return items if is_valid else []


def _is_opening_item(item: object) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("at"), int)
        and isinstance(item.get("content"), str)
    )


def _user_messages(opening: Sequence[dict[str, Any]]) -> list[Message]:
    return [
        {"role": "user", "content": item["content"], "message_id": "", "timestamp": ""}
        for item in opening
    ]


@dataclass(frozen=True)
class CachedHistory:
    """Immutable copy of a session's messages.

    ``change`` is the change number of the session when it was read. ``memory`` is an upper limit in
    bytes, because it includes messages that were replaced later.
    """

    key: int
    change: int = 0
    messages: History = field(default_factory=History)
    memory: int = 0

    def updated_to(
        self, head: SessionRow, positions: Sequence[int], bodies: Sequence[str]
    ) -> "CachedHistory | None":
        """Return this history with the messages written since ``change``, or None if it is
        outdated.
        """
        if self.key != head.key:
            return None
        start = positions[0] if positions else head.message_count
        unchanged = self.messages.prefix(start)
        missing = range(len(unchanged), head.message_count)
        if list(positions) != list(missing):
            return None
        memory = self.memory + sum(2 * len(body) + _MESSAGE_BYTES for body in bodies)
        new = [
            head.message(body, position) for body, position in zip(bodies, positions, strict=True)
        ]
        return CachedHistory(head.key, head.change, unchanged.extended(new), memory)


async def replace_tail(
    connection: Connection,
    head: SessionRow,
    start: int,
    messages: Sequence[Message],
    *,
    images: Sequence[Blob] = (),
    touch: bool = True,
    turn: StoredTurn | None = None,
) -> SessionRow:
    """Replace all messages from position ``start``, remove the partial answer and return the
    changed session row.

    The caller has locked the row in a transaction. Images that only the replaced messages reference
    are deleted. The time ``updated_at`` changes only if ``touch`` is true, and not in the returned
    row.
    """
    opening = changed_opening(head.opening, start, messages)
    metadata = head.metadata()
    if turn is not None:
        metadata.turn = turn
        head = head._replace(stored_metadata=metadata_text(metadata))
    values: dict[str, Any] = {
        "key": head.key,
        "start": start,
        "change": head.change + 1,
        "bodies": [text_of(message) for message in messages],
        "texts": [normalized_text(str(message.get("content") or "")) for message in messages],
        "count": start + len(messages),
        "opening": opening,
        "searched": searched_title(metadata, opening),
        "metadata": head.stored_metadata,
        "touch": touch,
    }
    removed_images: list[str] = []
    if start < head.message_count:
        removed_images = await images_from(connection, head.key, start)
        await connection.execute(
            "DELETE FROM messages WHERE session = %(key)s AND position >= %(start)s", values
        )
    if messages:
        await connection.execute(_INSERT, values)
    await _store_references(connection, head.key, start, messages, images)
    await delete_unreferenced_images(connection, removed_images)
    await connection.execute(_UPDATE_SESSION, values)
    await connection.execute("DELETE FROM partials WHERE session = %(key)s", values)
    return head._replace(message_count=values["count"], opening=opening, change=values["change"])


async def recover_partial(
    connection: Connection, head: SessionRow, position: int, partial: str
) -> SessionRow:
    """Store the partial answer of a dead server as messages, or discard a damaged one.

    Return the session row.
    """
    messages = recovered_messages(head, position, partial)
    if messages is None:
        await connection.execute("DELETE FROM partials WHERE session = %s", [head.key])
        return head
    return await replace_tail(connection, head, position, messages, touch=False)


def recovered_messages(head: SessionRow, position: int, partial: str) -> list[Message] | None:
    """Return the partial answer of a dead server as messages, or None if it is damaged."""
    try:
        recovered = close_partial(decode(partial.encode()))
        updated_at = as_text(head.updated_at)
        return [
            complete_message(message, at, updated_at)
            for at, message in enumerate(recovered, position)
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning(
            "partial answer discarded because it is damaged session_id=%s: %r",
            head.session_id,
            error,
        )
        return None


async def images_from(connection: Connection, session_key: int, start: int) -> list[str]:
    """Return the hashes of the images that the messages from position ``start`` reference. If there
    are any, acquire the lock of all images.

    With ``start`` 0, the images of versions are included.
    """
    rows = await fetch_all(connection, _NAMED, {"key": session_key, "start": start})
    if rows:
        await connection.execute(IMAGES_LOCK)
    return [row[0] for row in rows]


async def delete_unreferenced_images(connection: Connection, names: Sequence[str]) -> None:
    """Delete the images with the hashes ``names`` that no message and no version references."""
    if names:
        await connection.execute(_DELETE_IMAGES, {"names": list(names)})


async def _store_references(
    connection: Connection,
    session_key: int,
    start: int,
    messages: Sequence[Message],
    images: Sequence[Blob],
) -> None:
    """Store the references of ``messages`` to their images, and the referenced ``images``."""
    references: set[tuple[int, str]] = set()
    for position, message in enumerate(messages, start):
        references.update((position, name) for name in blobs_of(message))
    if not references:
        return
    await store_referenced(connection, images, {name for _, name in references})
    for position, name in sorted(references):
        await connection.execute(
            "INSERT INTO named_images VALUES (%s, %s, %s)", [session_key, position, name]
        )


async def store_referenced(connection: Connection, images: Sequence[Blob], names: Set[str]) -> None:
    """Acquire the lock of all images, and store those of ``images`` that have the hashes
    ``names``.
    """
    await connection.execute(IMAGES_LOCK)
    for image in images:
        if image.sha256 in names:
            await connection.execute(
                "INSERT INTO images VALUES (%s, %s) ON CONFLICT DO NOTHING",
                [image.sha256, image.data],
            )
