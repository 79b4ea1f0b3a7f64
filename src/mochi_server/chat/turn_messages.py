"""Messages of stored turns, and the change that stops a turn that is not live."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mochi_server.chat.turn_result import TurnResult
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.history import complete_length
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import Approval, StoredTurn
from mochi_server.sessions.types import Image, Message
from mochi_server.tools.stored_calls import (
    interrupted_outcome,
    open_calls,
    tool_message,
    unknown_outcome,
)
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, denied


def turn_messages(session: ChatSession, turn: StoredTurn) -> list[Message]:
    """Return the messages that a turn has added to its session, without the user message.

    The partial answer after which a turn continues is not one of them.
    """
    if turn.replacement is not None:
        return list(turn.replacement)  # type: ignore[arg-type]  # messages are dictionaries
    end = len(session.history)
    if turn.survives:
        end = complete_length(session.history)
    return list(session.history[turn.first : end])


def with_replacement(
    turn: StoredTurn, messages: Sequence[Message], images: Sequence[Image]
) -> StoredTurn:
    """Return a turn with the messages of its regenerated answer and the images of their results."""
    copies: list[dict[str, Any]] = [{**message} for message in messages]
    encoded = tuple(b64encode(image.data).decode() for image in images)
    return replace(turn, replacement=copies, replacement_images=encoded)


def replacement_images(turn: StoredTurn) -> list[Image]:
    """Return the images of a regenerated answer. Raises ``ValueError`` if one is damaged."""
    return [Image.of(b64decode(each)) for each in turn.replacement_images]


def turn_of_agent(
    agent_session: ChatSession, session_id: str, approval: Approval
) -> StoredTurn | None:
    """Return the turn of an agent that the turn of a session has called, or None if it has ended.

    It contains the request for the ``approval`` of its call, which the calling turn has stored.
    """
    turn = agent_session.metadata.turn
    if turn is None or turn.has_ended or turn.parent is None:
        return None
    if turn.parent.session_id != session_id:
        return None
    return replace(turn, approval=replace(approval, agent=None))


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
        return unknown_outcome(call, decided_by="user" if is_approved else "policy")
    if approval is None:
        return interrupted_outcome(call)
    call.progress.confirmation_id = approval.confirmation_id
    if decision is None:  # the stop denies the call
        return denied(call)
    if not decision.approved:
        return denied(call, decision.reason)
    call.progress.decided_by = "user"
    return interrupted_outcome(call)
