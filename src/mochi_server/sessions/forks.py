"""The rules for going on from a message in a session of its own, as pure functions."""

from dataclasses import replace

from mochi_server.errors import InvalidMessageIndex
from mochi_server.sessions.session import ChatSession, new_id, now
from mochi_server.sessions.types import Message


def forked(session: ChatSession, index: int | None = None) -> ChatSession:
    """A session of its own with the history up to a message, this one included; None is the last one possible.

    Messages keep their ids. A summary that tells of later messages is left behind. Raises InvalidMessageIndex for what
    is not there, and for a message inside a round of tool calls, whose results would be missing.
    """
    ends = _ends(session.messages)
    kept = session.messages[: _length(session, ends, index)]
    metadata, created = session.metadata, now()
    covered = (metadata.compaction or {}).get("covers_through_message_id")
    is_covered = any(message["message_id"] == covered for message in kept)
    fresh = replace(
        metadata,
        session_id=new_id(),
        created_at=created,
        updated_at=created,
        message_count=len(kept),
        summary=metadata.summary if len(kept) == len(session.messages) else None,
        compaction=metadata.compaction if is_covered else None,
    )
    return ChatSession(fresh, kept, session.extra)


def index_of(session: ChatSession, message_id: str) -> int:
    """The position of a message. Raises InvalidMessageIndex."""
    for index, message in enumerate(session.messages):
        if message["message_id"] == message_id:
            return index
    raise InvalidMessageIndex(message_id, "the session has none of that id")


def _length(session: ChatSession, ends: list[int], index: int | None) -> int:
    if index is None:
        return ends[-1] + 1 if ends else 0
    if not 0 <= index < len(session.messages):
        raise InvalidMessageIndex(index, f"the session has {len(session.messages)} messages")
    if index not in ends:
        following = next((end for end in ends if end > index), None)
        hint = "its end is not there yet" if following is None else f"it ends with message {following}"
        raise InvalidMessageIndex(index, f"it is inside a round of tool calls; {hint}")
    return index + 1


def _ends(messages: list[Message]) -> list[int]:
    """The positions behind which no tool call waits for its result."""
    ends, waiting = [], 0
    for index, message in enumerate(messages):
        waiting = waiting - 1 if message["role"] == "tool" else len(message.get("tool_calls") or ())
        if waiting <= 0:
            ends.append(index)
    return ends
