"""The rules for changing a history by hand, as pure functions.

Each answers ``(from_index, messages)``: what a store's ``replace_tail`` takes.
"""

from mochi_server.errors import InvalidMessageIndex
from mochi_server.sessions.session import ChatSession, now, system_message
from mochi_server.sessions.types import Message

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
    return 0, [system_message(content, source_file), *_spoken(session)]


def without_system_prompt(session: ChatSession) -> Tail:
    """The history without its system message; the same history when it has none."""
    return 0, _spoken(session)


def _spoken(session: ChatSession) -> list[Message]:
    return list(session.history[1:] if session.system_prompt else session.history)
