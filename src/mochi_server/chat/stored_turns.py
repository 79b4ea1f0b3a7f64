"""Stored turns: decide, stop, revive and end them, while the session is locked."""

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace

from mochi_server import errors
from mochi_server.chat.approvals import (
    ApprovalService,
    audit_decision,
    fingerprint,
    new_confirmation_id,
    requesting_run,
    stored_error,
)
from mochi_server.chat.conversation import Conversations
from mochi_server.chat.execution import execute_run
from mochi_server.chat.live_turns import LiveTurns
from mochi_server.chat.preparation import ModelTurns
from mochi_server.chat.run import Run
from mochi_server.chat.stopped_turn import stopped_change, stopped_messages, unfinished_calls
from mochi_server.chat.stored_events import (
    announcement,
    interrupted_event,
    snapshot,
    stopped_event,
)
from mochi_server.chat.stored_runs import StoredRuns
from mochi_server.chat.turn_input import restored_input
from mochi_server.chat.turn_messages import turn_messages, turn_of_agent
from mochi_server.events import ChatEvent, Status
from mochi_server.services.keys import KeyRing
from mochi_server.services.usage import TurnLimiter
from mochi_server.sessions.caller import acting_as
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import ChatSession, turn_to_end
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.turn import Approval, Decision, StoredTurn, TurnState
from mochi_server.sessions.versions import versions_removed
from mochi_server.tools.discovery import Tool
from mochi_server.tools.stored_calls import stored_outcomes
from mochi_server.tools.toolbox import ToolInvocation, changed_warning
from mochi_server.util.clock import new_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StoredTurns:
    """Turns that no task executes: they wait for a decision, or their server has died."""

    conversations: Conversations
    live: LiveTurns
    runs: StoredRuns
    preparation: ModelTurns
    approvals: ApprovalService
    keys: KeyRing
    limiter: TurnLimiter
    retry_seconds: float
    """Pause before a turn is continued again that could not."""

    @property
    def store(self) -> SessionStore:
        """Store of the sessions whose turns clients can find."""
        return self.conversations.chats

    async def decide(
        self, session_id: str, confirmation_id: str, decision: Decision
    ) -> tuple[Run, ToolInvocation]:
        run_id = new_id()
        run: Run | None = None
        async with AsyncExitStack() as locks:
            await locks.enter_async_context(self.store.hold(session_id, run_id=run_id))
            session, turn, approval = await self.load_waiting(session_id, confirmation_id)
            call = ToolInvocation(approval.call_index, "", approval.tool_name, approval.arguments)
            decided = turn.decided(decision)
            try:
                if decision.approved:
                    await self._check_decision(session, turn, approval, call, decision)
                with suppress(errors.OllamaUnreachable, errors.OllamaError):
                    run = await self.revive(session, decided, run_id, locks, is_requested=True)
            except ValueError as error:
                await self.end_unreadable(session, turn, error)
                raise self.approvals.error_of(session_id, confirmation_id) from error
            if run is None:
                run = await self._store_decision(session, turn, decided)
        self.approvals.close_request(session_id, confirmation_id, errors.ConfirmationResolved)
        return run, call

    async def _check_decision(
        self,
        session: ChatSession,
        turn: StoredTurn,
        approval: Approval,
        call: ToolInvocation,
        decision: Decision,
    ) -> None:
        """Raise ``ConfirmationStale`` if the tool of a call has changed, after the approval was
        requested again, and ``ValidationFailed`` for invalid arguments.
        """
        with acting_as(self.keys.caller_inside(session.metadata.owner, turn.sender)):
            tool = await self.preparation.find_tool(session, turn, approval)
        if tool is None:
            return
        if fingerprint(tool) != approval.fingerprint:
            await self._announce_again(session, turn, approval, tool)
            raise errors.ConfirmationStale(approval.confirmation_id)
        if decision.arguments is not None:
            edited = replace(call, arguments=decision.arguments)
            await self.approvals.bind_edited(edited, tool)

    async def _store_decision(
        self, session: ChatSession, turn: StoredTurn, decided: StoredTurn
    ) -> Run:
        """Store a decision on a turn that continues later, and return the run of the turn."""
        run = await self.runs.find_or_create(session, turn)
        await run.conversation.write(Change(turn=decided))
        run.suspend(decided.state, run.result)
        self.live.due.pause(run.session_id, self.retry_seconds)
        return run

    async def load_waiting(
        self, session_id: str, confirmation_id: str
    ) -> tuple[ChatSession, StoredTurn, Approval]:
        """Return a session, its turn and the request of the turn that waits for this decision.

        Raises ``SessionNotFound``. If the request does not wait, raises ``ConfirmationNotFound``,
        ``ConfirmationResolved``, ``ConfirmationTimeout`` or ``ConfirmationStale``.
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
            messages += await self.runs.messages_with_agents(session, turn)
        for version in await self.store.load_versions(session.session_id):
            messages += version.messages
        stored = stored_error(turn, messages, confirmation_id)
        return self.approvals.error_of(session.session_id, confirmation_id, stored)

    async def _announce_again(
        self, session: ChatSession, turn: StoredTurn, approval: Approval, tool: Tool
    ) -> None:
        """Request the approval again, because the tool of the call has changed."""
        self.approvals.close_request(
            session.session_id, approval.confirmation_id, errors.ConfirmationStale
        )
        run = await self.runs.find_or_create(session, turn)
        again = replace(
            approval,
            confirmation_id=new_confirmation_id(turn.run_id),
            fingerprint=fingerprint(tool),
            source=tool.source,
            expires_at=self.approvals.expires_at(),
            stale_ids=(*approval.stale_ids, approval.confirmation_id),
            earlier_ids=approval.ids,
        )
        # Clients receive the first announcement and the warning before this announcement.
        again_turn = replace(turn, approval=again, events=turn.events + 2)
        await run.conversation.write(Change(turn=again_turn))
        run.publish([changed_warning(approval.tool_name), announcement(again)])

    async def stop(self, session_id: str, *, only_waiting: bool = False) -> Run | None:
        """Stop a stored turn that goes on, and deny its call that waits. Return its run.

        Return None if no turn goes on. If ``only_waiting`` is true, do not stop a turn that is
        about to continue.
        """
        # Without such a turn, do not wait for the lock.
        if turn_to_end(await self.store.load(session_id), only_waiting=only_waiting) is None:
            return None
        async with self.store.hold(session_id):
            session = await self.store.load(session_id)
            turn = turn_to_end(session, only_waiting=only_waiting)
            if turn is None:
                return None
            run = await self.runs.find_or_create(session, turn)
            await self._end_agent(session_id, turn, "stopped")
            try:
                messages = stopped_messages(session, turn)
                removed = await run.conversation.write(stopped_change(session, turn, messages))
            except ValueError as error:
                await self.end_unreadable(session, turn, error)
                return await self.runs.find(session_id)
        approval = turn.approval
        last_events: list[ChatEvent] = []
        if approval is not None:
            confirmation_id = approval.confirmation_id
            if turn.state == "waiting_for_approval":
                self.approvals.close_request(
                    session_id, confirmation_id, errors.ConfirmationResolved
                )
                audit_decision(
                    session_id, confirmation_id, approval.tool_name, Decision(approved=False)
                )
            if run.log.ends_with(confirmation_id):
                last_events.append(stopped_event(approval))
            for call in unfinished_calls(session, turn):
                if call.progress.agent_name is not None:
                    last_events.append(interrupted_event(call))
        if removed:
            last_events.append(versions_removed(removed))
        self.live.due.remove(session_id)
        self.live.table.take_suspended(session_id)
        result = replace(run.result, stored=messages, outcomes=stored_outcomes(messages))
        self.live.end_suspended(run, result, last_events)
        self.live.table.add(run)
        self.live.table.retain(run)
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

    async def revive(
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

        The caller has locked the session. If this server is shutting down, start no run and return
        None. ``is_new_start`` states whether a crash or a stop of its server has interrupted the
        turn, and ``is_requested`` whether a client's decision continues it.

        Raises ``RateLimited`` if the client has reached its limit of running turns,
        ``OllamaUnreachable`` and ``OllamaError`` while Ollama does not respond, and ``ValueError``
        if the stored turn is invalid.
        """
        if self.live.shutdown.is_set():
            return None
        conversation = self.conversations.stored(session.session_id)
        earlier = self.live.table.suspended(session.session_id, turn.run_id)
        warnings = [] if earlier is None else earlier.log.warnings
        turn = turn.continued(run_id, is_new_start=is_new_start)
        calls = await self.runs.events_of_calls(session, turn, includes_approval_call=True)
        repeated = [snapshot(turn_messages(session, turn)), *warnings, *calls]
        turn_input = restored_input(turn.input or {})
        run = self.live.new_run(
            conversation,
            session,
            turn_input,
            turn.run_ids,
            turn.first,
            continued_after=len(repeated),
            sender=turn.sender,
        )
        await locks.enter_async_context(self.limiter.running(run.caller, is_limited=is_requested))
        with acting_as(run.caller):
            prepared = await self.preparation.prepare_continued(run, session, turn)
        with self.live.table.continuing(run):
            await prepared.writer.begin()
            if isinstance(prepared.model, errors.ModelNotFound):  # its calls do not run
                await self._end_agent(session.session_id, turn, "failed")
            if self.live.shutdown.is_set():
                return None
            run.log.add([*repeated, Status("continued", 0, continues=run.continues)])
            if is_requested:
                run.control.decided_at = asyncio.get_running_loop().time()
            self.live.launch(run, execute_run(prepared, run), locks.pop_all())
        self.live.due.remove(run.session_id)
        suspended = self.live.table.take_suspended(run.session_id)
        if suspended is not None:
            suspended.release_clients(run)
        return run

    async def end_unreadable(
        self, session: ChatSession, turn: StoredTurn, error: ValueError
    ) -> None:
        """End a turn whose stored value is invalid. The caller has locked the session."""
        warn_of_unreadable(session.session_id, error)
        await self.end_interrupted(session, turn)

    async def end_interrupted(self, session: ChatSession, turn: StoredTurn) -> None:
        """Store that a turn has failed because it cannot continue.

        The caller has locked the session. The store completes the messages of the turn.
        """
        await self._end_agent(session.session_id, turn, "failed")
        failure = errors.ServerLost(session.session_id, starts=turn.starts if turn.survives else 1)
        reason = {"code": failure.code, "message": failure.message}
        ended = turn.ended("failed", error=reason)
        await self.conversations.stored(session.session_id).write(Change(turn=ended))
        run = self.live.table.take_suspended(session.session_id)
        if run is not None:
            run.release_clients()


def warn_of_unreadable(session_id: str, error: ValueError) -> None:
    logger.warning("stored turn cannot be read session_id=%s: %s", session_id, error)
