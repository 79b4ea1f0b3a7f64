"""End of a stored turn that is stopped while it is not live."""

from collections.abc import Sequence

from mochi_server.chat.turn_messages import replacement_images, turn_messages
from mochi_server.chat.turn_result import TurnResult
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Message
from mochi_server.tools.stored_calls import (
    interrupted_outcome,
    lost_outcome,
    open_calls,
    tool_message,
)
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, denied


def stopped_messages(session: ChatSession, turn: StoredTurn) -> list[Message]:
    """Return the messages of a stored turn that ends, with results of its open calls.

    The call that waits for approval is denied. A call that may have begun has an unknown result.
    The others are interrupted.
    """
    calls = unfinished_calls(session, turn)
    results = [tool_message(call, _stopped_outcome(call, turn)) for call in calls]
    return [*turn_messages(session, turn), *results]


def unfinished_calls(session: ChatSession, turn: StoredTurn) -> list[ToolInvocation]:
    """Return the open calls of a stored turn, with the progress of the one that runs an agent."""
    calls = open_calls(turn_messages(session, turn))
    agent = turn.agent_call
    if agent is not None and calls and calls[0].id == agent.call_id:  # calls run in order
        calls[0].begin_agent(agent.name, agent.session_id)
    return calls


def stopped_change(session: ChatSession, turn: StoredTurn, messages: Sequence[Message]) -> Change:
    """Return the change that ends a stored turn with its ``stopped_messages``.

    What a regeneration has produced replaces the old answer.
    """
    ended = turn.ended("stopped", TurnResult(messages).answer_id)
    if not turn.replacement:
        stored = turn_messages(session, turn)
        return Change(messages[len(stored) :], turn=ended)
    return Change(
        messages,
        start=turn.first,
        images=replacement_images(turn),
        turn=ended,
        versions=VersionChange(),
        revision=session.revision,
    )


def _stopped_outcome(call: ToolInvocation, turn: StoredTurn) -> ToolOutcome:
    """Return the outcome of an open call of a stopped turn. The progress of the call gets the
    decision on it.
    """
    approval = turn.approval
    if approval is not None and (approval.agent is not None or approval.call_index != call.index):
        approval = None  # of another call
    decision = None if approval is None else approval.decision
    if turn.has_begun(call.id, call.index):
        is_approved = decision is not None and decision.approved
        return lost_outcome(call, decided_by="user" if is_approved else "policy")
    if approval is None:
        return interrupted_outcome(call)
    call.progress.confirmation_id = approval.confirmation_id
    if decision is None:  # the stop denies the call
        return denied(call)
    if not decision.approved:
        return denied(call, decision.reason)
    call.progress.decided_by = "user"
    return interrupted_outcome(call)
