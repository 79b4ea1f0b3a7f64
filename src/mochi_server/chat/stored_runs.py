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
from mochi_server.chat.turn_result import TurnResult
from mochi_server.chat.writer import turn_messages
from mochi_server.events import (
    AgentStart,
    ChatEvent,
    Done,
    Stopped,
    TurnError,
)
from mochi_server.sessions.caller import UNRESTRICTED
from mochi_server.sessions.history import first_answer_index
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import Message
from mochi_server.tools.stored_calls import open_calls

_LOST_EVENTS = 1 << 30
"""Number of the snapshot of a run whose events are lost; later than that of any event."""


class StoredRuns:
    """Source of the runs of stored turns."""

    def __init__(
        self, conversations: Conversations, table: RunTable, shutdown: anyio.Event
    ) -> None:
        """``shutdown`` is set when this server shuts down, and so continues no turns."""
        self._conversations = conversations
        self._table = table
        self._shutdown = shutdown

    async def unfinished(self, session: ChatSession, turn: StoredTurn) -> Run:
        """Return the run of a stored turn that goes on but is not live here.

        Clients can connect to it.
        """
        calls = await self.events_of_calls(session, turn, is_announced=False)
        live = self._table.find(session.session_id, turn.run_id)
        if live is not None and live.run_id == turn.run_id and live.running:
            return live
        run = self._table.suspended(session.session_id, turn.run_id)
        if run is not None:
            return run
        is_waiting = turn.state == "waiting_for_approval"
        last = max(turn.events, len(calls) + bool(calls)) if is_waiting else _LOST_EVENTS
        log = EventLog.restored(snapshot(turn_messages(session, turn)), last, calls)
        run = self._stored_run(session, turn, log, input=_input_of(turn), state=turn.state)
        if turn.waiting is not None:  # else the turn is about to continue
            run.publish([announcement(turn.waiting)])
        self._table.suspend(run)
        if self._shutdown.is_set():
            run.release_clients()
        return run

    def ended(self, session: ChatSession, turn: StoredTurn) -> Run:
        """Return the latest run of a session as it was stored.

        Its events are a snapshot and the end of the run.
        """
        state = turn.state
        stored: Sequence[Message] = session.history[first_answer_index(session.history) :]
        result = TurnResult(stored)
        if turn.answer_id is None:
            is_of_turn = result.partial_id is not None
        else:
            is_of_turn = any(message["message_id"] == turn.answer_id for message in stored)
        if not is_of_turn:
            result = TurnResult()  # the session may show the answer before the turn, or a version
        ending: list[ChatEvent] = []
        if state == "stopped":
            ending = [Stopped(result.partial_id)]
        elif state == "completed" and result.answer is not None:
            ending = [result.completed()]
        elif state in ("running", "waiting_for_approval", "failed"):
            failure = _failure_of(session, turn)
            state, result = "failed", replace(result, failure=failure)
            ending = [TurnError.of(failure)]
        calls = call_events(result.stored, None)
        log = EventLog.restored(snapshot(result.stored), _LOST_EVENTS, calls)
        run = self._stored_run(session, turn, log, state=state, result=result, is_stored=True)
        run.publish([*ending, Done(session.session_id)])
        return run

    async def events_of_calls(
        self, session: ChatSession, turn: StoredTurn, *, is_announced: bool
    ) -> list[ChatEvent]:
        """Return the events of the calls of a turn until now, for clients that did not receive its
        first run.

        ``is_announced`` states whether they contain the call that needs, or needed, approval.
        """
        messages = turn_messages(session, turn)
        approval = turn.approval if is_announced else None
        index = None if approval is None else approval.call_index
        agent = None if turn.approval is None else turn.approval.agent
        if agent is None:
            return [*call_events(messages, index)]
        events: list[ChatEvent] = [*call_events(messages, None)]
        for call in open_calls(messages):
            if call.id == agent.call_id:
                instruction = str(call.arguments.get("instruction", ""))
                events.append(AgentStart(agent.name, instruction, agent.session_id, call.id))
                of_agent = await self._agent_messages(agent.session_id)
                for event in call_events(of_agent, index):
                    events.append(agent_event(event, agent.name, agent.session_id, call.id))
                break  # several calls can have the same ID
        return events

    async def messages_with_agents(self, session: ChatSession, turn: StoredTurn) -> list[Message]:
        """Return the messages that a turn and its agents have added."""
        messages = turn_messages(session, turn)
        agents: list[str] = []
        for message in messages:
            if message["role"] == "tool" and "agent_session_id" in message:
                agents.append(message["agent_session_id"])
        if turn.approval is not None and turn.approval.agent is not None:
            agents.append(turn.approval.agent.session_id)
        for session_id in agents:
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
        with suppress(errors.SessionNotFound):
            history = (await self._conversations.agent_chats.load(session_id)).history
            return history[first_answer_index(history) :]
        return []


def _input_of(turn: StoredTurn) -> TurnInput:
    try:
        return restored_input(turn.input or {})
    except ValueError:  # the turn ends as interrupted when it is due
        return TurnInput()


def _failure_of(session: ChatSession, turn: StoredTurn) -> errors.MochiError:
    """Return the error that ended a stored turn, or that of a server that died during it."""
    stored = turn.error
    if stored is None or turn.was_lost:
        return errors.ServerLost(session.session_id, starts=turn.starts)
    return errors.restored_error(stored["code"], stored["message"])
