"""Turns of all sessions: start, decide, stop, find and revive them, and end them at a shutdown."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import anyio

from mochi_server import errors
from mochi_server.chat.approvals import (
    ApprovalService,
    fingerprint,
    new_confirmation_id,
    requesting_run,
    stored_error,
)
from mochi_server.chat.conversation import Conversation, Conversations
from mochi_server.chat.due_turns import DueTurns
from mochi_server.chat.event_log import EventLog
from mochi_server.chat.execution import as_mochi_error, execute_run
from mochi_server.chat.idempotency import Repetition, find_repetition, repeats_turn, run_ids
from mochi_server.chat.limits import DEFAULT_LIMITS, RunLimits
from mochi_server.chat.preparation import ModelTurns, TurnPreparation, is_answer_checked
from mochi_server.chat.run import Run
from mochi_server.chat.run_table import RunTable
from mochi_server.chat.stored_events import (
    announcement,
    answer_events,
    interrupted_event,
    snapshot,
    stopped_event,
)
from mochi_server.chat.stored_runs import StoredRuns
from mochi_server.chat.turn import PreparedTurn
from mochi_server.chat.turn_input import TurnInput, restored_input
from mochi_server.chat.turn_messages import (
    stopped_change,
    stopped_messages,
    turn_messages,
    turn_of_agent,
    unfinished_calls,
)
from mochi_server.chat.turn_result import TurnResult
from mochi_server.events import (
    ChatEvent,
    Done,
    Status,
    Stopped,
    ToolContinuationStart,
    TurnError,
)
from mochi_server.services.keys import KeyRing
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.usage import TurnLimiter
from mochi_server.sessions.audit import audit
from mochi_server.sessions.caller import CALLER, acting_as
from mochi_server.sessions.change import Change
from mochi_server.sessions.history import last_user_index
from mochi_server.sessions.session import (
    ChatSession,
    goes_on,
    key_digest,
    refuse_if_turn_goes_on,
    waiting_calls,
    with_waiting_calls,
)
from mochi_server.sessions.turn import Approval, Decision, StoredTurn, TurnState
from mochi_server.sessions.versions import versions_removed
from mochi_server.tools.discovery import Tool
from mochi_server.tools.stored_calls import stored_outcomes
from mochi_server.tools.toolbox import ToolInvocation, changed_warning
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import cancel_and_wait, start_in

MAX_STARTS = 3
"""Maximum number of starts of a turn whose server dies again and again."""
_RETRY_SECONDS, _RETRIES = 0.1, 50

MAY_START_TURN: ContextVar[bool] = ContextVar("may_start_turn", default=True)
"""Whether the current request may start a turn.

