"""Runs of turns that are stored but not live in this process.

Clients connect to such a run after a restart, or while another server executes the turn.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from mochi_server import errors
from mochi_server.chat.conversation import Conversations
from mochi_server.chat.event_log import EventLog
from mochi_server.chat.run import Run
from mochi_server.chat.run_table import RunTable
from mochi_server.chat.stored_events import agent_event, announcement, call_events, snapshot
from mochi_server.chat.turn_input import TurnInput, restored_input
from mochi_server.chat.turn_messages import turn_messages
from mochi_server.chat.turn_result import TurnResult
from mochi_server.events import AgentStart, ChatEvent, Done, Stopped, TurnError
from mochi_server.sessions.caller import UNRESTRICTED
from mochi_server.sessions.history import first_answer_index
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import (
    AgentCall,
    Approval,
    StoredTurn,
    TurnState,
    answer_message_id,
)
from mochi_server.sessions.types import Message
from mochi_server.tools.stored_calls import open_calls
from mochi_server.tools.toolbox import ToolInvocation

_LOST_EVENTS = 1 << 30
"""Number of the snapshot of a run whose events are lost; later than that of any event."""


class StoredRuns:
    """Source of the runs of stored turns."""

    def __init__(self, conversations: Conversations, table: RunTable, ending: anyio.Event) -> None:
        """``ending`` is set when a shutdown ends the turns and streams of this server."""
        self._conversations = conversations
        self._table = table
        self._ending = ending

    async def find(self, session_id: str, run_id: str | None = None) -> Run | None:
        """Return the run with ``run_id``, or a later run of its turn.

        If ``run_id`` is None, return the session's latest run. If it is unknown, return the latest
        run if that goes on or is cached. Return None if there is no such run.

        If the events of the run are lost, the run contains what was stored. Raises
        ``SessionNotFound``.
        """
        run = self._table.find(session_id, run_id)
        if run is not None and run.running:
            return run
        # Another server may have deleted the session.
        session = await self._conversations.chats.load(session_id)
        run = self._table.find(session_id, run_id)  # meanwhile, a turn may have started
        if run is not None and (run.running or run.run_id == run_id):
            return run
        turn = session.metadata.turn
        if turn is None:
            return run
        is_latest = run is not None and run.run_id == turn.run_id
        end_is_unstored = is_latest and turn.state == "running"
        if turn.survives and not end_is_unstored:
            return await self.find_or_create(session, turn)
        if is_latest or run_id not in (None, *turn.run_ids):
            return run
        return self.create_ended(session, turn)

    async def find_or_create(self, session: ChatSession, turn: StoredTurn) -> Run:
        """Return the run of a stored turn that goes on, so that clients can connect to it.

        If the turn is neither live nor suspended here, add a suspended run to the table.
        """
        calls = await self.events_of_calls(session, turn, includes_approval_call=False)
        # The code below does not await, so that the table has at most one run of the turn.
        live = self._table.find(session.session_id, turn.run_id)
        # The table returns the latest run of the session if it does not have this one.
        if live is not None and live.run_id == turn.run_id and live.running:
            return live
        suspended = self._table.suspended(session.session_id, turn.run_id)
        if suspended is not None:
            return suspended
        last = _last_event_number(turn, calls)
        log = EventLog.restored(snapshot(turn_messages(session, turn)), last, calls)
        turn_input = _input_of(turn)
        result = TurnResult(earlier=turn_input.continued_length)
        run = self._stored_run(
            session, turn, log, input=turn_input, state=turn.state, result=result
        )
        if turn.waiting is not None:  # else the turn is about to continue
            run.publish([announcement(turn.waiting)])
        self._table.suspend(run)
        if self._ending.is_set():
            run.release_clients()
        return run

    def create_ended(self, session: ChatSession, turn: StoredTurn) -> Run:
        """Return a run of a stored turn that has ended, with a snapshot and the end as its events.

        A turn that is stored as running or waiting counts as failed. The run is not added to the
        table.
        """
        state = turn.state
        result = _result_of(session, turn)
        if state in ("running", "waiting_for_approval"):
            state = "failed"
        if state == "failed" or turn.error is not None:
            result = replace(result, failure=_failure_of(session, turn))
        calls = call_events(result.stored, None)
        log = EventLog.restored(snapshot(result.stored), _LOST_EVENTS, calls)
        run = self._stored_run(session, turn, log, state=state, result=result, is_stored=True)
        run.publish([*_ending(state, result), Done(session.session_id)])
        return run

    async def events_of_calls(
        self, session: ChatSession, turn: StoredTurn, *, includes_approval_call: bool
    ) -> Sequence[ChatEvent]:
        """Return the events of the calls of a turn until now, for clients that did not receive its
        first run.

        ``includes_approval_call`` states whether they include the call of the latest request for
        approval, if that call has no result. A call inside an agent has no event before its
        approval, so they include its request instead.
        """
        messages = turn_messages(session, turn)
        approval = turn.approval
        if approval is None:
            return call_events(messages, None)
        requested = approval if includes_approval_call else None
        if approval.agent is None:
            index = None if requested is None else requested.call_index
            return call_events(messages, index)
        events = call_events(messages, None)
        for call in open_calls(messages):
            if call.id == approval.agent.call_id:  # several calls can have the same ID
                of_agent = await self._agent_events(call, approval.agent, requested)
                return [*events, *of_agent]
        return events

    async def _agent_events(
        self, call: ToolInvocation, agent: AgentCall, requested: Approval | None
    ) -> list[ChatEvent]:
        """Return the events of an agent that ``call`` started.

        The request ``requested`` follows if its call has no result.
        """
        instruction = str(call.arguments.get("instruction", ""))
        events: list[ChatEvent] = [AgentStart(agent.name, instruction, agent.session_id, call.id)]
        messages = await self._agent_messages(agent.session_id)
        for event in call_events(messages, None):
            events.append(agent_event(event, agent.name, agent.session_id, call.id))
        if requested is None:
            return events
        for open_call in open_calls(messages):
            if open_call.index == requested.call_index:
                events.append(announcement(requested))
        return events

    async def messages_with_agents(self, session: ChatSession, turn: StoredTurn) -> list[Message]:
        """Return the messages that a turn and its agents have added."""
        messages = turn_messages(session, turn)
        agent_sessions: list[str] = []
        for message in messages:
            if message["role"] == "tool" and "agent_session_id" in message:
                agent_sessions.append(message["agent_session_id"])
        if turn.approval is not None and turn.approval.agent is not None:
            agent_sessions.append(turn.approval.agent.session_id)
        for session_id in agent_sessions:
            messages += await self._agent_messages(session_id)
        return messages

    def _stored_run(
        self, session: ChatSession, turn: StoredTurn, log: EventLog, **fields: Any
    ) -> Run:
        """Return a run without a task, with these other fields of ``Run``."""
        return Run(
            self._conversations.stored(session.session_id),
            run_ids=turn.run_ids,
            model=session.model,
            position=turn.first,
            caller=UNRESTRICTED.inside(session.metadata.owner),
            log=log,
            **fields,
        )

    async def _agent_messages(self, session_id: str) -> Sequence[Message]:
        """Return the messages of the latest turn in an agent's session, without the task."""
        with suppress(errors.SessionNotFound):
            history = (await self._conversations.agent_chats.load(session_id)).history
            return history[first_answer_index(history) :]
        return []


