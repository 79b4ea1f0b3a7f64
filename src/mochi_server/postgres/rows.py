"""Sessions as rows of the database, and back. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

from mochi_server.sessions.encoding import decode, encode, settle
from mochi_server.sessions.history import History
from mochi_server.sessions.search import folded
from mochi_server.sessions.session import ChatSession, SessionMetadata, automatic_title
from mochi_server.sessions.types import Message

REMEMBERED_BYTES = 128 * 1024 * 1024
"""Approximate memory limit of cached histories."""
_MESSAGE_BYTES = 700
_OPENING_CHARS = 2000


class Head(NamedTuple):
    """A row of ``sessions``, without what finds it. ``opening`` holds first user messages with their positions."""

    key: int
    stored_metadata: str
    extra: str
    updated_at: datetime
    message_count: int
    opening: str
    change: int
    fence: int

    def metadata(self) -> SessionMetadata:
        updated_at = as_text(self.updated_at)
        return SessionMetadata.from_dict({**decode(self.stored_metadata.encode()), "updated_at": updated_at})

    def session(self, messages: History) -> ChatSession:
        metadata = self.metadata()
        metadata.message_count = self.message_count
        return ChatSession(metadata, messages, decode(self.extra.encode()))

    def entry(self) -> dict[str, Any]:
        """Return the session's list entry."""
        return _entry(self.metadata(), self.opening, self.message_count)


def as_text(moment: datetime) -> str:
    """Return a time of the database as it is stored in metadata."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def text_of(value: object) -> str:
    """Return a value as JSON text."""
    return encode(value).decode()


def metadata_text(metadata: SessionMetadata) -> str:
    """Return the column ``metadata``."""
    return text_of({name: value for name, value in metadata.to_dict().items() if name != "updated_at"})


def searched_title(metadata: SessionMetadata, opening: str) -> str:
    """Return the column ``searched`` of a session."""
    return folded(_entry(metadata, opening, 0)["title"] or "")


def like_pattern(word: str) -> str:
    """Return the LIKE pattern of texts that contain a word."""
    escaped = word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"


def opening_of(opening: str, start: int, messages: Sequence[Message]) -> str:
    """Return the column ``opening`` of a history that continues from a position with these messages.

    Lists show the first user message of a session, and the first one from which a title can be made.
    """
    kept = [item for item in decode(opening.encode()) if item["at"] < start]
    for at, message in enumerate(messages, start):
        if kept and automatic_title(_spoken(kept[-1:]), None):
            break
        if message.get("role") == "user":
            said = {"at": at, "content": str(message.get("content") or "")[:_OPENING_CHARS]}
            kept = [*kept[:1], said]
    return text_of(kept)


def _entry(metadata: SessionMetadata, opening: str, message_count: int) -> dict[str, Any]:
    shown = ChatSession(metadata, _spoken(decode(opening.encode())))
    return {**settle(shown.summary_object()), "message_count": message_count}


def _spoken(opening: Sequence[dict[str, Any]]) -> list[Message]:
    return [{"role": "user", "content": item["content"]} for item in opening]


@dataclass(frozen=True)
class Remembered:
    """The messages of a session at a change. Never changed in place."""

    key: int
    change: int = 0
    messages: History = field(default_factory=History)
    memory: int = 0

    def brought_up_to(self, head: Head, positions: Sequence[int], bodies: Sequence[str]) -> "Remembered | None":
        """Return the history with later changes, which are always at its end; None if they do not fit on it."""
        if self.key != head.key:
            return None
        if not positions and len(self.messages) == head.message_count:
            return self if self.change == head.change else replace(self, change=head.change)
        kept = self.messages.upto(min([head.message_count, *positions[:1]]))
        if list(positions) != list(range(len(kept), head.message_count)):
            return None
        memory = self.memory + sum(2 * len(body) + _MESSAGE_BYTES for body in bodies)
        return Remembered(head.key, head.change, kept.plus(decode(body.encode()) for body in bodies), memory)
