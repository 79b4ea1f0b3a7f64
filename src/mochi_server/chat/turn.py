"""One turn: its validated data and the source of its answer."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.parked_record import RecordWriter
from mochi_server.chat.prompt import answer_index, follows_result, last_user_index
from mochi_server.chat.turn_input import HistoryChange, TurnInput
from mochi_server.chat.turn_result import returned_calls
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import IdempotencyKeyReused
from mochi_server.events import ChatEvent, ContentDelta, Publish, ThinkingDelta
from mochi_server.inference.windows import WindowDecision
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.session import ChatSession, ends_turn, key_digest, last_answer
from mochi_server.sessions.types import Message


class Answerer:
    """Source of the answer of one turn."""

    window: WindowDecision | None = None
    """Context window of the answer, or None if no model was called."""
    repeated: Sequence[Message] = ()  # stored messages of an earlier turn that the answer repeats
    records: RecordWriter | None = None  # writer of the record of the turn, if the turn can wait for approval

    async def begin(self, session: ChatSession) -> ChatSession:
        """Change the history as the input of the turn demands. Return the changed session."""
        return session

    async def answer(self, session: ChatSession, writer: TurnWriter, publish: Publish) -> None:
        """Produce the answer: publish its events, and store its messages with ``writer``."""
        raise NotImplementedError


PrepareAnswer = Callable[[Conversation, ChatSession, TurnInput], Awaitable[Answerer]]
"""Function that validates the input of a turn, writes nothing and returns the answerer. Raises ``MochiError``."""


@dataclass(frozen=True)
class Turn:
    conversation: Conversation
    session: ChatSession
    input: TurnInput
    answerer: Answerer

    @property
    def position(self) -> int:
        """Number of messages in the session before the messages of the turn."""
        history, turn_input = self.session.history, self.input
        if turn_input.edit_index is not None:
            return turn_input.edit_index + 1
        if turn_input.text is not None:
            return len(history)
        return answer_index(history, turn_input.change)  # the turn may replace the last answer

    @property
    def has_schema(self) -> bool:
        """Whether the answer must fit a JSON schema."""
        return isinstance(self.input.generation.answer_format(self.session.metadata.format), dict)


class StoredAnswer(Answerer):
    """Answerer that repeats the stored answer to a request with the same idempotency key."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.repeated = messages

    async def answer(self, _: ChatSession, writer: TurnWriter, publish: Publish) -> None:
        writer.client_tool_calls += returned_calls(last_answer(self.repeated) or {})
        events: list[ChatEvent] = []
        for message in self.repeated:
            if message["role"] == "assistant":
                events += [ThinkingDelta(message["thinking"])] if message.get("thinking") else []
                events += [ContentDelta(message["content"])] if message["content"] else []
        publish(events)


def keyed_indexes(session: ChatSession, key: str | None) -> list[int]:
    """Return the indexes of the messages, of a user or with results, that a request with this key stored last."""
    if key is None or (start := last_user_index(session.history)) is None:
        return []
    digest = key_digest(session.session_id, key)
    return [i for i in range(start, len(session.history)) if session.history[i].get("key_digest") == digest]


def resolve_idempotent(session: ChatSession, turn_input: TurnInput) -> tuple[TurnInput, StoredAnswer | None]:
    """Return the input, or one that repeats the last turn with the same key, and its stored answer if complete."""
    indexes = keyed_indexes(session, turn_input.key)
    if turn_input.key is None or not indexes or (turn_input.new_message is None and not turn_input.results):
        return turn_input, None
    if not all(_contains(turn_input, session.history[index]) for index in indexes):
        raise IdempotencyKeyReused(turn_input.key, None)
    answers = session.history[indexes[-1] + 1 :]
    change: HistoryChange = "continue" if turn_input.change == "continue" else "regenerate"
    repetition = replace(turn_input, text=None, images=(), results=(), result_images=(), change=change)
    last = last_answer(answers)
    if last is not None and ends_turn(last):
        if turn_input.model is not None and qualified_name(turn_input.model) != qualified_name(last.get("model", "")):
            raise IdempotencyKeyReused(turn_input.key, None)
        return repetition, StoredAnswer(answers)
    is_returned = any(message.get("client_tool_calls") for message in answers)
    if (turn_input.text is not None or answers) and follows_result(session.history) and not is_returned:
        return replace(repetition, change="continue", tools=replace(turn_input.tools, must_call=False)), None
    return repetition, None


def _contains(turn_input: TurnInput, stored: Message) -> bool:
    if stored["role"] == "user":
        references = [image.reference for image in turn_input.images]
        return (stored["content"], stored.get("images", [])) == (turn_input.text, references)
    sent = [(result.get("tool_call_id"), result["content"]) for result in turn_input.results]
    return (stored.get("tool_call_id"), stored["content"]) in sent
