"""Sessions as rows of the database, and back. Pure."""

from collections import OrderedDict
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
"""What remembered histories may take up in memory, about."""
_MESSAGE_BYTES = 700
_OPENING_CHARS = 2000


class Head(NamedTuple):
    """A row of ``sessions``, without what finds it. ``opening`` holds first user messages with their positions."""

    key: int
    metadata: str
    extra: str
    updated_at: datetime
    message_count: int
    opening: str
    change: int
    fence: int
    run_id: str | None

    def metadata_object(self) -> dict[str, Any]:
        data: dict[str, Any] = decode(self.metadata.encode())
        return data | {"updated_at": as_text(self.updated_at)}

    def session(self, messages: History) -> ChatSession:
        """The session with these messages."""
        metadata = SessionMetadata.from_dict(self.metadata_object())
        metadata.message_count = self.message_count
        return ChatSession(metadata, messages, decode(self.extra.encode()))

    def entry(self) -> dict[str, Any]:
        """The session's list entry."""
        return _entry(SessionMetadata.from_dict(self.metadata_object()), self.opening, self.message_count)


def as_text(moment: datetime) -> str:
    """A time of the database as it is stored in metadata."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def metadata_text(metadata: SessionMetadata) -> str:
    """The column ``metadata``."""
    data = metadata.to_dict()
    del data["updated_at"]
    return encode(data).decode()


def text_of(value: object) -> str:
    """A value as JSON text."""
    return encode(value).decode()


def searched_title(metadata: SessionMetadata, opening: str) -> str:
    """The column ``searched`` of a session."""
    return folded(_entry(metadata, opening, 0)["title"] or "")


def searched_text(message: Message) -> str:
    """The column ``searched`` of a message."""
    return folded(str(message.get("content") or ""))


def opening_of(opening: str, start: int, messages: Sequence[Message]) -> str:
    """The column ``opening`` of a history that goes on from a position with these messages.

    Lists show of a session what its first user message says, and the first that says something.
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
    """The messages of a session as they were at a change. Never changed in place."""

    key: int
    change: int = 0
    messages: History = field(default_factory=History)
    size: int = 0

    def brought_up_to(self, head: Head, positions: Sequence[int], bodies: Sequence[str]) -> "Remembered | None":
        """With what has changed since, which is always the end of it; None when that does not fit on it."""
        if self.key != head.key:
            return None
        if not positions and len(self.messages) == head.message_count:
            return self if self.change == head.change else replace(self, change=head.change)
        kept = self.messages.upto(min([head.message_count, *positions[:1]]))
        if list(positions) != list(range(len(kept), head.message_count)):
            return None
        messages = kept.plus(decode(body.encode()) for body in bodies)
        size = self.size + sum(2 * len(body) + _MESSAGE_BYTES for body in bodies)
        return Remembered(head.key, head.change, messages, size)


class Histories:
    """The histories of the sessions used last, so that only what is new need be read."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Remembered] = OrderedDict()
        self._bytes = 0

    def get(self, session_id: str) -> Remembered | None:
        return self._kept.get(session_id)

    def keep(self, session_id: str, history: Remembered) -> None:
        """Remember a history, and forget those that were not used for the longest time."""
        self.forget(session_id)
        self._kept[session_id] = history
        self._bytes += history.size
        while self._bytes > REMEMBERED_BYTES:
            self.forget(next(iter(self._kept)))

    def forget(self, session_id: str) -> None:
        if (history := self._kept.pop(session_id, None)) is not None:
            self._bytes -= history.size
