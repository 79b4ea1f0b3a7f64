"""Result of a turn, and the tool calls and texts in the messages that the turn has added."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import MochiError
from mochi_server.events import (
    AgentToolCalled,
    AgentToolResult,
    ChatEvent,
    MessageComplete,
    Snapshot,
    ToolCalled,
    ToolResult,
)
from mochi_server.inference.window_registry import WindowDecision
from mochi_server.sessions.session import last_answer, usage_tokens
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome


@dataclass(frozen=True)
class TurnResult:
    """Result of a turn that has completed, failed, been cancelled or been parked."""

    stored: Sequence[Message] = ()  # messages that the turn added, oldest first
    repeated: Sequence[
        Message
    ] = ()  # messages of an earlier turn that this turn sends to the client again
    first_chunks: Mapping[str, float | None] = field(default_factory=dict)  # seconds, by message ID
    outcomes: Sequence[ToolOutcome] = ()
    client_tool_calls: Sequence[
        ToolInvocation
    ] = ()  # calls that the client must run after the turn
    window: WindowDecision | None = None
    failure: MochiError | None = None
    cancelled: bool = False
    turn: StoredTurn | None = None  # the turn as it is stored, or None if nothing was stored
    parked: bool = False  # whether the turn goes on, although its task has ended

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
        """Context window as a JSON object.

        ``usage_tokens`` is Ollama's token count of prompt and answer.
        """
        return {
            "current_window": self.window.window if self.window else None,
            "usage_tokens": usage_tokens(self.answer),
            "reason": self.window.reason if self.window else None,
        }

    def completed(self) -> MessageComplete:
        message = self.answer
        assert message is not None  # noqa: S101 - without an answer, the turn has failed
        return MessageComplete(
            message_id=message["message_id"],
            model=message["model"],
            eval_count=message.get("eval_count"),
            prompt_eval_count=message.get("prompt_eval_count"),
            context_window=self.window_object,
            done_reason=message.get("done_reason"),
            prompt_eval_cached_count=message.get("prompt_eval_cached_count"),
        )


def snapshot(messages: Sequence[Message]) -> Snapshot:
    answers = [message for message in messages if message["role"] == "assistant"]
    content, thinking = (
        "".join(str(answer.get(name) or "") for answer in answers)
        for name in ("content", "thinking")
    )
    return Snapshot(content, thinking)


def open_calls(messages: Sequence[Message]) -> list[ToolInvocation]:
    """Return the calls of the last answer in the messages of a turn that have no result, in
    order.
    """
    at = next(
        (n for n in reversed(range(len(messages))) if messages[n]["role"] == "assistant"), None
    )
    if at is None:
        return []
    answer = messages[at]
    first = sum(message["role"] == "tool" for message in messages[:at])
    client_calls = answer.get("client_tool_calls") or ()
    open_ = [call for call in _calls(answer, first) if call.id not in client_calls]
    for message in messages[at + 1 :]:
        answered = next((call for call in open_ if call.id == message.get("tool_call_id")), None)
        if answered is not None:  # several calls can have the same ID
            open_.remove(answered)
    return open_


def all_calls(messages: Sequence[Message]) -> list[ToolInvocation]:
    """Return all calls in the messages of a turn, in order."""
    calls: list[ToolInvocation] = []
    results = 0
    for message in messages:
        if message["role"] == "tool":
            results += 1
        else:
            calls += _calls(message, results)
    return calls


def returned_calls(answer: Message) -> list[ToolInvocation]:
    """Return the tool calls of a stored answer that the client must run."""
    return [call for call in _calls(answer) if call.id in (answer.get("client_tool_calls") or ())]


def _calls(answer: Message, first: int = 0) -> list[ToolInvocation]:
    calls = enumerate(answer.get("tool_calls") or (), first)
    return [
        ToolInvocation(n, call["id"], call["function"]["name"], call["function"]["arguments"])
        for n, call in calls
    ]


def stored_outcomes(messages: Sequence[Message]) -> list[ToolOutcome]:
    """Return the outcomes of the tool calls in the messages of a turn."""
    arguments = {call.id: call.arguments for message in messages for call in _calls(message)}
    return [
        ToolOutcome(
            ToolInvocation(
                index, call_id, str(result.get("tool_name")), arguments.get(call_id, {})
            ),
            result["content"],
            success=bool(result.get("success")),
            error_code=result.get("error_code"),
            decided_by=result.get("decided_by", "policy"),
        )
        for index, result in enumerate(message for message in messages if message["role"] == "tool")
        for call_id in [str(result.get("tool_call_id"))]
    ]


def call_events(messages: Sequence[Message], waiting: int | None) -> list[ToolCalled | ToolResult]:
    """Return the events of the calls in the messages of a turn, and of its open call with the index
    ``waiting``.
    """
    events: list[ToolCalled | ToolResult] = []
    for outcome in stored_outcomes(messages):
        if outcome.call.name != AGENT_TOOL:  # it has events of its own
            events += [outcome.call.event(), outcome.event()]
    return [*events, *(call.event() for call in open_calls(messages) if call.index == waiting)]


def agent_event(
    event: ToolCalled | ToolResult, name: str, session_id: str, parent_call_id: str
) -> ChatEvent:
    """Return the event that clients receive for an event of an agent's own turn."""
    kind = AgentToolCalled if isinstance(event, ToolCalled) else AgentToolResult
    return kind(name, **asdict(event), agent_session_id=session_id, parent_call_id=parent_call_id)
