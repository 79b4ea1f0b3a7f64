"""Parked turns: they wait for approval in their stored session, and continue after a decision, a timeout or a crash."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from mochi_server import errors, events
from mochi_server.chat.approvals import ApprovalService, bind_edited, new_confirmation_id
from mochi_server.chat.conversation import Conversation, Conversations
from mochi_server.chat.model_answerer import ModelAnswererFactory
from mochi_server.chat.parked_record import ParkedTurn, fingerprint, turn_messages
from mochi_server.chat.prompt import answer_index
from mochi_server.chat.run import EventLog, Run
from mochi_server.chat.run_cache import RunCache
from mochi_server.chat.turn import Turn, resolve_idempotent
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import agent_event, call_events, open_calls, snapshot
from mochi_server.chat.turn_writer import tool_message
from mochi_server.sessions.caller import UNRESTRICTED
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message
from mochi_server.tools.discovery import Tool
from mochi_server.tools.toolbox import Decision, ToolInvocation, changed_warning, denied
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import cancel_and_wait, start_in

_PAUSE_SECONDS = 30.0
_RETRY_SECONDS, _RETRIES = 0.1, 50

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class ParkedTurns:
    """Registry of the parked turns. Clients that stay connected to one keep its run in memory."""

    answerers: ModelAnswererFactory
    approvals: ApprovalService
    conversations: Conversations
    cache: RunCache
    is_stopping: Callable[[], bool]  # whether the server stops
    launch: Callable[[Turn, str, TurnInput, AsyncExitStack], Run]  # starts the run of a turn, see `RunRegistry.launch`
    on_ended: Callable[[Run], None]  # called when a parked turn has been stopped
    scan_seconds: float  # interval of the search for turns that continue without a decision
    _parked: WeakValueDictionary[str, Run] = field(default_factory=WeakValueDictionary)  # by session ID
    _due: dict[str, float] = field(default_factory=dict)  # Unix times at which turns continue alone, by session ID
    _tasks: set[asyncio.Future[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = self.conversations.chats

    def open(self, *, is_shared: bool) -> None:
        """Continue the turns that a crash has interrupted at once, and the others when their approvals expire."""
        start_in(self._tasks, self._scan(is_shared=is_shared))

    async def aclose(self) -> None:
        await cancel_and_wait([*self._tasks])

    def release_clients(self) -> None:
        """End the streams of parked turns for a shutdown. The clients resume them at the next server."""
        for run in list(self._parked.values()):
            run.unpark()

    def add(self, run: Run, due: float) -> None:
        """Add a run whose turn has been parked. The turn continues without a decision at the Unix time ``due``."""
        self._parked[run.session_id] = run
        self._due[run.session_id] = due
        if self.is_stopping():
            run.unpark()

    def find(self, session: ChatSession) -> Run | None:
        """Return the run of a session that is parked, or None."""
        record = ParkedTurn.of(session)
        return None if record is None else self._parked_run(session, record)

    def _parked_run(self, session: ChatSession, record: ParkedTurn) -> Run:
        run = self._parked.get(session.session_id)
        if run is None or run.run_id != record.run_id or not run.is_parked:
            conversation = self.conversations.stored(session.session_id)
            log = EventLog.restored(snapshot(turn_messages(session, record)), record.events)
            caller = UNRESTRICTED.inside(session.metadata.owner)
            run = Run(conversation, record.input, record.run_id, session.model, record.position, caller=caller, log=log)
            run.earlier, run.state = record.earlier, "waiting_for_approval"
            if record.is_waiting:  # else the turn is about to continue
                run.publish([record.announcement()])
            self._parked[session.session_id] = run
            if self.is_stopping():
                run.unpark()
        return run

    async def find_repeated(self, conversation: Conversation, turn_input: TurnInput) -> Run | None:
        """Return the parked run that the same request has started, or None. Raises ``IdempotencyKeyReused``."""
        if turn_input.key is None:
            return None
        session = await conversation.load()
        return self.find(session) if resolve_idempotent(session, turn_input)[0] is not turn_input else None

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> tuple[Run, ToolInvocation]:
        """Continue a parked turn with the decision. Return its new run and the call as it was requested.

        If this server is shutting down, store the decision for the next server, and return the parked run.

        Raises ``SessionNotFound``, ``ConfirmationNotFound``, ``ConfirmationResolved``, ``ConfirmationTimeout``,
        ``ConfirmationStale`` and ``ValidationFailed``.
        """
        for _ in range(_RETRIES):
            await self._load_waiting(session_id, confirmation_id)
            try:
                return await self._decide(session_id, confirmation_id, decision)
            except errors.SessionBusy:  # the turn is being parked, or another request decides
                await asyncio.sleep(_RETRY_SECONDS)
        raise errors.ConfirmationNotFound(confirmation_id)

    async def _decide(self, session_id: str, confirmation_id: str, decision: Decision) -> tuple[Run, ToolInvocation]:
        run_id = new_id()
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.store.hold(session_id, run_id=run_id))
            session, record = await self._load_waiting(session_id, confirmation_id)
            call = ToolInvocation(record.call_index, "", record.tool_name, record.arguments)
            tool = await self.answerers.find_tool(session, record)
            if decision.approved and tool is not None:
                if fingerprint(tool) != record.fingerprint:
                    await self._announce_again(session, record, tool)
                    raise errors.ConfirmationStale(confirmation_id)
                if decision.arguments is not None:
                    await bind_edited(replace(call, arguments=decision.arguments), tool)
            decided = replace(record, decision=decision)
            run = None if self.is_stopping() else await self._continue(session, decided, run_id, locks)
            if run is None:  # the next server continues the turn
                run = self._parked_run(session, record)
                await self.store.patch(session_id, {"pending_approval": decided.to_dict()})
        self.approvals.end(session.session_id, record.confirmation_id, errors.ConfirmationResolved)
        return run, call

    async def _load_waiting(self, session_id: str, confirmation_id: str) -> tuple[ChatSession, ParkedTurn]:
        """Return a session and the record of its turn, which waits for this decision. Raise the errors of `decide`."""
        session = await self.store.load(session_id)
        record = ParkedTurn.of(session)
        if record is None or record.confirmation_id != confirmation_id:
            last_run = session.metadata.last_run or {}
            is_lost = record is None and last_run.get("state", "running") == "running"
            run_ids = () if is_lost else (last_run.get("run_id", ""), *last_run.get("earlier", ()))
            raise self.approvals.error_of(session_id, confirmation_id, run_ids)
        if record.decision is not None:
            raise errors.ConfirmationResolved(confirmation_id)
        if not record.is_waiting:
            raise errors.ConfirmationTimeout(confirmation_id)
        return session, record

    async def deny(self, session_id: str) -> Run | None:
        """Deny the calls of a turn that waits for approval and end the turn. Return its run, or None if none waits."""
        live = self.cache.find(session_id)
        if live is not None and live.task is not None:
            live.park()
            if live.is_parking:
                await asyncio.wait([live.task])
        if ParkedTurn.of(await self.store.load(session_id)) is None:
            return None
        async with self.store.hold(session_id):
            session = await self.store.load(session_id)
            run, record = self.find(session), ParkedTurn.of(session)
            if run is None or record is None or record.decision is not None:
                return None
            await self._store_denied(session, record, run.stored_state("stopped"))
        self.approvals.end(session.session_id, record.confirmation_id, errors.ConfirmationResolved)
        self._due.pop(session_id, None)
        self._end_run(run, [_denied_event(record)])
        self.cache.add(run)
        self.cache.retain(run)
        return run

    def abandon(self, session_id: str) -> None:
        """End the streams of a session that is being deleted."""
        if (run := self._parked.get(session_id)) is not None and run.is_parked:
            self._end_run(run)

    def _end_run(self, run: Run, results: Sequence[events.ChatEvent] = ()) -> None:
        self._parked.pop(run.session_id, None)
        run.state, run.stopped, run.result = "stopped", True, replace(run.result, cancelled=True)
        self.on_ended(run)
        run.publish([*results, events.Stopped(None), events.Done(run.session_id)])
        run.unpark()

    async def _store_denied(self, session: ChatSession, record: ParkedTurn, last_run: dict[str, Any]) -> None:
        results = [tool_message(call, denied(call)) for call in open_calls(turn_messages(session, record))]
        if record.replacement is None and results:
            await self.store.write(session.session_id, Change(results))
        await self.store.patch(session.session_id, {"pending_approval": None, "last_run": last_run})
        if record.agent is not None:
            await self.conversations.agent_chats.patch(record.agent.session_id, {"pending_approval": None})

    async def _announce_again(self, session: ChatSession, record: ParkedTurn, tool: Tool) -> None:
        self.approvals.end(session.session_id, record.confirmation_id, errors.ConfirmationStale)
        run = self.find(session)
        again = replace(
            record,
            confirmation_id=new_confirmation_id(record.run_id),
            fingerprint=fingerprint(tool),
            source=tool.source,
            events=record.events + 2,  # the first announcement and the warning
        )
        await self.store.patch(session.session_id, {"pending_approval": again.to_dict()})
        if run is not None:
            run.publish([changed_warning(record.tool_name), again.announcement()])
            self.approvals.on_waiting(run, again.confirmation_id)

    async def _continue(
        self, session: ChatSession, record: ParkedTurn, run_id: str, locks: AsyncExitStack
    ) -> Run | None:
        """Start a run that continues a parked turn with ``record``, and hand its clients over. Return the run.

        If the server has begun to stop meanwhile, start no run and return None.
        """
        conversation = self.conversations.stored(session.session_id)
        record = replace(record, run_id=run_id, earlier=[*record.earlier, record.run_id])
        answerer = await self.answerers.prepare(conversation, session, record.input, record)
        turn = Turn(conversation, session, record.input, answerer)
        earlier = await self._earlier_events(session, record)
        await conversation.patch({"pending_approval": record.to_dict()})
        if self.is_stopping():
            return None
        run = self.launch(turn, run_id, turn.input, locks.pop_all())
        run.position, run.earlier = record.position, record.earlier
        run.publish([*earlier, events.Status("continued", 0, continues=run.continues)])
        run.continued_after = len(earlier)
        self._due.pop(run.session_id, None)
        old = self._parked.pop(run.session_id, None)
        if old is not None:
            old.unpark(run)
        return run

    async def _earlier_events(self, session: ChatSession, record: ParkedTurn) -> list[events.ChatEvent]:
        """Return the events that describe the turn until now, for clients that did not receive its first run."""
        messages, agent = turn_messages(session, record), record.agent
        waiting = None if agent else record.call_index
        earlier: list[events.ChatEvent] = [snapshot(messages), *call_events(messages, waiting)]
        if agent is None:
            return earlier
        call = next((call for call in open_calls(messages) if call.id == agent.parent_call_id), None)
        if call is None:
            return earlier
        instruction = str(call.arguments.get("instruction", ""))
        earlier.append(events.AgentStart(agent.name, instruction, agent.session_id, call.id))
        in_agent = call_events(await self._agent_messages(agent.session_id), record.call_index)
        return [*earlier, *(agent_event(event, agent.name, agent.session_id, call.id) for event in in_agent)]

    async def _agent_messages(self, session_id: str) -> Sequence[Message]:
        with suppress(errors.SessionNotFound):
            history = (await self.conversations.agent_chats.load(session_id)).history
            return history[answer_index(history, "none") :]
        return []

    async def _scan(self, *, is_shared: bool) -> None:
        """Continue turns that are due. A shared store is searched again and again, because other servers may die."""
        is_searched = False
        while True:
            try:
                if is_shared or not is_searched:
                    # The server at which a turn waits continues it first, because it may have connected clients.
                    until = time.time() - self.scan_seconds if is_shared else math.inf
                    self._due |= await self.store.parked(until)
                    is_searched = True
            except errors.MochiError as error:
                logger.warning("parked turns not found: %s", error.message)
            for session_id in [session_id for session_id, due in self._due.items() if due <= time.time()]:
                del self._due[session_id]
                start_in(self._tasks, self._continue_alone(session_id))
            await asyncio.sleep(self.scan_seconds)

    async def _continue_alone(self, session_id: str) -> None:
        """Continue a turn whose approval has expired, or whose server died after the decision."""
        try:
            await self._continue_due(session_id)
        except errors.SessionBusy:  # usually, another server continues the turn
            self._due[session_id] = time.time() + self.scan_seconds
        except errors.SessionNotFound:
            return
        except errors.MochiError as error:
            logger.warning("parked turn continues later session_id=%s: %s", session_id, error.message)
            self._due[session_id] = time.time() + _PAUSE_SECONDS

    async def _continue_due(self, session_id: str) -> None:
        is_readable = ParkedTurn.of(await self.store.load(session_id)) is not None
        run_id = new_id() if is_readable else None  # new turns wait for a lock without a run
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.store.hold(session_id, run_id=run_id))
            session = await self.store.load(session_id)
            record = ParkedTurn.of(session)
            if record is None:
                await self._set_aside(session)
            elif record.is_waiting or run_id is None:
                self._due[session_id] = record.due
            elif not self.is_stopping():
                if record.decision is None:
                    self.approvals.end(session.session_id, record.confirmation_id, errors.ConfirmationTimeout)
                await self._continue(session, record, run_id, locks)

    async def _set_aside(self, session: ChatSession) -> None:
        """Remove a record that is unreadable. There is none if the turn has ended meanwhile."""
        if session.metadata.pending_approval is not None:
            await self.store.patch(session.session_id, {"pending_approval": None})
        if (run := self._parked.pop(session.session_id, None)) is not None:
            run.unpark()


def _denied_event(record: ParkedTurn) -> events.ChatEvent:
    """Return the result of the announced call of a turn that a client ends."""
    call, agent = ToolInvocation(record.call_index, "", record.tool_name, record.arguments), record.agent
    result = denied(call).event()
    return agent_event(result, agent.name, agent.session_id, agent.parent_call_id) if agent else result
