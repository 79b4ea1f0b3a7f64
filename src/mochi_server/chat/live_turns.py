"""Live turns: the tasks that execute them, and what clients see of their ends."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.due_turns import DueTurns
from mochi_server.chat.event_log import EventLog
from mochi_server.chat.execution import as_mochi_error
from mochi_server.chat.preparation import is_answer_checked
from mochi_server.chat.run import Run
from mochi_server.chat.run_table import RunTable
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.events import ChatEvent, Done, Stopped, TurnError
from mochi_server.services.keys import KeyRing
from mochi_server.services.summarization import SummarizationService
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import StoredTurn


@dataclass(frozen=True, kw_only=True)
class LiveTurns:
    """Turns that tasks of this process execute, and the runs of those that it has suspended."""

    summaries: SummarizationService
    keys: KeyRing
    disconnect_grace: float  # time in seconds that a session's run continues without subscribers
    log_bytes: int  # maximum memory for the events of one run
    on_ended: Callable[[Run], None]  # called when a turn has ended
    shutdown: anyio.Event  # set when this server shuts down
    table: RunTable = field(default_factory=RunTable)
    due: DueTurns = field(default_factory=DueTurns)

    def new_run(
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
        """Return a run that has not started."""
        return Run(
            conversation,
            turn_input.without_data(),
            run_ids,
            model=turn_input.model or session.model,
            position=position,
            holds_text=is_answer_checked(session, turn_input),
            caller=self.keys.caller_inside(session.metadata.owner, sender),
            disconnect_grace=self.disconnect_grace if conversation.kind == "session" else 0,
            log=EventLog(self.log_bytes),
            continued_after=continued_after,
        )

    def launch(
        self,
        run: Run,
        execution: Coroutine[Any, Any, TurnResult],
        locks: AsyncExitStack,
        first_write: "asyncio.Future[None] | None" = None,
    ) -> Run:
        """Execute a turn in a task.

        ``locks`` are released when ``execution`` has returned, also if it has suspended the turn.
        ``first_write`` is the running write of a new turn's request.
        """
        self.summaries.turn_starting(run.session_id)
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
        """Suspend a run whose turn goes on: it waits for a decision, or continues at the next
        server.
        """
        run.suspend(turn.state, result)
        self.table.suspend(run)
        self.summaries.release_turn(run.session_id)
        if turn.state == "waiting_for_approval" and turn.due is not None:
            self.due.add(run.session_id, turn.due)

    def _end(self, run: Run, result: TurnResult) -> None:
        state = run.control.state_after(result.failure, cancelled=result.cancelled)
        failure = result.failure or (run.control.abort_error if result.cancelled else None)
        if failure is not None:
            # The traceback and the causes refer to all data of the turn.
            failure.__traceback__ = failure.__cause__ = failure.__context__ = None
            run.publish([TurnError.of(failure)])
        run.end(state, result)
        self.on_ended(run)
        if state == "stopped" and failure is None:
            run.publish([Stopped(result.partial_id)])
        # A client may start its next turn on `done`. The lock of the session is released already.
        run.publish([Done(run.session_id)])
        if run.conversation.kind != "session":
            self.summaries.drop_session(run.session_id)
        elif not self.shutdown.is_set():
            self.summaries.turn_ended(run.session_id, run.answer_id)
        self.table.retain(run)

    def end_suspended(self, run: Run, result: TurnResult, events: Sequence[ChatEvent] = ()) -> None:
        """End the run of a suspended turn that was stopped. ``events`` precede its end.

        The stored turn and the table of runs do not change.
        """
        run.control.is_stopped = True
        run.end("stopped", replace(result, cancelled=True))
        self.on_ended(run)
        run.publish([*events, Stopped(None), Done(run.session_id)])
        run.release_clients()

    async def abandon(self, session_id: str) -> None:
        """Prepare the deletion of a session: stop its turn, live or not, and drop its runs."""
        live = self.table.find(session_id)
        if live is not None:
            await live.stop()
        suspended = self.table.take_suspended(session_id)
        if suspended is not None and suspended.is_suspended:
            self.end_suspended(suspended, suspended.result)
        self.table.drop_session(session_id)
        self.summaries.drop_session(session_id)
