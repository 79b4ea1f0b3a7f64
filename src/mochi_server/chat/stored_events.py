"""Events of what is stored, for clients that did not receive them when it happened."""

from collections.abc import Sequence
from dataclasses import asdict

from mochi_server.constants import AGENT_TOOL
from mochi_server.events import (
    AgentToolCalled,
    AgentToolResult,
    ChatEvent,
    ContentDelta,
    Snapshot,
    ThinkingDelta,
    ToolCalled,
    ToolConfirmationRequired,
    ToolContinuationStart,
    ToolResult,
)
from mochi_server.sessions.turn import Approval
from mochi_server.sessions.types import Message
from mochi_server.tools.stored_calls import open_calls, stored_outcomes
from mochi_server.tools.toolbox import ToolInvocation, denied


def snapshot(messages: Sequence[Message]) -> Snapshot:
    content = thinking = ""
    for message in messages:
        if message["role"] == "assistant":
            content += message["content"]
            thinking += message.get("thinking") or ""
    return Snapshot(content, thinking)


def answer_events(messages: Sequence[Message], *, is_agent: bool) -> list[ChatEvent]:
    """Return the events of the messages of a completed turn, with each text in one event.

    ``is_agent`` states whether an agent has answered, whose first answer is its plan.
    """
    answers = [message for message in messages if message["role"] == "assistant"]
    events: list[ChatEvent] = []
    for number, answer in enumerate(answers):
        if number > 0:
            events.append(ToolContinuationStart())
        reasoning, text = answer.get("thinking"), answer["content"]
        if is_agent:
            reasoning = None
            if number == 0:  # the plan
                reasoning, text = text, ""
        if reasoning:
            events.append(ThinkingDelta(reasoning))
        if text:
            events.append(ContentDelta(text))
    return events


def call_events(messages: Sequence[Message], waiting: int | None) -> list[ToolCalled | ToolResult]:
    """Return the events of the calls in the messages of a turn, and of its open call with the index
    ``waiting``.
    """
    events: list[ToolCalled | ToolResult] = []
    for outcome in stored_outcomes(messages):
        if outcome.call.name != AGENT_TOOL:  # it has events of its own
            events += [outcome.call.event(), outcome.event()]
    for call in open_calls(messages):
        if call.index == waiting:
            events.append(call.event())
    return events


def agent_event(
    event: ToolCalled | ToolResult, name: str, session_id: str, parent_call_id: str
) -> ChatEvent:
    """Return the event that clients receive for an event of an agent's own turn."""
    kind = AgentToolCalled if isinstance(event, ToolCalled) else AgentToolResult
    return kind(name, **asdict(event), agent_session_id=session_id, parent_call_id=parent_call_id)


def announcement(approval: Approval) -> ToolConfirmationRequired:
    return ToolConfirmationRequired(
        approval.tool_name,
        approval.arguments,
        approval.call_index,
        approval.confirmation_id,
        approval.agent_name,
    )


def denied_event(approval: Approval) -> ChatEvent:
    """Return the result of the announced call of a turn that a client ends."""
    call = ToolInvocation(approval.call_index, "", approval.tool_name, approval.arguments)
    result, agent = denied(call).event(), approval.agent
    if agent is None:
        return result
    return agent_event(result, agent.name, agent.session_id, agent.call_id)
