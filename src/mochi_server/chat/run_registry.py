"""Registry of runs, which starts, finds and stops the runs of turns."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService
from mochi_server.chat.conversation import Conversation, Conversations
from mochi_server.chat.engine import ChatEngine, as_mochi_error
from mochi_server.chat.limits import DEFAULT_LIMITS, RunLimits, TurnLimiter
from mochi_server.chat.parked_record import ParkedTurn
from mochi_server.chat.parked_turns import ParkedTurns
from mochi_server.chat.prompt import answer_index
from mochi_server.chat.run import EventLog, Run
from mochi_server.chat.run_cache import RunCache
from mochi_server.chat.turn import Turn
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult, snapshot
from mochi_server.errors import ServerLost, SessionTaken, ShuttingDown
from mochi_server.events import ChatEvent, Done, Stopped, TurnError
from mochi_server.services.summarization import SummarizationService
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.session import ChatSession
from mochi_server.tools.toolbox import Decision, ToolInvocation
from mochi_server.util.clock import new_id

_LOST_EVENTS = 1 << 30  # number of the snapshot of a run whose events are lost; later than that of any event
_CANCEL_AGAIN_SECONDS = 0.5


MAY_START_TURN: ContextVar[bool] = ContextVar("may_start_turn", default=True)
"""Whether the current request may start a turn. It may not if a server that shuts down has forwarded it."""


@dataclass(eq=False)
class RunRegistry:
    """Registry of this process's runs. A session has at most one running turn. All times are in seconds."""

    engine: ChatEngine
    summaries: SummarizationService
    approvals: ApprovalService
    conversations: Conversations
    prefetch: Callable[[], object]  # called when a turn starts
    disconnect_grace: float
    shutdown_grace: float
    on_starting: Callable[[Run], Awaitable[None]]  # awaited before a run stores anything
    on_ended: Callable[[Run], None]  # called when a run has ended or was parked
    limits: RunLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        self.store = self.conversations.chats  # store of the sessions whose runs clients can find
        self.cache, self.limiter = RunCache(), TurnLimiter()
        self.shutdown = anyio.Event()  # after it is set, `start` raises
        self.ending = anyio.Event()  # set when the grace period of a shutdown has ended
        self.forwarded = set[asyncio.Future[Any]]()  # requests that other servers answer
        self.turns_ended = False  # whether a shutdown has waited for all turns of this process
        self._waiting = set["asyncio.Task[Any]"]()  # starts of turns that wait for the end of another turn
        self.parked = ParkedTurns(
            answerers=self.engine.answerers,
            approvals=self.approvals,
            conversations=self.conversations,
            cache=self.cache,
            is_stopping=self.shutdown.is_set,
            launch=self.launch,
            on_ended=self.on_ended,
            scan_seconds=self.limits.scan_seconds,
        )

    async def start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        """Start a turn, or find the run with its idempotency key, and return the run. Raises ``MochiError``."""
        start = partial(self._start, conversation, turn_input)
        run = await self.cache.get_or_start(conversation.session_id, turn_input, start)
        if self.ending.is_set() and run.state == "cancelled":  # another server generates the answer again
            raise ShuttingDown
        return run

    async def _start(self, conversation: Conversation, turn_input: TurnInput) -> Run:
        self.prefetch()  # in the background, so that the turn need not wait for it
        self.refuse_at_shutdown()
        run_id, session_id = new_id(), conversation.session_id
        if (repeated := await self.parked.find_repeated(conversation, turn_input)) is not None:
            return repeated
        if turn_input.if_waiting == "deny" and conversation.kind == "session":
            await self.parked.deny(session_id)
        async with AsyncExitStack() as locks:
            locks.enter_context(self.limiter.turn(CALLER.get()))
            hold = conversation.store.hold(session_id, run_id=run_id, wait=turn_input.if_busy == "wait")
            try:
                with self._cancelled_at_shutdown():
                    await locks.enter_async_context(hold)
            except errors.SessionBusy as error:
                if conversation.kind == "session" and (waiting := await self.confirmations(session_id)):
                    raise errors.SessionBusy.waiting(session_id, error.details["run_id"], waiting) from None
                raise
            turn = await self.engine.prepare(conversation, turn_input)
            self.refuse_at_shutdown()
            return self.launch(turn, run_id, turn_input, locks.pop_all())

    def launch(self, turn: Turn, run_id: str, turn_input: TurnInput, locks: AsyncExitStack) -> Run:
        """Execute a turn in the background and return its run. ``locks`` are released when the turn has ended.

        ``turn_input`` is what the client sent, before the turn was prepared.
        """
        run = Run(
            turn.conversation,
            turn_input.without_data(),
            run_id,
            model=turn_input.model or turn.session.metadata.model,
            position=turn.position,
            holds_text=turn.has_schema,
            caller=CALLER.get().inside(turn.session.metadata.owner),
            log=EventLog(self.limits.log_bytes),
            disconnect_grace=self.disconnect_grace if turn.conversation.kind == "session" else 0,
        )
        self.summaries.turn_starting(run.session_id)
        self.cache.add(run)
        run.task = asyncio.get_running_loop().create_task(self._execute(run, turn, locks))
        return run

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> tuple[Run, ToolInvocation]:
        """Apply a decision to a tool call that waits, also if its turn is parked. Return its run and the decided call.

        Raises the errors of ``ApprovalService.decide``, and ``SessionNotFound``.
        """
        await self.conversations.stored(session_id).load()  # the caller may not see the session
        if (run := self.cache.find(session_id)) is not None:
            with suppress(errors.ConfirmationNotFound):  # the turn may be parked
                return run, await self.approvals.decide(run, confirmation_id, decision)
        return await self.parked.decide(session_id, confirmation_id, decision)

    async def confirmations(self, session_id: str) -> list[dict[str, Any]]:
        """Return the tool calls of a session that wait for approval as JSON objects. Raises ``SessionNotFound``."""
        record = ParkedTurn.of(await self.store.load(session_id))
        return [] if record is None else record.confirmations()

    async def find(self, session_id: str, run_id: str | None = None) -> Run | None:
        """Return the run with ``run_id``, or a later run of its turn, else the session's latest run, or None.

        If the events of the run are lost, the run contains what was stored. Raises ``SessionNotFound``.
        """
        run = self.cache.find(session_id, run_id)
        if run is not None and (run.running or run.run_id == run_id):
            return run
        session = await self.store.load(session_id)
        run = self.cache.find(session_id, run_id)  # meanwhile, a turn may have started
        if run is not None and run.running:
            return run
        last_run = session.metadata.last_run
        if (parked := self.parked.find(session)) is not None or last_run is None:
            return parked or run
        is_latest = run is not None and run.run_id == last_run["run_id"]
        if is_latest or run_id not in (None, last_run["run_id"], *last_run.get("earlier", ())):
            return run
        return _stored_run(self.conversations.stored(session_id), session)

    async def stop(self, session_id: str) -> Run | None:
        """Stop the running turn of a session. Return its latest run, if any. Raise ``SessionNotFound``."""
        run = await self.find(session_id)
        await stop_run(run)
        if run is not None and run.state == "waiting_for_approval":
            return await self.parked.deny(session_id) or run
        return run

    async def abandon(self, session_id: str) -> None:
        """Prepare the deletion of a session: stop its running turn and drop its ended runs."""
        await stop_run(self.cache.find(session_id))
        self.parked.abandon(session_id)
        self.cache.drop_session(session_id)
        self.summaries.forget(session_id)

    async def drain(self) -> None:
        """Refuse new turns, and wait for running turns and forwarded requests. Then end the rest.

        The wait takes at most ``shutdown_grace`` seconds.
        """
        self._close()
        with anyio.move_on_after(self.shutdown_grace):
            await self._refuse_waiting()
            while running := [run.task for run in self.cache.running() if run.task]:
                await asyncio.wait(running)
            self.turns_ended = True  # from now on, no further request is forwarded that could delay the end
            while self.forwarded:
                await asyncio.wait(self.forwarded)
        await self.end_all()

    async def end_all(self) -> None:
        """Park the turns that wait for approval, cancel the others and store their partial answers.

        Forwarded requests are aborted.
        """
        self.ending.set()
        self.conversations.retry.close()
        running = self.cache.running()
        for run in running:
            run.park_or_cancel(ShuttingDown(was_running=True))
        if running:
            await asyncio.wait([run.task for run in running if run.task])

    def abort_all(self, session_ids: Collection[str]) -> None:
        """Cancel the running turns of the given sessions, because other servers have taken these sessions over."""
        for run in self.cache.running():
            if run.session_id in session_ids:
                run.cancel(SessionTaken(run.session_id))

    def _close(self) -> None:
        """Refuse new turns, park those that wait for approval now or later, and end the streams of parked turns."""
        self.shutdown.set()
        self.approvals.park_seconds = 0
        for run in self.cache.running():
            run.park()
        self.parked.release_clients()

    async def aclose(self) -> None:
        self._close()
        await self.parked.aclose()
        await self.end_all()

    async def _execute(self, run: Run, turn: Turn, lock: AsyncExitStack) -> None:
        result: TurnResult | None = None
        CALLER.set(run.caller)
        try:
            async with lock:
                await self.on_starting(run)
                running = self.engine.run(turn, run)
                del turn  # so that the engine can free the bytes of its images
                result = await running
        except asyncio.CancelledError:
            result = result or TurnResult(cancelled=True)
        except Exception as error:
            result = replace(result or TurnResult(), failure=as_mochi_error(error, run.session_id))
        run.result = result
        if result.parked_until is not None:
            run.state, run.task = "waiting_for_approval", None
            self.cache.park(run)
            self.parked.add(run, result.parked_until)
            self.summaries.turn_parked(run.session_id)
            self.on_ended(run)
            return
        if (ended_by := run.failure) is not None:
            ended_by.__traceback__ = ended_by.__cause__ = ended_by.__context__ = None  # they refer to all data
            run.publish([TurnError.of(ended_by)])
        # The session lock is released before `done`, because a client may start its next turn on `done`.
        run.state = run.state_after(result)
        self.on_ended(run)
        if run.state == "stopped" and run.failure is None:
            run.publish([Stopped(run.result.partial_id)])
        run.publish([Done(run.session_id)])
        if run.conversation.kind != "session":
            self.summaries.forget(run.session_id)
        elif not self.shutdown.is_set():
            answer = run.result.answer
            self.summaries.turn_ended(run.session_id, answer["message_id"] if answer else None)
        self.cache.retain(run)

    def refuse_at_shutdown(self) -> None:
        """Raise ``ShuttingDown`` if this server, or the server that forwarded the request, is shutting down."""
        if self.shutdown.is_set() or not MAY_START_TURN.get():
            raise ShuttingDown

    async def _refuse_waiting(self) -> None:
        """Cancel the starts of turns that wait. Cancel them again if a library has swallowed the cancellation."""
        while self._waiting:
            for task in self._waiting:
                task.cancel()
            await asyncio.sleep(_CANCEL_AGAIN_SECONDS)

    @contextmanager
    def _cancelled_at_shutdown(self) -> Iterator[None]:
        """Cancel the work of the block when a shutdown begins, and raise ``ShuttingDown`` in its place."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - in a coroutine
        self._waiting.add(task)
        try:
            self.refuse_at_shutdown()  # it may have begun before this task was in the set
            yield
        except asyncio.CancelledError:
            self.refuse_at_shutdown()
            raise
        finally:
            self._waiting.discard(task)


def _stored_run(conversation: Conversation, session: ChatSession) -> Run:
    """Return the latest run of a session as it was stored, with a snapshot and its end as events."""
    last_run: dict[str, Any] = session.metadata.last_run or {}
    stored, state = session.history[answer_index(session.history, "none") :], last_run["state"]
    result = TurnResult(stored)
    if state == "running" and stored and stored[-1] is result.answer and result.partial_id is None:
        result = TurnResult()  # the answer that the run was to replace
    log = EventLog.restored(snapshot(result.stored), _LOST_EVENTS)
    run = Run(conversation, TurnInput(), last_run["run_id"], log=log, earlier=last_run.get("earlier") or ())
    ending: list[ChatEvent] = [Stopped(result.partial_id)] if state == "stopped" else []
    if state == "completed" and result.answer is not None:
        ending = [result.completed()]
    elif state in ("running", "failed"):
        state, result = "failed", replace(result, failure=ServerLost(session.session_id))
        ending = [TurnError.of(ServerLost(session.session_id))]
    run.state, run.result, run.is_stored = state, result, True
    run.publish([*ending, Done(session.session_id)])
    return run


async def stop_run(run: Run | None) -> None:
    """Stop a run, if it is running, and wait for its end."""
    if run is not None and run.task is not None:
        run.stopped = True
        run.cancel()
        await asyncio.wait([run.task])
