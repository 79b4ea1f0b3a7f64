"""Idempotency keys in stored messages, for repeated requests whose run is no longer in memory."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from mochi_server.chat.prompt_messages import follows_result, last_user_index
from mochi_server.chat.turn import Responder, TurnRequest, TurnResult
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.session import ChatSession, last_answer
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import ToolInvocation


def key_digest(session_id: str, key: str) -> str:
    """Return the digest that the messages of a request store for ``key``. It differs between sessions."""
    return sha256(f"{session_id} {key}".encode()).hexdigest()[:32]


def keyed_indexes(session: ChatSession, key: str | None) -> list[int]:
    """Return the indexes of the messages that a request with the key ``key`` stored in the latest turn, if any.

    The messages are the last user message, or results of tool calls that a client sent after it.
    """
    if key is None or (start := last_user_index(session.history)) is None:
        return []
    digest = key_digest(session.session_id, key)
    return [i for i in range(start, len(session.history)) if session.history[i].get("key_digest") == digest]


def resolve_idempotent(session: ChatSession, request: TurnRequest) -> TurnRequest:
    """Return a request that repeats the last stored turn if ``request`` has the same key, else return ``request``.

    The returned request does not store the messages again. If the stored answer is complete, the request replays it,
    else the model answers the messages again. Tool calls that already have results are not repeated.

    Raises:
        IdempotencyKeyReused: A stored message with this key is not part of the request, or another model has answered.
    """
    indexes = keyed_indexes(session, request.key)
    if request.key is None or not indexes or (request.message is None and not request.results):
        return request
    if not all(_contains(request, session.history[index]) for index in indexes):
        raise IdempotencyKeyReused(request.key)
    answers = session.history[indexes[-1] + 1 :]
    repetition = replace(request, message=None, images=(), results=())
    last = last_answer(answers)
    if last is not None and not last.get("interrupted") and (last.get("handed_back") or not last.get("tool_calls")):
        if request.model is not None and qualified_name(request.model) != qualified_name(last.get("model", "")):
            raise IdempotencyKeyReused(request.key)
        return replace(repetition, responder=_replay_stored_answers(answers, last))
    is_returned = any(message.get("handed_back") for message in answers)
    if (request.message is not None or answers) and follows_result(session.history) and not is_returned:
        return replace(repetition, continues=True, must_call=False)
    return repetition


def _contains(request: TurnRequest, stored: Message) -> bool:
    """Return whether a request contains the stored message of a user or the stored result of a tool call."""
    if stored["role"] == "user":
        references = [image.reference for image in request.images]
        return (stored["content"], stored.get("images", [])) == (request.message, references)
    sent = [(result.get("tool_call_id"), result["content"]) for result in request.results]
    return (stored.get("tool_call_id"), stored["content"]) in sent


def _replay_stored_answers(messages: Sequence[Message], last: Message) -> Responder:
    calls = [
        ToolInvocation(index, call["id"], call["function"]["name"], call["function"]["arguments"])
        for index, call in enumerate(last.get("tool_calls") or ())
        if call["id"] in last["handed_back"]
    ]

    async def respond(publish: Publish) -> TurnResult:
        result = TurnResult(repeated=messages, handed_back=calls)
        events: list[ChatEvent] = []
        for message in messages:
            if message["role"] == "assistant":
                events += [ThinkingDelta(message["thinking"])] if message.get("thinking") else []
                events += [ContentDelta(message["content"])] if message["content"] else []
        publish([*events, result.completed()])
        return result

    return respond
