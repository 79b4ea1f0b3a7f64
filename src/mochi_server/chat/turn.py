"""One turn: the source of its answer, its validated data and its result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.prompt_messages import answer_index
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import MochiError
from mochi_server.events import MessageComplete, Publish
from mochi_server.inference.windows import WindowDecision
from mochi_server.sessions.session import ChatSession, last_answer, usage_tokens
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome


class Answerer(Protocol):
    """Source of the answer of one turn."""

    @property
    def window(self) -> WindowDecision | None:
        """Context window of the answer, or None if no model was called."""

    @property
    def repeated(self) -> Sequence[Message]:
        """Stored messages of an earlier turn that the answer repeats."""

    async def begin(self, session: ChatSession) -> ChatSession:
        """Change the history as the input of the turn demands. Return the changed session."""

    async def answer(self, session: ChatSession, writer: TurnWriter, publish: Publish) -> None:
        """Produce the answer: publish its events, and store its messages with ``writer``."""


class AnswererFactory(Protocol):
    """Factory of the answerers of one kind. ``prepare`` validates the input of a turn and writes nothing."""

    async def prepare(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> Answerer:
        """Return the answerer of a turn. Raises ``MochiError`` if the turn cannot start."""


@dataclass(frozen=True)
class Turn:
    """Validated turn that is ready to run."""

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


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn that has completed, failed or been cancelled."""

    stored: Sequence[Message] = ()
    """Messages that the turn added, oldest first."""
    repeated: Sequence[Message] = ()
    """Messages of an earlier turn that this turn sends to the client again."""
    outcomes: Sequence[ToolOutcome] = ()
    client_tool_calls: Sequence[ToolInvocation] = ()
    """Calls that the client must run after the turn."""
    window: WindowDecision | None = None
    failure: MochiError | None = None
    cancelled: bool = False

    @property
    def answer(self) -> Message | None:
        """Last message of the model in this turn, or None if the model has not answered."""
        return last_answer(self.stored) or last_answer(self.repeated)

    @property
    def partial_id(self) -> str | None:
        """ID of the partial answer of an interrupted turn, or None if the turn has none."""
        answer = last_answer(self.stored)
        return answer["message_id"] if answer is not None and answer.get("interrupted") else None

    @property
    def window_object(self) -> dict[str, Any]:
        """Context window as a JSON object. ``usage_tokens`` is Ollama's token count of prompt and answer."""
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(self.answer),
            "reason": self.window.reason if self.window else None,
        }

    def completed(self) -> MessageComplete:
        """Return the event that reports the complete answer."""
        message = self.answer
        assert message is not None  # noqa: S101 - without an answer, the turn has failed
        return MessageComplete(
            message_id=message["message_id"],
            model=message["model"],
            eval_count=message.get("eval_count"),
            prompt_eval_count=message.get("prompt_eval_count"),
            context_window=self.window_object,
            done_reason=message.get("done_reason"),
        )