def _input_of(turn: StoredTurn) -> TurnInput:
    try:
        return restored_input(turn.input or {})
    except ValueError:  # the turn ends as interrupted when it is due
        return TurnInput()


def _last_event_number(turn: StoredTurn, calls: Sequence[ChatEvent]) -> int:
    """Return the number of the last event that a snapshot and the events of the calls replace.

    It is known only for a turn that waits.
    """
    if turn.state != "waiting_for_approval":
        return _LOST_EVENTS
    if not calls:
        return turn.events
    return max(turn.events, 1 + len(calls))  # the snapshot has a number of its own


def _result_of(session: ChatSession, turn: StoredTurn) -> TurnResult:
    """Return the result of a stored turn.

    It has no messages if the turn has stored no answer, or if the session shows another answer:
    that before the turn, or another version. It also has none if a server of version 1.0.0 died
    during the turn, because that version gave the answers other message IDs.
    """
    stored = session.history[first_answer_index(session.history) :]
    answer_ids = {turn.answer_id}
    if turn.answer_id is None:  # the server of the turn died, or the turn could not continue
        answer_ids = {answer_message_id(turn.turn_id, index) for index in range(len(stored))}
    if not any(message["message_id"] in answer_ids for message in stored):
        return TurnResult()
    return TurnResult(stored)


def _ending(state: TurnState, result: TurnResult) -> list[ChatEvent]:
    """Return the event for the end of a turn, except ``Done``. There may be none."""
    if state == "stopped":
        return [Stopped(result.partial_id)]
    if state == "completed" and result.answer is not None:
        return [result.completed()]
    if result.failure is not None:
        return [TurnError.of(result.failure)]
    return []


def _failure_of(session: ChatSession, turn: StoredTurn) -> errors.MochiError:
    """Return the error that ended a stored turn, or that of a server that died during it."""
    stored = turn.error
    if stored is None or turn.was_lost:
        return errors.ServerLost(session.session_id, starts=turn.starts)
    return errors.restored_error(stored["code"], stored["message"])
