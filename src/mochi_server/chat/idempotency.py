"""Idempotency keys in stored messages, for repeated requests whose run is no longer in memory."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from mochi_server.chat.prompt_messages import follows_result, last_user_index
from mochi_server.chat.turn import Responder, TurnRequest, TurnResult
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message


def key_digest(session_id: str, key: str) -> str:
    """Return the digest that a user message stores for ``key``. The digest of a key differs between sessions."""
    return sha256(f"{session_id} {key}".encode()).hexdigest()[:32]


def keyed_index(session: ChatSession, key: str | None) -> int | None:
    """Return the index of the session's last user message if it was stored with the key ``key``, else None."""
    if key is None or (position := last_user_index(session.history)) is None:
        return None
    is_same_key = session.history[position].get("key_digest") == key_digest(session.session_id, key)
    return position if is_same_key else None


def resolve_idempotent(session: ChatSession, request: TurnRequest) -> TurnRequest:
    """Return a request that repeats the last stored turn if ``request`` has the same key, else return ``request``.

    The returned request does not store the user message again. If the stored answer is complete, the request replays
    it, else the model answers the user message again. Tool calls that already have results are not repeated.

    Raises:
        IdempotencyKeyReused: The stored message with this key has a different text or different images, or another
            model has answered it.
    """
    position = None if request.message is None else keyed_index(session, request.key)
    if request.key is None or position is None:
        return request
    stored, answers = session.history[position], session.history[position + 1 :]
    references = [image.reference for image in request.images]
    if stored["content"] != request.message or stored.get("images", []) != references:
        raise IdempotencyKeyReused(request.key)
    repetition = replace(request, message=None, images=())
    last = answers[-1] if answers else stored
    if last["role"] == "assistant" and not (last.get("interrupted") or last.get("tool_calls")):
        if request.model is not None and qualified_name(request.model) != qualified_name(last.get("model", "")):
            raise IdempotencyKeyReused(request.key)
        return replace(repetition, responder=_replay_stored_answer(answers))
    is_returned = any(message.get("handed_back") for message in answers)
    if follows_result(session.history) and not is_returned:
        return replace(repetition, continues=True, must_call=False)
    return repetition


def _replay_stored_answer(messages: Sequence[Message]) -> Responder:
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
