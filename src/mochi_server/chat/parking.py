"""Parked turns: they wait for approval in their stored session, and continue after a decision, a timeout or a crash."""

import asyncio
import logging
import math
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService, bind_decision, new_confirmation_id
from mochi_server.chat.conversation import Conversation, Conversations
from mochi_server.chat.parked import ParkedTurn, fingerprint, open_calls, snapshot, stored_outcomes, turn_messages
from mochi_server.chat.run import EventLog, Run
from mochi_server.chat.turn import resolve_idempotent
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import tool_message
from mochi_server.constants import AGENT_TOOL
from mochi_server.events import (
    AgentStart,
    AgentToolCalled,
    AgentToolResult,
    ChatEvent,
    Done,
    Status,
    Stopped,
    ToolCalled,
)
from mochi_server.sessions.caller import UNRESTRICTED
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import InvalidArguments
from mochi_server.tools.toolbox import BoundCall, Decision, ToolInvocation, changed_warning, failed
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import cancel_and_wait

if TYPE_CHECKING:
    from mochi_server.chat.engine import RunRegistry

SCAN_SECONDS = 2.0
"""Interval of the search for parked turns that continue without a decision."""
_PAUSE_SECONDS = 30.0
_RETRY_SECONDS, _RETRIES = 0.1, 50
_DENIED = "The user denied this call."

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class ParkedTurns:
    """Registry of the parked turns. Clients that stay connected to one keep its run in memory."""

    runs: "RunRegistry"
    approvals: ApprovalService
    conversations: Conversations
    _parked: WeakValueDictionary[str, Run] = field(default_factory=WeakValueDictionary)  # by session ID
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _due: dict[str, float] = field(default_factory=dict)  # Unix times at which turns continue alone, by session ID
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self, *, is_shared: bool) -> None:
        """Continue the turns that a crash has interrupted at once, and the others when their approvals expire."""
        self._spawn(self._scan(is_shared=is_shared))

    async def aclose(self) -> None:
        self.release_clients()
        await cancel_and_wait([*self._tasks])

    def release_clients(self) -> None:
        """End the streams of parked turns for a shutdown. The clients resume them at the next server."""
        for run in list(self._parked.values()):
            run.unpark()

    def add(self, run: Run, due: float) -> None:
        """Add a run whose turn has been parked. The turn continues without a decision at the Unix time ``due``."""
        self._parked[run.session_id] = run
        if self.runs.shutdown.is_set():
            run.unpark()
        else:
            self._due[run.session_id] = due

    def find(self, session: ChatSession) -> Run | None:
        """Return the run of a session that is parked, or None."""
        record = ParkedTurn.of(session)
        return None if record is None else self._run_of(session, record)

    def _run_of(self, session: ChatSession, record: ParkedTurn) -> Run:
        run = self._parked.get(session.session_id)
        if run is None or run.run_id != record.run_id or not run.is_parked:
            conversation = self.conversations.stored(session.session_id)
            log = EventLog.restored(snapshot(turn_messages(session, record)), record.events)
            caller = UNRESTRICTED.inside(session.metadata.owner)
            run = Run(conversation, record.input, record.run_id, session.model, record.position, caller=caller, log=log)
            run.earlier = record.earlier
            run.state = "waiting_for_approval"
            if record.state == "waiting":  # else the turn is about to continue
                run.publish([record.announcement()])
            self._parked[session.session_id] = run
            if self.runs.shutdown.is_set():
                run.unpark()
        return run

    async def repeated(self, conversation: Conversation, turn_input: TurnInput) -> Run | None:
        """Return the parked run that the same request has started, or None. Raises ``IdempotencyKeyReused``."""
        session = await conversation.load()
        return self.find(session) if resolve_idempotent(session, turn_input)[0] is not turn_input else None

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> tuple[Run, ToolInvocation]:
        """Continue a parked turn with the decision. Return its new run and the decided call.

        If this server is shutting down, store the decision for the next server, and return the parked run.

        Raises ``SessionNotFound``, ``ConfirmationNotFound``, ``ConfirmationResolved``, ``ConfirmationTimeout``,
        ``ConfirmationStale`` and ``ValidationFailed``.
        """
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            for _ in range(_RETRIES):
                try:
                    return await self._decide(session_id, confirmation_id, decision)
                except errors.SessionBusy:  # the turn is being parked, or another server decides
                    await self._undecided(session_id, confirmation_id)
                await asyncio.sleep(_RETRY_SECONDS)
        raise errors.ConfirmationNotFound(confirmation_id)

    async def _decide(self, session_id: str, confirmation_id: str, decision: Decision) -> tuple[Run, ToolInvocation]:
        run_id = new_id()
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.runs.store.hold(session_id, run_id=run_id))
            session, record = await self._undecided(session_id, confirmation_id)
            tool = await self.runs.engine.models.find_tool(session, record)
            call = ToolInvocation(record.call_index, "", record.tool_name, record.arguments)
            if decision.approved and tool is not None:
                if fingerprint(tool) != record.fingerprint:
                    await self._announce_again(session, record, tool)
                    raise errors.ConfirmationStale(confirmation_id)
                call = await _edited(call, tool, decision)
            decided = replace(record, state="decided", decision=decision)
            if self.runs.shutdown.is_set():
                await self.runs.store.patch(session_id, {"pending_approval": decided.to_dict()})
                run = self._run_of(session, record)
            else:
                run = await self._continue(session, decided, run_id, locks)
        self.approvals.ended(session_id, session.metadata.owner, confirmation_id, errors.ConfirmationResolved)
        return run, call

    async def _undecided(self, session_id: str, confirmation_id: str) -> tuple[ChatSession, ParkedTurn]:
        session = await self.runs.store.load(session_id)
        record = ParkedTurn.of(session)
        if record is None or record.confirmation_id != confirmation_id:
            raise errors.ConfirmationNotFound(confirmation_id)
        if record.state == "decided":
            raise errors.ConfirmationResolved(confirmation_id)
        if record.state == "expired" or record.due <= time.time():
            raise errors.ConfirmationTimeout(confirmation_id)
        return session, record

    async def deny(self, session_id: str) -> Run | None:
        """Deny the calls of a turn that waits for approval and end the turn. Return its run, or None if none waits."""
        live = self.runs.cache.find(session_id)
        if live is not None and live.task is not None and self.approvals.park(session_id):
            await asyncio.wait([live.task])
        session = await self.runs.store.load(session_id)
        if (run := self.find(session)) is None:
            return None
        async with self.runs.store.hold(session_id):
            session = await self.runs.store.load(session_id)
            record = ParkedTurn.of(session)
            if record is None or record.state != "waiting":
                return None
            owner = session.metadata.owner
            await self._store_denied(session, record, run.stored_state("stopped"))
        self._due.pop(session_id, None)
        self.approvals.ended(session_id, owner, record.confirmation_id, errors.ConfirmationResolved)
        run.state, run.stopped = "stopped", True
        run.publish([Stopped(None), Done(session_id)])
        run.unpark()
        self.runs.cache.add(run)
        self.runs.cache.retain(run)
        return run

    def abandon(self, session_id: str) -> None:
        """End the streams of a session that is being deleted."""
        self._due.pop(session_id, None)
        if (run := self._parked.pop(session_id, None)) is not None:
            run.state = "stopped"
            run.publish([Done(session_id)])
            run.unpark()

    async def _store_denied(self, session: ChatSession, record: ParkedTurn, last_run: dict[str, Any]) -> None:
        calls = open_calls(turn_messages(session, record), record.defects)
        denials = [failed(call, _DENIED, errors.ToolExecutionDenied.code, "user") for call in calls]
        results = [tool_message(call, denial) for call, denial in zip(calls, denials, strict=True)]
        if record.revision is None and results:
            await self.runs.store.append(session.session_id, results)
        await self.runs.store.patch(session.session_id, {"pending_approval": None, "last_run": last_run})
        if record.agent is not None:
            await self.conversations.agent_chats.patch(record.agent.session_id, {"pending_approval": None})

    async def _announce_again(self, session: ChatSession, record: ParkedTurn, tool: Tool) -> None:
        again = replace(
            record, confirmation_id=new_confirmation_id(), fingerprint=fingerprint(tool), source=tool.source
        )
        run = self.find(session)
        owner = session.metadata.owner
        self.approvals.ended(session.session_id, owner, record.confirmation_id, errors.ConfirmationStale)
        if run is not None:
            again = replace(again, events=run.log.last + 1)
        await self.runs.store.patch(session.session_id, {"pending_approval": again.to_dict()})
        if run is not None:
            run.publish([changed_warning(record.tool_name), again.announcement()])

    async def _continue(self, session: ChatSession, record: ParkedTurn, run_id: str, locks: AsyncExitStack) -> Run:
        """Start a run that continues a parked turn with ``record``, and hand its clients over. Return the run."""
        runs, session_id = self.runs, session.session_id
        record = replace(record, run_id=run_id, earlier=[*record.earlier, record.run_id])
        turn = await runs.engine.prepare_parked(self.conversations.stored(session_id), session, record)
        events = await self._prelude(session, record)
        await runs.store.patch(session_id, {"pending_approval": record.to_dict()})
        run = runs.new_run(turn, run_id, turn.input)
        run.earlier = record.earlier
        run.publish([*events, Status("continued", 0, continues=run.continues)])
        run.continued_after = len(events)
        self._due.pop(session_id, None)
        old = self._parked.pop(session_id, None)
        runs.launch(run, turn, locks.pop_all())
        if old is not None:
            old.unpark(run)
        return run

    async def _prelude(self, session: ChatSession, record: ParkedTurn) -> list[ChatEvent]:
        """Return the events that describe the turn until now, for clients that did not receive its first run."""
        messages = turn_messages(session, record)
        events: list[ChatEvent] = [snapshot(messages)]
        for outcome in stored_outcomes(messages):
            if outcome.call.name != AGENT_TOOL:
                events += [ToolCalled(outcome.call.name, outcome.call.arguments, outcome.call.index), outcome.event()]
        calls, agent = open_calls(messages, {}), record.agent
        if agent is None:
            waiting = [call for call in calls if call.index == record.call_index]
            return [*events, *(ToolCalled(call.name, call.arguments, call.index) for call in waiting)]
        if all(call.id != agent.parent_call_id for call in calls):
            return events
        events.append(AgentStart(agent.name, agent.instruction, agent.session_id, agent.parent_call_id))
        inner = await self._agent_messages(agent.session_id, agent.start)
        ids: dict[str, Any] = {"agent_session_id": agent.session_id, "parent_call_id": agent.parent_call_id}
        for outcome in stored_outcomes(inner):
            made = outcome.call
            events.append(AgentToolCalled(agent.name, made.name, made.arguments, made.index, **ids))
            events.append(AgentToolResult(agent.name, **asdict(outcome.event()), **ids))
        waiting = [call for call in open_calls(inner, {}) if call.index == record.call_index]
        return [*events, *(AgentToolCalled(agent.name, c.name, c.arguments, c.index, **ids) for c in waiting)]

    async def _agent_messages(self, session_id: str, start: int) -> list[Message]:
        try:
            return list((await self.conversations.agent_chats.load(session_id)).history[start + 1 :])
        except errors.SessionNotFound:
            return []

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _continue_alone(self, session_id: str) -> None:
        """Continue a turn whose approval has expired, or whose server died after the decision."""
        run_id = new_id()
        try:
            async with self._locks.setdefault(session_id, asyncio.Lock()), AsyncExitStack() as locks:
                await locks.enter_async_context(self.runs.store.hold(session_id, run_id=run_id))
                session = await self.runs.store.load(session_id)
                record, owner = ParkedTurn.of(session), session.metadata.owner
                if record is None:  # it is unreadable, or another server has continued the turn
                    if session.metadata.pending_approval is not None:
                        await self.runs.store.patch(session_id, {"pending_approval": None})
                    if (run := self._parked.pop(session_id, None)) is not None:
                        run.unpark()
                elif record.due > time.time():
                    self._due[session_id] = record.due
                elif not self.runs.shutdown.is_set():
                    if record.state == "waiting":
                        record = replace(record, state="expired")
                        self.approvals.ended(session_id, owner, record.confirmation_id, errors.ConfirmationTimeout)
                    await self._continue(session, record, run_id, locks)
        except errors.SessionBusy:  # usually, another server continues the turn
            self._due[session_id] = time.time() + SCAN_SECONDS
        except errors.SessionNotFound:
            return
        except errors.MochiError as error:
            logger.warning("parked turn continues later session_id=%s: %s", session_id, error.message)
            self._due[session_id] = time.time() + _PAUSE_SECONDS

    async def _scan(self, *, is_shared: bool) -> None:
        """Continue turns that are due. A shared store is searched again and again, because other servers may die."""
        while True:
            try:
                # The server at which a turn waits continues it first, because it may have connected clients.
                self._due |= await self.runs.store.parked(time.time() - SCAN_SECONDS if is_shared else math.inf)
                while not is_shared:
                    self._continue_due()
                    await asyncio.sleep(SCAN_SECONDS)
            except errors.MochiError as error:
                logger.warning("parked turns not found: %s", error.message)
            self._continue_due()
            await asyncio.sleep(SCAN_SECONDS)

    def _continue_due(self) -> None:
        for session_id in [session_id for session_id, due in self._due.items() if due <= time.time()]:
            del self._due[session_id]
            self._spawn(self._continue_alone(session_id))


async def _edited(call: ToolInvocation, tool: Tool, decision: Decision) -> ToolInvocation:
    """Return the call with the arguments of the decision. Raises ``ValidationFailed`` if they are invalid."""
    try:
        bound = BoundCall(call, tool, await call.bind(tool.schema))
    except InvalidArguments:
        return call  # the model receives the reason
    return (await bind_decision(bound, decision)).call
