"""Turns of all sessions: start, decide, stop and find them, and end them at a shutdown."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import anyio

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService, audit_decision
from mochi_server.chat.conversation import Conversation, Conversations
from mochi_server.chat.execution import execute_run
from mochi_server.chat.idempotency import Repetition, find_repetition, repeats_turn, run_ids
from mochi_server.chat.limits import DEFAULT_LIMITS, RunLimits
from mochi_server.chat.live_turns import LiveTurns
from mochi_server.chat.preparation import ModelTurns, TurnPreparation
from mochi_server.chat.recovery import TurnRecovery
from mochi_server.chat.run import Run
from mochi_server.chat.stored_events import answer_events
from mochi_server.chat.stored_runs import StoredRuns
from mochi_server.chat.stored_turns import StoredTurns
from mochi_server.chat.turn import PreparedTurn
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.events import Done, Stopped, ToolContinuationStart
from mochi_server.services.keys import KeyRing
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.usage import TurnLimiter
from mochi_server.sessions.caller import CALLER, acting_as
from mochi_server.sessions.history import last_user_index
from mochi_server.sessions.session import (
    ChatSession,
    key_digest,
    last_answer,
    refuse_if_turn_goes_on,
    turn_to_end,
    waiting_calls,
    with_calling_session,
    with_waiting_calls,
)
from mochi_server.sessions.turn import Decision
from mochi_server.tools.stored_calls import stored_outcomes
from mochi_server.tools.toolbox import ToolInvocation
from mochi_server.util.clock import new_id

_BUSY_PAUSE_SECONDS = 0.1  # pause before an attempt is repeated while a session is busy
_BUSY_ATTEMPTS = 50

MAY_START_TURN: ContextVar[bool] = ContextVar("may_start_turn", default=True)
"""Whether the current request may start a turn.