It may not if a server that shuts down has forwarded it.
"""

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


class TurnService:
    """Service for turns. A session has at most one. All times are in seconds.

    A turn is live if a task of this process executes it, which may wait for a decision. Otherwise
    it is a stored value, which this service makes live again after a decision, a timeout or a
    crash.
    """

    def __init__(
        self,
        *,
        preparation: ModelTurns,
        agent_preparation: TurnPreparation,
        summaries: SummarizationService,
        approvals: ApprovalService,
        conversations: Conversations,
        keys: KeyRing,
        limiter: TurnLimiter,
        disconnect_grace: float,
        shutdown_grace: float,
        on_ended: Callable[[Run], None],
        limits: RunLimits = DEFAULT_LIMITS,
    ) -> None:
        """``on_ended`` is called when a turn has ended."""
        self.conversations = conversations
        self.store = conversations.chats  # store of the sessions whose turns clients can find
        self.table = RunTable()
        self.shutdown = anyio.Event()  # after it is set, `start` raises
        self.ending = anyio.Event()  # set when the grace period of a shutdown has ended
        self.forwarded = set[asyncio.Future[Any]]()  # requests that other servers answer
        self.turns_ended = False  # whether a shutdown has waited for all turns of this process
        self._preparation = preparation
        self._agent_preparation = agent_preparation
        self._summaries = summaries
        self._approvals = approvals
        self._keys = keys
        self._disconnect_grace = disconnect_grace
        self._shutdown_grace = shutdown_grace
        self._on_ended = on_ended
        self._limits = limits
        self._limiter = limiter
        self._starting = set[anyio.CancelScope]()  # of starts that wait for another turn
        self._stored_runs = StoredRuns(conversations, self.table, self.shutdown)
        self._due = DueTurns()
        self._tasks = set[asyncio.Future[Any]]()

    def open(self, *, is_shared: bool) -> None:
        """Continue or end the turns that a crash has interrupted, and continue the others when
        their approvals expire.

        ``is_shared`` states whether other servers use the same sessions.
        """
        start_in(self._tasks, self._scan(is_shared=is_shared))

    # Requests of clients

    async def start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        """Start a turn, or find the run with its idempotency key, and return the run.

        Raises ``MochiError``.
        """
        start = partial(self._start, conversation, turn_input)
        run = await self.table.get_or_start(conversation, turn_input, start)
        if turn_input.on_disconnect == "continue" and run.first_write is not None:
            # A client may disconnect as soon as it receives the run.
            await asyncio.shield(run.first_write)
        # The request fails, so that it is sent again to another server.
        if self.ending.is_set() and run.state == "cancelled":
            raise errors.ShuttingDown
        return run

    async def check_before_denial(self, conversation: Conversation, turn_input: TurnInput) -> None:
        """Raise the error that would refuse a new turn after the denial of a turn that waits.

        Nothing changes. Without such a turn, nothing is checked.
        """
        session = await conversation.store.load(conversation.session_id)
        if _turn_to_end(session, only_waiting=True) is None:
            return
        repetition = find_repetition(session, turn_input)
        if repetition is not None and repetition.answer_start is not None:
            return
        run, new_input = self._new_turn(conversation, session, turn_input, repetition, new_id())
        caller = CALLER.get()
        live = self.table.find(conversation.session_id)
        if live is not None and live.task is not None:  # counted until it is denied
            caller = replace(caller, turns_at_a_time=None)
        with acting_as(caller):
            async with self._limiter.turn():
                pass
        await self._prepare(run, session, new_input)
        self.refuse_at_shutdown()

    async def decide(
        self, session_id: str, confirmation_id: str, decision: Decision
    ) -> tuple[Run, ToolInvocation]:
        """Apply a decision to a tool call that waits.

        Return the run of its turn and the decided call.

        A turn that is not live continues. If this server is shutting down, or Ollama does not
        respond, the decision is stored, and the turn continues later.

        Raises the errors of ``ApprovalService.deliver_decision``, and ``SessionNotFound``. Raises
        ``SessionBusy`` if something else holds the session for long.
        """
        # The session is busy while its turn is suspended, or another request decides.
        run, call = await _when_free(partial(self._decide, session_id, confirmation_id, decision))
        _audit_decision(session_id, confirmation_id, call.name, decision)
        return run, call

    async def _decide(
        self, session_id: str, confirmation_id: str, decision: Decision
    ) -> tuple[Run, ToolInvocation]:
        # This raises if the caller may not see the session.
        session = await self.conversations.stored(session_id).load()
        run = self.table.find(session_id)
        if run is not None:
            request = run.control.request
            is_waiting = request is not None and request.confirmation_id == confirmation_id
            if is_waiting and self._has_other_permissions(run, session):
                await _suspend_if_waiting(run)  # the turn continues with its new permissions
            with suppress(errors.ConfirmationNotFound):  # the turn may be suspended
                call = await self._approvals.deliver_decision(
                    session_id, run.control, confirmation_id, decision
                )
                return run, call
        await self._load_waiting(session_id, confirmation_id)  # its errors need no lock
        return await self._decide_stored(session_id, confirmation_id, decision)

    def _has_other_permissions(self, run: Run, session: ChatSession) -> bool:
        """Return whether the keys file has changed what the turn of a run may use."""
        turn = session.metadata.turn
        if turn is None:
            return False
        caller = self._keys.caller_inside(session.metadata.owner, turn.sender)
        return caller.permissions != run.caller.permissions

    async def confirmations(self, session_id: str) -> list[dict[str, Any]]:
        """Return the tool calls of a session that wait for approval as JSON objects.

        Raises ``SessionNotFound``.
        """
        return waiting_calls(await self.store.load(session_id))

    async def find(self, session_id: str, run_id: str | None = None) -> Run | None:
        """Return the run with ``run_id``, or a later run of its turn, else the session's latest
        run, or None.

        If the events of the run are lost, the run contains what was stored. Raises
        ``SessionNotFound``.
        """
        run = self.table.find(session_id, run_id)
        if run is not None and run.running:
            return run
        session = await self.store.load(session_id)  # another server may have deleted it
        run = self.table.find(session_id, run_id)  # meanwhile, a turn may have started
        if run is not None and (run.running or run.run_id == run_id):
            return run
        turn = session.metadata.turn
        if turn is None:
            return run
        is_latest = run is not None and run.run_id == turn.run_id
        end_is_unstored = is_latest and turn.state == "running"
        if turn.survives and not end_is_unstored:
            return await self._stored_runs.find_or_create(session, turn)
        if is_latest or run_id not in (None, *turn.run_ids):
            return run
        return self._stored_runs.create_ended(session, turn)

    async def stop(self, session_id: str) -> Run | None:
        """Stop the turn of a session, also one that waits.

        Return its latest run, if any. Raise ``SessionNotFound``.
        """
        return await _when_free(partial(self._stop, session_id))

    async def _stop(self, session_id: str) -> Run | None:
        run = await self.find(session_id)
        if run is None or run.has_ended:
            return run
        if run.task is not None:
            await run.stop()
            if run.state != "waiting_for_approval":  # else the turn was suspended at this moment
                return run
        stopped_run = await self._stop_stored(session_id)
        if stopped_run is None:  # a decision continues the turn, here or at another server
            raise errors.SessionBusy(session_id, run.run_id)
        return stopped_run

    async def delete(self, session_id: str) -> None:
        """Stop the turn of a session, if any, and delete the session.

        Raises ``SessionNotFound`` and ``StorageFailed``.
        """
        session: ChatSession | None = None
        with suppress(errors.SessionDamaged):  # a damaged session can be deleted, too
            await self.find(session_id)  # raises SessionNotFound
        await self.abandon(session_id)
        with suppress(errors.SessionDamaged):
            session = await self.store.load(session_id)
        await self.store.delete(session_id)
        # This stops a turn that waited for the end of the stopped turn.
        await self.abandon(session_id)
        if session is not None:
            await self.end_agent_of_deleted(session)

    async def abandon(self, session_id: str) -> None:
        """Prepare the deletion of a session: stop its running turn and drop its ended runs."""
        live = self.table.find(session_id)
        if live is not None:
            await live.stop()
        suspended = self.table.take_suspended(session_id)
        if suspended is not None and suspended.is_suspended:
            self._end_suspended(suspended, suspended.result)
        self.table.drop_session(session_id)
        self._summaries.drop_session(session_id)

    # Start of a turn

    async def _start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        # in the background, so that the turn need not wait for it
        self._preparation.gateway.fleet.prefetch_loaded()
        self.refuse_at_shutdown()
        repeated = await self._find_repeated(conversation, turn_input)
        if repeated is not None:
            return repeated
        if turn_input.if_waiting == "deny" and conversation.kind == "session":
            return await self._start_after_denial(conversation, turn_input)
        return await self._start_locked(conversation, turn_input)

    async def _start_after_denial(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        """Deny the calls of a turn that waits, and start the turn.

        If several requests do so, one of them starts.
        """
        session_id = conversation.session_id
        for _ in range(_RETRIES):
            try:
                await self.check_before_denial(conversation, turn_input)
                await self._deny(session_id)
                return await self._start_locked(conversation, turn_input)
            except errors.SessionBusy:
                turn = (await self.store.load(session_id)).metadata.turn
                if turn is not None and turn.state == "running":
                    raise
            await asyncio.sleep(_RETRY_SECONDS)  # a request decides, or looks at the turn
        return await self._start_locked(conversation, turn_input)

    async def _start_locked(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        run_id = new_id()
        session_id = conversation.session_id
        async with AsyncExitStack() as locks:
            await self._lock(conversation, turn_input, run_id, locks)
            session = await conversation.store.load(session_id)
            refuse_if_turn_goes_on(session)
            if turn_input.revision not in (None, session.revision):
                raise errors.SessionConflict(session_id)
            repetition = find_repetition(session, turn_input)
            if repetition is not None and repetition.answer_start is not None:
                return self._repeated_run(
                    conversation, session, turn_input, repetition.answer_start
                )
            run, new_input = self._new_turn(conversation, session, turn_input, repetition, run_id)
            count_start = await locks.enter_async_context(self._limiter.turn())
            turn = await self._prepare(run, session, new_input)
            self.refuse_at_shutdown()
            with acting_as(run.caller):
                turn = await turn.with_requested_model()
            self.refuse_at_shutdown()
            first_write = turn.writer.begin(new_input.new_blobs)
            if turn.writer.added:  # the request continues an interrupted turn
                events = answer_events(turn.writer.added, is_agent=turn_input.agent is not None)
                run.log.add([*events, ToolContinuationStart()])
            count_start()
            return self._launch(run, execute_run(turn, run), locks.pop_all(), first_write)

    def _repeated_run(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        answer_start: int,
    ) -> Run:
        """Return an ended run with the events of a stored answer.

        Nothing is stored. If the answer is that of the stored turn, the run has the IDs of the
        turn. Otherwise, clients find the run by its new ID until it leaves memory.
        """
        messages = session.history[answer_start:]
        result = TurnResult(messages, outcomes=stored_outcomes(messages))
        turn = session.metadata.turn
        if turn is not None and turn.answer_id != result.answer_id:
            turn = None  # the answer is that of an earlier turn
        run_ids = [new_id()] if turn is None else turn.run_ids
        run = self._new_run(conversation, session, turn_input, run_ids, answer_start)
        run.end("completed", result)
        events = answer_events(messages, is_agent=turn_input.agent is not None)
        run.publish([*events, result.completed(), Done(run.session_id)])
        if turn is None:
            self.table.add(run)
            self.table.retain(run)
        return run

    async def _prepare(self, run: Run, session: ChatSession, turn_input: TurnInput) -> PreparedTurn:
        """Check the request of a new turn without writing. Raises ``MochiError``."""
        preparation = self._preparation if turn_input.agent is None else self._agent_preparation
        with acting_as(run.caller):
            return await preparation.prepare(run, session, turn_input)

    async def _lock(
        self,
        conversation: Conversation,
        turn_input: TurnInput,
        run_id: str,
        locks: AsyncExitStack,
    ) -> None:
        """Lock the session of a new turn. Raises ``SessionBusy`` and ``ShuttingDown``."""
        session_id = conversation.session_id
        waits = turn_input.if_busy == "wait"
        hold = conversation.store.hold(session_id, run_id=run_id, wait=waits)
        try:
            with self._cancelled_at_shutdown():
                await locks.enter_async_context(hold)
        except errors.SessionBusy as error:
            if conversation.kind != "session":
                raise
            session = await self.store.load(session_id)
            raise with_waiting_calls(error, session) from None

    def _new_turn(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        repetition: Repetition | None,
        run_id: str,
    ) -> tuple[Run, TurnInput]:
        """Return the run of a new turn, and the input from which it is prepared.

        Raises ``EmptyHistory`` if the turn has no message to answer.
        """
        new_input = turn_input if repetition is None else repetition.input
        if new_input.change == "regenerate" and last_user_index(session.history) is None:
            raise errors.EmptyHistory(session.session_id)
        if new_input.edit_index is not None:
            position = new_input.edit_index + 1
        elif new_input.text is not None:
            position = len(session.history)
        else:
            position = new_input.answer_index(session.history)  # may replace the last answer
        ids = run_ids(session, new_input, run_id)
        run = self._new_run(conversation, session, turn_input, ids, position)
        return run, new_input

    def _new_run(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        run_ids: list[str],
        position: int,
        *,
        continued_after: int = 0,
        sender: str = "",
    ) -> Run:
        return Run(
            conversation,
            turn_input.without_data(),
            run_ids,
            model=turn_input.model or session.model,
            position=position,
            holds_text=is_answer_checked(session, turn_input),
            caller=self._keys.caller_inside(session.metadata.owner, sender),
            disconnect_grace=self._disconnect_grace if conversation.kind == "session" else 0,
            log=EventLog(self._limits.log_bytes),
            continued_after=continued_after,
        )

    async def _find_repeated(self, conversation: Conversation, turn_input: TurnInput) -> Run | None:
        """Return the run of the stored turn that the same request has started, or None.

        The turn goes on, or has just ended. Raises ``IdempotencyKeyReused``.
        """
        if turn_input.key is None:
            return None
        session = await conversation.load()
        turn = session.metadata.turn
        if turn is None or not repeats_turn(session, turn, turn_input):
            return None
        run = self.table.find(conversation.run_key, turn.run_id)
        if run is not None and run.run_id == turn.run_id:
            # A later request without the key can have stopped a regeneration of the answer.
            is_own = turn.key_digest == key_digest(conversation.session_id, turn_input.key)
            if run.running or run.state == "completed" or (run.state == "stopped" and is_own):
                return run
        return await self._stored_runs.find_or_create(session, turn) if turn.survives else None

    def _launch(
        self,
        run: Run,
        execution: Coroutine[Any, Any, TurnResult],
        locks: AsyncExitStack,
        first_write: "asyncio.Future[None] | None" = None,
    ) -> Run:
        """Execute a turn in the background. ``locks`` are released when the turn has ended."""
        self._summaries.turn_starting(run.session_id)
        self.table.add(run)
        run.start(self._execute(run, execution, locks), first_write)
        return run

    async def _execute(
        self, run: Run, execution: Coroutine[Any, Any, TurnResult], locks: AsyncExitStack
    ) -> None:
        result: TurnResult | None = None
        CALLER.set(run.caller)
        try:
            async with locks:
                result = await execution
        except asyncio.CancelledError:
            result = result or TurnResult(cancelled=True)
        except Exception as error:
            failure = as_mochi_error(error, run.session_id)
            result = replace(result or TurnResult(), failure=failure)
        if result.is_suspended and result.turn is not None:
            self._suspend(run, result, result.turn)
        else:
            self._end(run, result)

    def _suspend(self, run: Run, result: TurnResult, turn: StoredTurn) -> None:
        """End a run whose turn goes on: it waits for a decision, or continues at the next
        server.
        """
        run.suspend(turn.state, result)
        self.table.suspend(run)
        self._summaries.release_turn(run.session_id)
        if turn.state == "waiting_for_approval" and turn.due is not None:
            self._due.add(run.session_id, turn.due)
        if self.shutdown.is_set():
            run.release_clients()

    def _end(self, run: Run, result: TurnResult) -> None:
        state = run.control.state_after(result.failure, cancelled=result.cancelled)
        failure = result.failure or (run.control.abort_error if result.cancelled else None)
        if failure is not None:
            # These refer to all data of the turn.
            failure.__traceback__ = failure.__cause__ = failure.__context__ = None
            run.publish([TurnError.of(failure)])
        run.end(state, result)
        self._on_ended(run)
        if state == "stopped" and failure is None:
            run.publish([Stopped(result.partial_id)])
        # A client may start its next turn on `done`. The lock of the session is released already.
        run.publish([Done(run.session_id)])
        if run.conversation.kind != "session":
            self._summaries.drop_session(run.session_id)
        elif not self.shutdown.is_set():
            self._summaries.turn_ended(run.session_id, run.answer_id)
        self.table.retain(run)

    # Stored turns

    async def _decide_stored(
        self, session_id: str, confirmation_id: str, decision: Decision
    ) -> tuple[Run, ToolInvocation]:
        run_id = new_id()
        run: Run | None = None
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.store.hold(session_id, run_id=run_id))
            session, turn, approval = await self._load_waiting(session_id, confirmation_id)
            call = ToolInvocation(approval.call_index, "", approval.tool_name, approval.arguments)
            decided = turn.decided(decision)
            try:
                if decision.approved:
                    await self._check_decision(session, turn, approval, call, decision)
                with suppress(errors.OllamaUnreachable, errors.OllamaError):
                    run = await self._revive(session, decided, run_id, locks, is_requested=True)
            except ValueError as error:
                await self._end_unreadable(session, turn, error)
                raise self._approvals.error_of(session_id, confirmation_id) from error
            if run is None:
                run = await self._store_decision(session, turn, decided)
        self._approvals.close_request(session_id, confirmation_id, errors.ConfirmationResolved)
        return run, call

    async def _check_decision(
        self,
        session: ChatSession,
        turn: StoredTurn,
        approval: Approval,
        call: ToolInvocation,
        decision: Decision,
    ) -> None:
        """Raise ``ConfirmationStale`` if the tool of a call has changed, and ``ValidationFailed``
        for invalid arguments.
        """
        with acting_as(self._keys.caller_inside(session.metadata.owner, turn.sender)):
            tool = await self._preparation.find_tool(session, turn, approval)
        if tool is None:
            return
        if fingerprint(tool) != approval.fingerprint:
            await self._announce_again(session, turn, approval, tool)
            raise errors.ConfirmationStale(approval.confirmation_id)
        if decision.arguments is not None:
            edited = replace(call, arguments=decision.arguments)
            await self._approvals.bind_edited(edited, tool)

    async def _store_decision(
        self, session: ChatSession, turn: StoredTurn, decided: StoredTurn
    ) -> Run:
        """Store a decision on a turn that continues later, and return the run of the turn."""
        run = await self._stored_runs.find_or_create(session, turn)
        await run.conversation.write(Change(turn=decided))
        run.suspend(decided.state, run.result)
        self._due.pause(run.session_id, self._limits.retry_seconds)
        return run

    async def _load_waiting(
        self, session_id: str, confirmation_id: str
    ) -> tuple[ChatSession, StoredTurn, Approval]:
        """Return a session with its turn, which waits for this decision.

        Raise the errors of `decide`.
        """
        session = await self.store.load(session_id)
        turn = session.metadata.turn
        approval = None if turn is None else turn.approval
        if turn is None or approval is None or approval.confirmation_id != confirmation_id:
            raise await self._refusal(session, confirmation_id)
        if approval.decision is not None:
            raise errors.ConfirmationResolved(confirmation_id)
        if turn.waiting is None:
            raise errors.ConfirmationTimeout(confirmation_id)
        return session, turn, approval

    async def _refusal(self, session: ChatSession, confirmation_id: str) -> errors.MochiError:
        """Return the error of a decision on a request that does not wait."""
        turn = session.metadata.turn
        messages = [*session.history]
        if turn is not None and requesting_run(confirmation_id) in turn.run_ids:
            messages += await self._stored_runs.messages_with_agents(session, turn)
        stored = stored_error(turn, messages, confirmation_id)
        return self._approvals.error_of(session.session_id, confirmation_id, stored)

    async def _deny(self, session_id: str) -> None:
        """Deny the calls of a turn that waits for approval, if any, and end the turn."""
        live = self.table.find(session_id)
        if live is not None:
            await _suspend_if_waiting(live)
        await self._stop_stored(session_id, only_waiting=True)

    async def _stop_stored(self, session_id: str, *, only_waiting: bool = False) -> Run | None:
        """Stop a stored turn that goes on, and deny its call that waits. Return its run.

        Return None if no turn goes on. If ``only_waiting`` is true, do not stop a turn that is
        about to continue.
        """
        # Without such a turn, do not wait for the lock.
        if _turn_to_end(await self.store.load(session_id), only_waiting=only_waiting) is None:
            return None
        async with self.store.hold(session_id):
            session = await self.store.load(session_id)
            turn = _turn_to_end(session, only_waiting=only_waiting)
            if turn is None:
                return None
            run = await self._stored_runs.find_or_create(session, turn)
            await self._end_agent(session_id, turn, "stopped")
            try:
                messages = stopped_messages(session, turn)
                removed = await run.conversation.write(stopped_change(session, turn, messages))
            except ValueError as error:
                await self._end_unreadable(session, turn, error)
                return await self.find(session_id)
        approval = turn.approval
        last_events: list[ChatEvent] = []
        if approval is not None:
            confirmation_id = approval.confirmation_id
            if turn.state == "waiting_for_approval":
                self._approvals.close_request(
                    session_id, confirmation_id, errors.ConfirmationResolved
                )
                _audit_decision(
                    session_id, confirmation_id, approval.tool_name, Decision(approved=False)
                )
            if run.log.ends_with(confirmation_id):
                last_events.append(stopped_event(approval))
            for call in unfinished_calls(session, turn):
                if call.progress.agent_name is not None:
                    last_events.append(interrupted_event(call))
        if removed:
            last_events.append(versions_removed(removed))
        self._due.remove(session_id)
        self.table.take_suspended(session_id)
        result = replace(run.result, stored=messages, outcomes=stored_outcomes(messages))
        self._end_suspended(run, result, last_events)
        self.table.add(run)
        self.table.retain(run)
        return run

    async def end_agent_of_deleted(self, session: ChatSession) -> None:
        """End the turn of the agent whose call waits in a session that was deleted, if any."""
        turn = session.metadata.turn
        if turn is not None:
            await self._end_agent(session.session_id, turn, "stopped")

    async def _end_agent(self, session_id: str, turn: StoredTurn, state: TurnState) -> None:
        """End the turn of the agent whose call waits in a stored turn of a session, if any.

        If the ``state`` is "stopped", its call that waits is denied. Errors are logged, so that the
        calling turn can end.
        """
        approval = turn.approval
        if approval is None or approval.agent is None:
            return
        conversation = self.conversations.agent_chat(approval.agent.session_id)
        try:
            # Do not lock the session if a turn of another session uses it.
            if turn_of_agent(await conversation.load(), session_id, approval) is None:
                return
            async with conversation.store.hold(conversation.session_id):
                agent_session = await conversation.load()
                agent_turn = turn_of_agent(agent_session, session_id, approval)
                if agent_turn is None:
                    return
                change = Change(turn=agent_turn.ended(state))  # the store completes its messages
                if state == "stopped":
                    messages = stopped_messages(agent_session, agent_turn)
                    change = stopped_change(agent_session, agent_turn, messages)
                await conversation.write(change)
        except (errors.MochiError, ValueError) as error:  # the next turn of the agent ends this one
            logger.warning("turn of an agent not ended session_id=%s: %s", session_id, error)

    def _end_suspended(
        self, run: Run, result: TurnResult, events: Sequence[ChatEvent] = ()
    ) -> None:
        run.control.is_stopped = True
        run.end("stopped", replace(result, cancelled=True))
        self._on_ended(run)
        run.publish([*events, Stopped(None), Done(run.session_id)])
        run.release_clients()

    async def _announce_again(
        self, session: ChatSession, turn: StoredTurn, approval: Approval, tool: Tool
    ) -> None:
        """Request the approval again, because the tool of the call has changed."""
        self._approvals.close_request(
            session.session_id, approval.confirmation_id, errors.ConfirmationStale
        )
        run = await self._stored_runs.find_or_create(session, turn)
        again = replace(
            approval,
            confirmation_id=new_confirmation_id(turn.run_id),
            fingerprint=fingerprint(tool),
            source=tool.source,
            expires_at=self._approvals.expires_at(),
            stale_ids=(*approval.stale_ids, approval.confirmation_id),
            earlier_ids=approval.ids,
        )
        # Clients receive the first announcement and the warning before this announcement.
        again_turn = replace(turn, approval=again, events=turn.events + 2)
        await run.conversation.write(Change(turn=again_turn))
        run.publish([changed_warning(approval.tool_name), announcement(again)])

    async def _revive(
        self,
        session: ChatSession,
        turn: StoredTurn,
        run_id: str,
        locks: AsyncExitStack,
        *,
        is_new_start: bool = False,
        is_requested: bool = False,
    ) -> Run | None:
        """Make a stored turn live, and hand its clients over. Return its new run.

        If this server is shutting down, start no run and return None. ``is_new_start`` states
        whether a crash has interrupted the turn, and ``is_requested`` whether a client's decision
        continues it. Raise ``RateLimited`` if the client has reached its limit of running turns,
        and ``ValueError`` if the stored turn is invalid.
        """
        if self.shutdown.is_set():
            return None
        conversation = self.conversations.stored(session.session_id)
        earlier = self.table.suspended(session.session_id, turn.run_id)
        warnings = [] if earlier is None else earlier.log.warnings
        turn = turn.continued(run_id, is_new_start=is_new_start)
        calls = await self._stored_runs.events_of_calls(session, turn, includes_approval_call=True)
        repeated = [*warnings, snapshot(turn_messages(session, turn)), *calls]
        turn_input = restored_input(turn.input or {})
        run = self._new_run(
            conversation,
            session,
            turn_input,
            turn.run_ids,
            turn.first,
            continued_after=len(repeated),
            sender=turn.sender,
        )
        await locks.enter_async_context(self._limiter.running(run.caller, is_limited=is_requested))
        with acting_as(run.caller):
            prepared = await self._preparation.prepare_continued(run, session, turn)
        with self.table.continuing(run):
            await prepared.writer.begin()
            if self.shutdown.is_set():
                return None
            run.log.add([*repeated, Status("continued", 0, continues=run.continues)])
            if is_requested:
                run.control.decided_at = asyncio.get_running_loop().time()
            self._launch(run, execute_run(prepared, run), locks.pop_all())
        self._due.remove(run.session_id)
        suspended = self.table.take_suspended(run.session_id)
        if suspended is not None:
            suspended.release_clients(run)
        return run

    # Turns that continue without a client

    async def _scan(self, *, is_shared: bool) -> None:
        """Continue turns that are due.

        A shared store is searched again and again, because other servers may die.
        """
        has_searched = False
        while True:
            try:
                if is_shared or not has_searched:
                    # The server at which a turn waits continues it first, because it may have
                    # connected clients.
                    until = time.time() - self._limits.scan_seconds if is_shared else math.inf
                    self._due.add_found(await self.store.due_turns(until))
                    has_searched = True
            except errors.MochiError as error:
                logger.warning("interrupted turns not found: %s", error.message)
            for session_id in self._due.take_due():
                start_in(self._tasks, self._continue_alone(session_id))
            if is_shared:
                await self._release_clients()
            await asyncio.sleep(self._limits.scan_seconds)

    async def _release_clients(self) -> None:
        """End the streams of turns that another server continues or whose session it has deleted.

        The clients of a turn that continues resume it there.
        """
        for run in self.table.all_suspended():
            if not run.subscribers:
                continue
            try:
                turn = (await self.store.load(run.session_id)).metadata.turn
            except errors.SessionNotFound:
                await self.abandon(run.session_id)
                continue
            except errors.MochiError:
                continue
            goes_on_here = (
                turn is not None
                and not turn.has_ended
                and self.table.suspended(run.session_id, turn.run_id) is not None
            )
            if run.is_suspended and not goes_on_here:
                run.release_clients()

    async def _continue_alone(self, session_id: str) -> None:
        """Continue a turn whose approval has expired, or whose server died."""
        try:
            await self._continue_due(session_id)
        except errors.SessionBusy:  # usually, another server continues the turn
            self._due.pause(session_id, self._limits.scan_seconds)
        except errors.SessionNotFound:
            return
        except errors.MochiError as error:
            logger.warning("turn continues later session_id=%s: %s", session_id, error.message)
            self._due.pause(session_id, self._limits.retry_seconds)

    async def _continue_due(self, session_id: str) -> None:
        turn = (await self.store.load(session_id)).metadata.turn
        # If the turn ends, a new turn waits for the lock. A lock with a run would refuse it.
        run_id = new_id() if turn is not None and turn.survives else None
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.store.hold(session_id, run_id=run_id))
            session = await self.store.load(session_id)
            turn = session.metadata.turn
            if turn is None or turn.due is None:
                return
            if turn.waiting is not None:
                self._due.add(session_id, turn.due)
            elif run_id is None or not self._can_continue(turn):
                await self._end_interrupted(session, turn)
            elif not self.shutdown.is_set():
                await self._continue_interrupted(session, turn, run_id, locks)

    def _can_continue(self, turn: StoredTurn) -> bool:
        """Return whether a turn continues whose approval has expired, or whose server died."""
        if turn.state == "waiting_for_approval":
            return True
        if not turn.survives or turn.starts >= MAX_STARTS:
            return False
        return turn.approval is not None or self._preparation.continues_background_turns

    async def _continue_interrupted(
        self, session: ChatSession, turn: StoredTurn, run_id: str, locks: AsyncExitStack
    ) -> None:
        is_expired = turn.state == "waiting_for_approval"
        if is_expired and turn.approval is not None:
            self._approvals.close_request(
                session.session_id, turn.approval.confirmation_id, errors.ConfirmationTimeout
            )
        continuing = turn.decided(None) if is_expired else turn
        try:
            await self._revive(session, continuing, run_id, locks, is_new_start=not is_expired)
        except ValueError as error:
            await self._end_unreadable(session, turn, error)

    async def _end_unreadable(
        self, session: ChatSession, turn: StoredTurn, error: ValueError
    ) -> None:
        """End a turn whose stored value is invalid."""
        logger.warning("stored turn cannot be read session_id=%s: %s", session.session_id, error)
        await self._end_interrupted(session, turn)

    async def _end_interrupted(self, session: ChatSession, turn: StoredTurn) -> None:
        """Store that a turn has failed because it cannot continue.

        The store completes the messages of the turn.
        """
        await self._end_agent(session.session_id, turn, "failed")
        failure = errors.ServerLost(session.session_id, starts=turn.starts if turn.survives else 1)
        reason = {"code": failure.code, "message": failure.message}
        ended = turn.ended("failed", error=reason)
        await self.conversations.stored(session.session_id).write(Change(turn=ended))
        run = self.table.take_suspended(session.session_id)
        if run is not None:
            run.release_clients()

    # Shutdown

    async def drain(self) -> None:
        """Refuse new turns, and wait for running turns and forwarded requests. Then end the rest.

        The wait takes at most ``shutdown_grace`` seconds.
        """
        self._close()
        with anyio.move_on_after(self._shutdown_grace):
            while self.table.tasks():
                await asyncio.wait(self.table.tasks())
            # From now on, no further request is forwarded that could delay the end.
            self.turns_ended = True
            while self.forwarded:
                await asyncio.wait(self.forwarded)
        await self.end_all()

    async def end_all(self) -> None:
        """Suspend the turns that wait for approval, and end the others.

        A background turn continues at the next server, and the partial answer of any other turn is
        stored. Forwarded requests are aborted.
        """
        self.ending.set()
        self.conversations.retry.close()
        for run in self.table.running():
            run.control.ends_for_shutdown = True
            run.suspend_or_cancel(errors.ShuttingDown(was_running=True))
        tasks = self.table.tasks()
        if tasks:
            await asyncio.wait(tasks)

    def abort_all(self, session_ids: Collection[str]) -> None:
        """Cancel the running turns of the given sessions, because other servers have taken these
        sessions over.
        """
        for run in self.table.running():
            if run.session_id in session_ids:
                run.cancel(errors.SessionTaken(run.session_id))

    def _close(self) -> None:
        """Refuse new turns, suspend those that wait for approval now or later, and end the streams
        of suspended turns.
        """
        self.shutdown.set()
        for starting in self._starting:
            starting.cancel()
        self._approvals.suspend_seconds = 0
        for run in self.table.running():
            run.control.suspend()
        for run in self.table.all_suspended():
            run.release_clients()

    async def aclose(self) -> None:
        self._close()
        await cancel_and_wait([*self._tasks])
        await self.end_all()

    def refuse_at_shutdown(self) -> None:
        """Raise ``ShuttingDown`` if this server, or the server that forwarded the request, is
        shutting down.
        """
        if self.shutdown.is_set() or not MAY_START_TURN.get():
            raise errors.ShuttingDown

    @contextmanager
    def _cancelled_at_shutdown(self) -> Iterator[None]:
        """Cancel the work of the block when a shutdown begins, and raise ``ShuttingDown`` in its
        place.
        """
        self.refuse_at_shutdown()
        with anyio.CancelScope() as scope:
            self._starting.add(scope)
            try:
                yield
            finally:
                self._starting.discard(scope)
        if scope.cancelled_caught:
            raise errors.ShuttingDown


async def _when_free(attempt: Callable[[], Awaitable[_Result]]) -> _Result:
    """Return the result of ``attempt``, which is repeated while it raises ``SessionBusy``."""
    for _ in range(_RETRIES):
        with suppress(errors.SessionBusy):
            return await attempt()
        await asyncio.sleep(_RETRY_SECONDS)
    return await attempt()


async def _suspend_if_waiting(run: Run) -> None:
    """Suspend the turn of a run if it is live and waits for a decision, and wait for its end."""
    if run.task is not None and run.control.suspend():
        await asyncio.wait([run.task])


def _turn_to_end(session: ChatSession, *, only_waiting: bool) -> StoredTurn | None:
    """Return the turn of a session if it goes on, or None.

    If ``only_waiting`` is true, the turn must wait for approval. Its time may have passed.
    """
    turn = session.metadata.turn
    if turn is None or not goes_on(session):
        return None
    if only_waiting and turn.state != "waiting_for_approval":
        return None
    return turn


def _audit_decision(
    session_id: str, confirmation_id: str, tool_name: str, decision: Decision
) -> None:
    audit(
        "Tool call decided",
        session_id=session_id,
        confirmation_id=confirmation_id,
        tool=tool_name,
        approved=decision.approved,
        remember=decision.remember,
    )
