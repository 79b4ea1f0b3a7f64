"""Result of a turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.errors import MochiError
from mochi_server.events import MessageComplete
from mochi_server.inference.window_registry import WindowDecision
from mochi_server.sessions.session import last_answer, usage_tokens
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import AssistantMessage, Message
from mochi_server.tools.stored_calls import returned_calls
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn that has completed, failed, been cancelled or been suspended."""

    stored: Sequence[Message] = ()  # messages that the turn added, oldest first
    replaced: Sequence[AssistantMessage] = ()
    """Answers that the turn has requested again. They are not stored, but they cost tokens."""
    first_chunks: Sequence[tuple[str, float | None]] = ()
    """Message ID, and seconds until the first chunk, of each request for an answer."""
    outcomes: Sequence[ToolOutcome] = ()
    window: WindowDecision | None = None
    failure: MochiError | None = None
    cancelled: bool = False
    turn: StoredTurn | None = None  # the turn as it is stored, or None if nothing was stored
    earlier: int = 0
    """Number of messages in ``stored`` that the turn had added before it was last continued."""

    @property
    def new_messages(self) -> Sequence[Message]:
        """Messages that the turn has added since it was last continued, or all if it never was."""
        return self.stored[self.earlier :]

    @property
    def answer(self) -> AssistantMessage | None:
        """Last message of the model in this turn, or None if the model has not answered."""
        return last_answer(self.stored)

    @property
    def answer_id(self) -> str | None:
        return None if self.answer is None else self.answer["message_id"]

    @property
    def client_tool_calls(self) -> list[ToolInvocation]:
        """Calls that the client must run after the turn."""
        return [] if self.answer is None else returned_calls(self.answer)

    @property
    def is_suspended(self) -> bool:
        """Whether the turn goes on, although its task has ended."""
        if self.turn is None or self.cancelled or self.failure is not None:
            return False
        return not self.turn.has_ended

    @property
    def partial_id(self) -> str | None:
        """ID of the answer if it is partial, otherwise None."""
        answer = self.answer
        if answer is None or not answer.get("interrupted"):
            return None
        return answer["message_id"]

    @property
    def window_object(self) -> dict[str, Any]:
        """Context window as a JSON object.

        ``usage_tokens`` is Ollama's token count of prompt and answer.
        """
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(self.answer),
            "reason": self.window.reason if self.window else None,
        }

    def completed(self) -> MessageComplete:
        """Return the event for the complete answer."""
        message = self.answer
        assert message is not None  # noqa: S101 - without an answer, the turn has failed
        return MessageComplete(
            message_id=message["message_id"],
            model=message.get("model", ""),  # a file may lack it
            eval_count=message.get("eval_count"),
            prompt_eval_count=message.get("prompt_eval_count"),
            context_window=self.window_object,
            done_reason=message.get("done_reason"),
            prompt_eval_cached_count=message.get("prompt_eval_cached_count"),
        )
