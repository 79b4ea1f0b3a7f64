"""Requests that are repeated with their idempotency key, as the history and the latest turn of the
session show them.
"""

from dataclasses import dataclass, replace

from mochi_server.chat.turn_input import HistoryChange, TurnInput
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.history import complete_length, follows_result, last_user_index
from mochi_server.sessions.session import ChatSession, ends_turn, key_digest, last_answer
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Message


def keyed_indexes(session: ChatSession, key: str | None) -> list[int]:
    """Return the indexes of the messages, of a user or with results, that a request with this key
    stored last. Messages before the last user message are not searched.
    """
    start = last_user_index(session.history)
    if key is None or start is None:
        return []
    digest = key_digest(session.session_id, key)
    indexes = []
    for index in range(start, len(session.history)):
        if _has_digest(session.history[index], digest):
            indexes.append(index)
    return indexes


def _has_digest(message: Message, digest: str) -> bool:
    match message["role"]:
        case "user" | "tool":
            return message.get("key_digest") == digest
    return False


@dataclass(frozen=True)
class Repetition:
    """Repetition of an earlier request with the same key.

    It repeats the stored answer, or continues the turn of the earlier request.
    """

    input: TurnInput
    """Request without stored messages, which continues the interrupted turn with its results, or
    answers its message again. It is unused if the answer is repeated.
    """
    answer_start: int | None = None
    """Index of the first message of the answer to repeat, or None if the turn is incomplete."""


def find_repetition(session: ChatSession, turn_input: TurnInput) -> Repetition | None:
    """Return how a request repeats the last turn with its key, or None.

    None is the result without a key, for a new key, and for a request without new messages whose
    turn has not completed. An edit never has a key. Raises ``IdempotencyKeyReused`` for another
    request with the key.
    """
    adds_messages = turn_input.new_message is not None or bool(turn_input.results)
    if not adds_messages:
        return _find_repeated_regeneration(session, turn_input)
    indexes = keyed_indexes(session, turn_input.key)
    if turn_input.key is None or not indexes:
        return None
    for index in indexes:
        if not _contains(turn_input, session.history[index]):
            raise IdempotencyKeyReused(turn_input.key, None)
    answer_start = indexes[-1] + 1
    answers = session.history[answer_start:]
    change: HistoryChange = "continue" if turn_input.change == "continue" else "regenerate"
    again = replace(
        turn_input,
        text=None,
        images=(),
        attachments=(),
        results=(),
        result_images=(),
        change=change,
    )
    last = last_answer(answers)
    if last is not None and ends_turn(last):
        answered_by = last.get("model", "")
        wanted = turn_input.model or answered_by
        if qualified_name(wanted) != qualified_name(answered_by):
            raise IdempotencyKeyReused(turn_input.key, None)
        return Repetition(again, answer_start)
    ends_with_sent_result = turn_input.text is None and not answers
    is_returned = any(
        message["role"] == "assistant" and message.get("client_tool_calls") for message in answers
    )
    if ends_with_sent_result or is_returned or not follows_result(session.history):
        return Repetition(again)
    tools = replace(turn_input.tools, must_call=False)
    length = complete_length(answers)
    continued = replace(again, change="continue", tools=tools, continued_length=length)
    return Repetition(continued)


def run_ids(session: ChatSession, turn_input: TurnInput, run_id: str) -> list[str]:
    """Return the IDs of the runs of a turn that starts: those of the interrupted turn that it
    continues, if any, and ``run_id``.
    """
    turn = session.metadata.turn
    if not turn_input.continued_length or turn is None:
        return [run_id]
    if turn.first != turn_input.answer_index(session.history):
        return [run_id]
    return [*turn.run_ids, run_id]


def _find_repeated_regeneration(session: ChatSession, turn_input: TurnInput) -> Repetition | None:
    """Return how a request without new messages repeats the stored turn, or None if that has
    another key, has not completed or was replaced.

    Raises ``IdempotencyKeyReused`` if a message of the turn has the key.
    """
    key = turn_input.key
    turn = session.metadata.turn
    if key is None or turn is None or turn.state != "completed":
        return None
    digest = key_digest(session.session_id, key)
    if turn.key_digest != digest:
        return None
    if keyed_indexes(session, key):
        raise IdempotencyKeyReused(key, None)
    messages = session.history[turn.first :]
    answer = last_answer(messages)
    if answer is None or answer["message_id"] != turn.answer_id:
        return None  # the history was edited, or shows another version
    return Repetition(turn_input, turn.first)


def repeats_turn(session: ChatSession, turn: StoredTurn, turn_input: TurnInput) -> bool:
    """Return whether a request repeats that of ``turn``, the latest turn of the session, or the one
    with the message that the turn answers again.

    Raises ``IdempotencyKeyReused`` for another request with the key.
    """
    if turn_input.key is None:
        return False
    if find_repetition(session, turn_input) is not None:
        return True
    if turn_input.text is not None or turn_input.results:  # the history shows their keys
        return False
    return turn.key_digest == key_digest(session.session_id, turn_input.key)


def _contains(turn_input: TurnInput, stored: Message) -> bool:
    if stored["role"] == "user":
        images = [image.reference for image in turn_input.images]
        files = [attachment.reference for attachment in turn_input.attachments]
        has_blobs = stored.get("images", []) == images and stored.get("attachments", []) == files
        return stored["content"] == turn_input.text and has_blobs
    if stored["role"] != "tool":
        return False
    returned = (stored.get("tool_call_id"), stored["content"])
    for result in turn_input.results:
        if returned == (result.get("tool_call_id"), result["content"]):
            return True
    return False
