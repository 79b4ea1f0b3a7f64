"""Requests that are repeated with their idempotency key, as the history of the session
shows them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mochi_server.chat.turn_input import HistoryChange, TurnInput
from mochi_server.chat.turn_result import returned_calls
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.history import follows_result, last_user_index
from mochi_server.sessions.session import ChatSession, ends_turn, key_digest, last_answer
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import ToolInvocation


@dataclass(frozen=True)
class StoredAnswer:
    """Messages of the completed turn that an earlier request with the same key has started."""

    messages: Sequence[Message]
    first: int  # number of messages in the session before them

    @property
    def client_tool_calls(self) -> list[ToolInvocation]:
        """Calls that the client must run."""
        answer = last_answer(self.messages)
        return [] if answer is None else returned_calls(answer)


def keyed_indexes(session: ChatSession, key: str | None) -> list[int]:
    """Return the indexes of the messages, of a user or with results, that a request with this key
    stored last.
    """
    if key is None or (start := last_user_index(session.history)) is None:
        return []
    digest = key_digest(session.session_id, key)
    return [
        i
        for i in range(start, len(session.history))
        if session.history[i].get("key_digest") == digest
    ]


@dataclass(frozen=True)
class Repetition:
    """Request that an earlier request with the same key has started, as the stored turn goes on."""

    input: TurnInput
    """Request that continues the interrupted turn with its results, or answers its message again.
    """
    answer: StoredAnswer | None = None
    """Answer to repeat if the turn is complete."""


def find_repetition(session: ChatSession, turn_input: TurnInput) -> Repetition | None:
    """Return how a request repeats the last turn with its key, or None if the key is new.

    Raises ``IdempotencyKeyReused`` for another request with the key.
    """
    indexes = keyed_indexes(session, turn_input.key)
    if (
        turn_input.key is None
        or not indexes
        or (turn_input.new_message is None and not turn_input.results)
    ):
        return None
    if not all(_contains(turn_input, session.history[index]) for index in indexes):
        raise IdempotencyKeyReused(turn_input.key, None)
    answers = session.history[indexes[-1] + 1 :]
    change: HistoryChange = "continue" if turn_input.change == "continue" else "regenerate"
    again = replace(turn_input, text=None, images=(), results=(), result_images=(), change=change)
    last = last_answer(answers)
    if last is not None and ends_turn(last):
        if turn_input.model is not None and qualified_name(turn_input.model) != qualified_name(
            last.get("model", "")
        ):
            raise IdempotencyKeyReused(turn_input.key, None)
        return Repetition(again, StoredAnswer(answers, indexes[-1] + 1))
    is_returned = any(message.get("client_tool_calls") for message in answers)
    if (
        (turn_input.text is not None or answers)
        and follows_result(session.history)
        and not is_returned
    ):
        return Repetition(
            replace(again, change="continue", tools=replace(turn_input.tools, must_call=False))
        )
    return Repetition(again)


def _contains(turn_input: TurnInput, stored: Message) -> bool:
    if stored["role"] == "user":
        references = [image.reference for image in turn_input.images]
        return (stored["content"], stored.get("images", [])) == (turn_input.text, references)
    sent = [(result.get("tool_call_id"), result["content"]) for result in turn_input.results]
    return (stored.get("tool_call_id"), stored["content"]) in sent
