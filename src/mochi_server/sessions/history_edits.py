"""Pure functions that edit and fork a history.

Edits return ``(from_index, messages)``, the arguments of ``SessionStore.replace_tail``.
"""

from collections.abc import Sequence
from dataclasses import replace

from mochi_server.errors import InvalidMessageIndex
from mochi_server.sessions.session import ChatSession, SessionMetadata, system_message
from mochi_server.sessions.types import Message
from mochi_server.util.clock import new_id, now

Tail = tuple[int, list[Message]]


def edited(session: ChatSession, index: int, content: str) -> Tail:
    """Return the edit of a user message that removes later ones. Raises InvalidMessageIndex for other roles."""
    if not 0 <= index < len(session.history):
        raise InvalidMessageIndex(index, f"the session has {len(session.history)} messages")
    message = session.history[index]
    if message.get("role") != "user":
        raise InvalidMessageIndex(index, f"its role is {message.get('role')}, not user")
    changed = message.copy()
    changed["content"], changed["timestamp"] = content, now()
    return index, [changed]


def with_system_prompt(session: ChatSession, content: str, source_file: str | None = None) -> Tail:
    """Return the edit that sets or replaces the system message."""
    return 0, [system_message(content, source_file), *without_system_prompt(session)[1]]


def without_system_prompt(session: ChatSession) -> Tail:
    """Return the edit that removes the system message, if any."""
    return 0, list(session.history[1:] if session.system_prompt else session.history)


def forked(session: ChatSession, index: int | None = None) -> ChatSession:
    """Copy a session with its history up to and including message ``index``. The copied messages keep their ids.

    If ``index`` is None, copy all messages up to the last point at which each tool call has a result. The session's
    summary is copied only if all messages are copied. Raises InvalidMessageIndex for an invalid index, or if a tool
    call in the copy would have no result.
    """
    messages = session.messages
    ends, open_calls = [], 0
    for position, message in enumerate(messages):
        open_calls = open_calls - 1 if message["role"] == "tool" else len(message.get("tool_calls") or ())
        if open_calls <= 0:
            ends.append(position)
    if index is None:
        index = ends[-1] if ends else -1
    elif not 0 <= index < len(messages):
        raise InvalidMessageIndex(index, f"the session has {len(messages)} messages")
    elif index not in ends:
        following = next((end for end in ends if end > index), None)
        hint = "some results are missing" if following is None else f"use message {following}"
        raise InvalidMessageIndex(index, f"it is inside a round of tool calls; {hint}")
    copied = messages[: index + 1]
    metadata, created = session.metadata, now()
    config = {name: value for name, value in metadata.context_window_config.items() if name != "other_models"}
    if config["manual_override"]:  # applies only to the original session
        config |= {"manual_override": False, "current_window": None}
    fresh = replace(
        metadata,
        session_id=new_id(),
        created_at=created,
        updated_at=created,
        message_count=len(copied),
        summary=metadata.summary if len(copied) == len(messages) else None,
        compaction=None if has_stale_checkpoint(metadata, copied) else metadata.compaction,
        pending_approval=None,
        context_window_config=config,
    )
    return ChatSession(fresh, copied, session.extra)


def has_stale_checkpoint(metadata: SessionMetadata, messages: Sequence[Message]) -> bool:
    """Return whether a session has a checkpoint that covers a message which is not in ``messages``."""
    if metadata.compaction is None:
        return False
    covered = metadata.compaction.get("covers_through_message_id")
    return all(message["message_id"] != covered for message in messages)


def index_of(session: ChatSession, message_id: str) -> int:
    """Return the position of a message. Raises InvalidMessageIndex if the session has no such message."""
    for index, message in enumerate(session.history):
        if message["message_id"] == message_id:
            return index
    raise InvalidMessageIndex(message_id, "the session has no message with this id")