It may not if a server that shuts down has forwarded it.
"""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _repeated_while_busy(
    attempt: Callable[_Arguments, Awaitable[_Result]],
) -> Callable[_Arguments, Coroutine[Any, Any, _Result]]:
    """Return a coroutine function that repeats ``attempt`` while it raises ``SessionBusy``, for a
    few seconds.
    """

    @wraps(attempt)
    async def repeat(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        for _ in range(_BUSY_ATTEMPTS):
            with suppress(errors.SessionBusy):
                return await attempt(*args, **kwargs)
            await asyncio.sleep(_BUSY_PAUSE_SECONDS)
        return await attempt(*args, **kwargs)

    return repeat


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
        self.shutdown = anyio.Event()  # after it is set, no new turn starts
        self.ending = anyio.Event()  # set when the grace period of a shutdown has ended
        self.forwarded = set[asyncio.Future[Any]]()  # requests that other servers answer
        self.turns_ended = False  # whether a shutdown has waited for all turns of this process
        self._live = LiveTurns(
            summaries=summaries,
            keys=keys,
            disconnect_grace=disconnect_grace,
            log_bytes=limits.log_bytes,
            on_ended=on_ended,
            shutdown=self.shutdown,
        )
        self.table = self._live.table
        self._runs = StoredRuns(conversations, self.table, self.ending)
        self._stored = StoredTurns(
            conversations=conversations,
            live=self._live,
            runs=self._runs,
            preparation=preparation,
            approvals=approvals,
            keys=keys,
            limiter=limiter,
            retry_seconds=limits.retry_seconds,
        )
        self._recovery = TurnRecovery(self.store, self._live, self._stored, limits)
        self._preparation = preparation
        self._agent_preparation = agent_preparation
        self._approvals = approvals
        self._keys = keys
        self._shutdown_grace = shutdown_grace
        self._limiter = limiter
        self._starting = set[anyio.CancelScope]()  # of starts that wait for another turn

    def open(self, *, is_shared: bool) -> None:
        """Continue or end the turns that a crash has interrupted, and continue the others when
        their approvals expire.

        ``is_shared`` states whether other servers use the same sessions.
        """
        self._recovery.open(is_shared=is_shared)

    # Requests of clients

    async def start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        """Start a turn, or find the run with its idempotency key, and return the run.

        Raises ``MochiError``.
        """
        async with self.table.starting(conversation, turn_input) as earlier:
            run = earlier
            if run is None:
                run = await self._start(conversation, turn_input)
        if turn_input.on_disconnect == "continue" and run.first_write is not None:
            # A client may disconnect as soon as it receives the run.
            await asyncio.shield(run.first_write)
        # The request fails, so that it is sent again to another server.
        if self.ending.is_set() and run.state == "cancelled":
            raise errors.ShuttingDown
        return run

    async def check_before_denial(self, conversation: Conversation, turn_input: TurnInput) -> None:
        """Raise the error that would refuse a new turn after the denial of a turn that waits.

        Nothing changes. Without such a turn, nothing is checked. The revision of the session is
        checked later.
        """
        session = await conversation.store.load(conversation.session_id)
        if turn_to_end(session, only_waiting=True) is None:
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
        ``SessionBusy`` if something else holds the session for long, and ``RateLimited`` if the
        client may not continue another turn now.
        """
        run, call = await self._decide(session_id, confirmation_id, decision)
        audit_decision(session_id, confirmation_id, call.name, decision)
        return run, call

    # The session is busy while its turn is suspended, or another request decides.
    @_repeated_while_busy
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
            # The turn may be suspended, or another server may have taken its session.
            with suppress(errors.ConfirmationNotFound):
                call = await self._approvals.deliver_decision(
                    session_id, run.control, confirmation_id, decision
                )
                return run, call
        await self._stored.load_waiting(session_id, confirmation_id)  # its errors need no lock
        return await self._stored.decide(session_id, confirmation_id, decision)

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
        run if it goes on or is in memory, or None.

        If the events of the run are lost, the run contains what was stored. Raises
        ``SessionNotFound``.
        """
        return await self._runs.find(session_id, run_id)

    @_repeated_while_busy
    async def stop(self, session_id: str) -> Run | None:
        """Stop the turn of a session, also one that waits.

        Return its latest run, if any. Raises ``SessionNotFound``, and ``SessionBusy`` if something
        else holds the session for long.
        """
        run = await self.find(session_id)
        if run is None or run.has_ended:
            return run
        if run.task is not None:
            await run.stop()
            if run.state != "waiting_for_approval":  # else the turn was suspended at this moment
                return run
        stopped_run = await self._stored.stop(session_id)
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
            await self._stored.end_agent_of_deleted(session)

    async def abandon(self, session_id: str) -> None:
        """Prepare the deletion of a session: stop its turn, live or not, and drop its runs."""
        await self._live.abandon(session_id)

    async def end_agent_of_deleted(self, session: ChatSession) -> None:
        """End the turn of the agent whose call waits in a session that was deleted, if any."""
        await self._stored.end_agent_of_deleted(session)

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
        for _ in range(_BUSY_ATTEMPTS):
            try:
                await self.check_before_denial(conversation, turn_input)
                await self._stop_waiting_turn(session_id)
                return await self._start_locked(conversation, turn_input)
            except errors.SessionBusy:
                turn = (await self.store.load(session_id)).metadata.turn
                if turn is not None and turn.state == "running":
                    raise
            await asyncio.sleep(_BUSY_PAUSE_SECONDS)  # a request decides, or looks at the turn
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
            return self._live.launch(run, execute_run(turn, run), locks.pop_all(), first_write)

    def _repeated_run(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        answer_start: int,
        *,
        was_stopped: bool = False,
    ) -> Run:
        """Return an ended run with the events of a stored answer.

        Nothing is stored. If the answer is that of the stored turn, the run has the IDs of the
        turn. Otherwise, clients find the run by its new ID until it leaves memory.
        """
        messages = session.history[answer_start:]
        outcomes = stored_outcomes(messages)
        result = TurnResult(messages, outcomes=outcomes, cancelled=was_stopped)
        turn = session.metadata.turn
        if turn is not None and turn.answer_id != result.answer_id:
            turn = None  # the answer is that of an earlier turn
        run_ids = [new_id()] if turn is None else turn.run_ids
        run = self._live.new_run(conversation, session, turn_input, run_ids, answer_start)
        run.end("stopped" if was_stopped else "completed", result)
        end = Stopped(result.partial_id) if was_stopped else result.completed()
        events = answer_events(messages, is_agent=turn_input.agent is not None)
        run.publish([*events, end, Done(run.session_id)])
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
            session = await conversation.store.load(session_id)
            if conversation.kind == "session":
                raise with_waiting_calls(error, session) from None
            raise with_calling_session(error, session) from None

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
        run = self._live.new_run(conversation, session, turn_input, ids, position)
        return run, new_input

    async def _find_repeated(self, conversation: Conversation, turn_input: TurnInput) -> Run | None:
        """Return the run of the stored turn that the same request has started, or None.

        The turn goes on, has just ended, or was stopped. Raises ``IdempotencyKeyReused``.
        """
        if turn_input.key is None:
            return None
        session = await conversation.load()
        turn = session.metadata.turn
        if turn is None or not repeats_turn(session, turn, turn_input):
            return None
        # A later request without the key can have stopped a regeneration of the answer.
        is_own = turn.key_digest == key_digest(conversation.session_id, turn_input.key)
        run = self.table.find(conversation.run_key, turn.run_id)
        if run is not None and run.run_id == turn.run_id:
            if run.running or run.state == "completed":
                return run
            if run.state == "stopped" and is_own:
                return run
        if turn.state == "stopped" and is_own:  # in an earlier process, or long ago
            answer = last_answer(session.history[turn.first :])
            is_shown = answer is not None and answer["message_id"] == turn.answer_id
            start = turn.first if is_shown else len(session.history)
            return self._repeated_run(conversation, session, turn_input, start, was_stopped=True)
        return await self._runs.find_or_create(session, turn) if turn.survives else None

    # Stored turns

    async def _stop_waiting_turn(self, session_id: str) -> None:
        """Stop the turn of a session if it waits for approval, which denies its calls."""
        live = self.table.find(session_id)
        if live is not None:
            await _suspend_if_waiting(live)
        await self._stored.stop(session_id, only_waiting=True)

    # Shutdown

    async def drain(self) -> None:
        """Refuse new turns, and wait for running turns and forwarded requests. Then end the rest.

        The wait takes at most ``shutdown_grace`` seconds.
        """
        self._close()
        with anyio.move_on_after(self._shutdown_grace):
            while self.table.tasks():
                await asyncio.wait(self.table.tasks())
            # Two servers that shut down may forward such streams to each other.
            self._end_suspended_streams()
            # From now on, no further request is forwarded that could delay the end.
            self.turns_ended = True
            while self.forwarded:
                await asyncio.wait(self.forwarded)
        await self.end_all()

    async def end_all(self) -> None:
        """Suspend the turns that wait for approval, end the others, and then end the streams of
        suspended turns.

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
        self._end_suspended_streams()

    def abort_all(self, session_ids: Collection[str]) -> None:
        """Cancel the turns of the given sessions, because other servers have taken these sessions
        over. Suspend the turns that wait for approval: the clients follow the stored turn.
        """
        for run in self.table.running():
            if run.session_id in session_ids:
                run.suspend_or_cancel(errors.SessionTaken(run.session_id))

    def _close(self) -> None:
        """Refuse new turns, and suspend those that wait for approval now or later."""
        self.shutdown.set()
        for starting in self._starting:
            starting.cancel()
        self._approvals.suspend_seconds = 0
        for run in self.table.running():
            run.control.suspend()

    def _end_suspended_streams(self) -> None:
        for run in self.table.all_suspended():
            run.release_clients()

    async def aclose(self) -> None:
        self._close()
        await self._recovery.aclose()
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


async def _suspend_if_waiting(run: Run) -> None:
    """Suspend the turn of a run if it is live and waits for a decision, and wait for its end."""
    if run.task is not None and run.control.suspend():
        await asyncio.wait([run.task])
