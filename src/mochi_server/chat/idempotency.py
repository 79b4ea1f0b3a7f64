"""Repeated messages whose run is no longer in memory, as after a restart. They are found by the stored key."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from mochi_server.chat.prompt_messages import last_user_index
from mochi_server.chat.turn import Responder, TurnRequest, TurnResult
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message


def key_digest(session_id: str, key: str) -> str:
    """Return the digest of an idempotency key, which a message stores. It is useless in a copy of the session."""
    return sha256(f"{session_id} {key}".encode()).hexdigest()[:32]


def resolve_idempotent(session: ChatSession, request: TurnRequest) -> TurnRequest:
    """Return the request unchanged, or one that answers or replays the last message of the session.

    Raises:
        IdempotencyKeyReused: The key belongs to another message.
    """
    position = None if request.key is None or request.message is None else last_user_index(session.history)
    if request.key is None or position is None:
        return request
    asked, rest = session.history[position], session.history[position + 1 :]
    if asked.get("key_digest") != key_digest(session.session_id, request.key):
        return request
    shown = [image.reference for image in request.images]
    if asked["content"] != request.message or asked.get("images", []) != shown:
        raise IdempotencyKeyReused(request.key)
    left = replace(request, message=None, images=())
    last = rest[-1] if rest else asked
    is_complete = last["role"] == "assistant" and not (last.get("interrupted") or last.get("tool_calls"))
    return replace(left, responder=_replay_stored_answer(rest)) if is_complete else left


def _replay_stored_answer(messages: Sequence[Message]) -> Responder:
    """Send the texts of an earlier turn again."""

    async def respond(publish: Publish) -> TurnResult:
        result = TurnResult(repeated=messages)
        events: list[ChatEvent] = []
        for message in messages:
            if message["role"] == "assistant":
                events += [ThinkingDelta(message["thinking"])] if message.get("thinking") else []
                events += [ContentDelta(message["content"])] if message["content"] else []
        publish([*events, result.completed()])
        return result

    return respond
