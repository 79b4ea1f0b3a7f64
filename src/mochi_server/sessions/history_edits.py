"""Edits and forks of a history, as pure functions.

Edits return ``(from_index, messages)``, the arguments of a store's ``replace_tail``.
"""

from dataclasses import replace

from mochi_server.errors import InvalidMessageIndex
from mochi_server.sessions.session import ChatSession, system_message
from mochi_server.sessions.types import Message
from mochi_server.util.clock import new_id, now

Tail = tuple[int, list[Message]]


def edited(session: ChatSession, index: int, content: str) -> Tail:
    """A user message with new words; what followed it goes.

    The message keeps its id and gets the time of the edit. Raises InvalidMessageIndex for any other message.
    """
    if not 0 <= index < len(session.history):
        raise InvalidMessageIndex(index, f"the session has {len(session.history)} messages")
    message = session.history[index]
    if message.get("role") != "user":
        raise InvalidMessageIndex(index, f"it is a message of the {message.get('role')}, not of the user")
    changed = message.copy()
    changed["content"], changed["timestamp"] = content, now()
    return index, [changed]


def with_system_prompt(session: ChatSession, content: str, source_file: str | None = None) -> Tail:
    """The history with this system message in front, in place of the one that was there."""
    return 0, [system_message(content, source_file), *without_system_prompt(session)[1]]


def without_system_prompt(session: ChatSession) -> Tail:
    """The history without its system message; the same history when it has none."""
    return 0, list(session.history[1:] if session.system_prompt else session.history)


def forked(session: ChatSession, index: int | None = None) -> ChatSession:
    """A session of its own with the history up to a message, this one included; None is the last one possible.

    Messages keep their ids. A summary that tells of later messages is left behind. Raises InvalidMessageIndex for what
    is not there, and for a message inside a round of tool calls, whose results would be missing.
    """
    messages = session.messages
    ends, waiting = [], 0
    for position, message in enumerate(messages):
        waiting = waiting - 1 if message["role"] == "tool" else len(message.get("tool_calls") or ())
        if waiting <= 0:
            ends.append(position)
    if index is None:
        index = ends[-1] if ends else -1
    elif not 0 <= index < len(messages):
        raise InvalidMessageIndex(index, f"the session has {len(messages)} messages")
    elif index not in ends:
        following = next((end for end in ends if end > index), None)
        hint = "its end is not there yet" if following is None else f"it ends with message {following}"
        raise InvalidMessageIndex(index, f"it is inside a round of tool calls; {hint}")
    kept = messages[: index + 1]
    metadata, created = session.metadata, now()
    covered = (metadata.compaction or {}).get("covers_through_message_id")
    is_covered = any(message["message_id"] == covered for message in kept)
    fresh = replace(
        metadata,
        session_id=new_id(),
        created_at=created,
        updated_at=created,
        message_count=len(kept),
        summary=metadata.summary if len(kept) == len(messages) else None,
        compaction=metadata.compaction if is_covered else None,
    )
    return ChatSession(fresh, kept, session.extra)


def index_of(session: ChatSession, message_id: str) -> int:
    """The position of a message. Raises InvalidMessageIndex."""
    for index, message in enumerate(session.messages):
        if message["message_id"] == message_id:
            return index
    raise InvalidMessageIndex(message_id, "the session has none of that id")
