"""A message that comes again after its run is forgotten, as after a restart: the session knows it by its key."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from hashlib import sha256

from mochi_server.chat.history import last_user_index
from mochi_server.chat.turn import Turn, TurnRequest
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.events import ChatEvent, ContentDelta, ThinkingDelta
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message


def digest(session_id: str, key: str) -> str:
    """What messages keep of an idempotency key: it means nothing in the copies of a session."""
    return sha256(f"{session_id} {key}".encode()).hexdigest()[:32]


def unless_said(session: ChatSession, request: TurnRequest) -> TurnRequest:
    """The request, or what is left of it where its message is the last that was said: the answer, or to tell it again.

    Raises ``IdempotencyKeyReused``.
    """
    position = None if request.key is None or request.message is None else last_user_index(session.history)
    if request.key is None or position is None:
        return request
    asked, rest = session.history[position], session.history[position + 1 :]
    if asked.get("key_digest") != digest(session.session_id, request.key):
        return request
    shown = [image.reference for image in request.images]
    if asked["content"] != request.message or asked.get("images", []) != shown:
        raise IdempotencyKeyReused(request.key)
    left = replace(request, message=None, images=())
    return replace(left, instead=_Retelling(rest)) if rest and _is_whole(rest[-1]) else left


def _is_whole(message: Message) -> bool:
    return message["role"] == "assistant" and not (message.get("interrupted") or message.get("tool_calls"))


class _Retelling:
    """The texts of an earlier turn, and how it ended."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    async def __call__(self, turn: Turn) -> AsyncGenerator[list[ChatEvent], None]:
        turn.retold = self._messages
        events: list[ChatEvent] = []
        for message in self._messages:
            if message["role"] == "assistant":
                events += [ThinkingDelta(message["thinking"])] if message.get("thinking") else []
                events += [ContentDelta(message["content"])] if message["content"] else []
        yield [*events, turn.completed()]
