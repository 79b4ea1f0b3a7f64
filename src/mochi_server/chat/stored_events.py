"""Events of what is stored, for clients that did not receive them when it happened."""

from collections.abc import Sequence
from dataclasses import asdict

from mochi_server.constants import AGENT_TOOL
from mochi_server.events import (
    AgentComplete,
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
from mochi_server.sessions.types import AssistantMessage, Message
from mochi_server.tools.stored_calls import interrupted_outcome, open_calls, stored_outcomes
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, denied


def snapshot(messages: Sequence[Message]) -> Snapshot:
    """Return the joined text and the joined reasoning of all answers in ``messages``."""
    content = thinking = ""
    for message in messages:
        if message["role"] == "assistant":
            content += message["content"]
            thinking += message.get("thinking") or ""
    return Snapshot(content, thinking)


def answer_events(messages: Sequence[Message], *, is_agent: bool) -> list[ChatEvent]:
    """Return the events of the answers and tool results of a turn, with each text in one event.

    ``is_agent`` states whether an agent has answered. Its first answer is its plan, and its own
    reasoning has no events.
    """
    outcomes = iter(stored_outcomes(messages))
    events: list[ChatEvent] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            outcome = next(outcomes)
            events += _outcome_events(outcome)
        elif message["role"] == "assistant":
            is_first = index == 0
            if not is_first:
                events.append(ToolContinuationStart())
            is_plan = is_agent and is_first
            events += _text_events(message, is_agent=is_agent, is_plan=is_plan)
    return events


def _text_events(
    answer: AssistantMessage, *, is_agent: bool, is_plan: bool
) -> list[ThinkingDelta | ContentDelta]:
    text = answer["content"]
    if is_plan:
        return [ThinkingDelta(text)] if text else []
    events: list[ThinkingDelta | ContentDelta] = []
    reasoning = None if is_agent else answer.get("thinking")
    if reasoning:
        events.append(ThinkingDelta(reasoning))
    if text:
        events.append(ContentDelta(text))
    return events


def call_events(
    messages: Sequence[Message], open_index: int | None
) -> list[ToolCalled | ToolResult]:
    """Return the events of the calls with results in the messages of a turn, and of its open call
    with the index ``open_index``.

    Calls of agents with results have none.
    """
    events: list[ToolCalled | ToolResult] = []
    for outcome in stored_outcomes(messages):
        events += _outcome_events(outcome)
    for call in open_calls(messages):
        if call.index == open_index:
            events.append(call.event())
    return events


def _outcome_events(outcome: ToolOutcome) -> list[ToolCalled | ToolResult]:
    """Return the events of a call with a result. A call of an agent has events of its own."""
    if outcome.call.name == AGENT_TOOL:
        return []
    return [outcome.call.event(), outcome.event()]


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


def interrupted_event(call: ToolInvocation) -> ChatEvent:
    """Return the event for the result of an announced call that the end of the turn has
    interrupted.
    """
    outcome = interrupted_outcome(call)
    progress = call.progress
    if progress.agent_name is None:
        return outcome.event()
    return AgentComplete(
        progress.agent_name,
        progress.agent_session_id,
        outcome.content,
        success=False,
        error_code=outcome.error_code,
        agent_session_id=progress.agent_session_id,
        parent_call_id=call.id,
    )


def stopped_event(approval: Approval) -> ChatEvent:
    """Return the result of the announced call of a turn that a client ends: it is denied, unless
    the user has approved it.
    """
    call = ToolInvocation(approval.call_index, "", approval.tool_name, approval.arguments)
    decision = approval.decision
    if decision is None:  # the stop denies the call
        outcome = denied(call)
    elif decision.approved:
        outcome = interrupted_outcome(call)
    else:
        outcome = denied(call, decision.reason)
    result = outcome.event()
    agent = approval.agent
    if agent is None:
        return result
    return agent_event(result, agent.name, agent.session_id, agent.call_id)
