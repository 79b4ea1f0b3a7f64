"""Runs for clients of the AI SDK and of AG-UI, which start turns and send decisions with the same route."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService
from mochi_server.chat.run import Run
from mochi_server.chat.run_registry import RunRegistry
from mochi_server.chat.turn import TurnRequest
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.session import ChatSession
from mochi_server.tools.toolbox import Decision


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """Turn to start. ``edit`` is the index and the new text of a stored user message that the server edits first."""

    turn: TurnRequest
    edit: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class FrontendRequest:
    """Request of a frontend: decisions for tool calls, or a turn to start."""

    plan: Callable[[ChatSession], TurnPlan] | None = None
    """Function that returns the turn for a session, or raises ``ValidationFailed``. None if there are decisions."""
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """Decisions by confirmation ID."""
    withdraws: bool = False
    """Whether a new message stops a running turn that waits for a decision. Otherwise the session is then busy."""


@dataclass(frozen=True, slots=True)
class FrontendRun:
    """Run to stream. The stream begins with the event that follows event number ``after``."""

    run: Run
    pending: Callable[[], Collection[str]]
    """Function that returns the IDs of the session's confirmations that wait for a decision."""
    after: int = 0


@dataclass(frozen=True)
class FrontendRuns:
    """Service that starts and continues runs for clients of frontend protocols."""

    runs: RunRegistry
    sessions: SessionService
    approvals: ApprovalService
    approval_timeout: float
    """Approval timeout in seconds, or 0 for no limit."""

    async def start(self, session_id: str, request: FrontendRequest) -> FrontendRun:
        """Apply the decisions of a request, or start its turn. Return the run whose events answer the request.

        Raises ``MochiError`` if a decision cannot be applied or the turn cannot start.
        """
        if request.plan is None:
            return await self._decide(session_id, request.decisions)
        if request.withdraws and self._pending(session_id):
            run = await self.runs.find(session_id)
            if run is not None and run.suspended:
                await self.runs.stop(session_id)
        plan = request.plan(await self.sessions.store.load(session_id))
        if plan.edit is not None:
            await self.sessions.edit_message(session_id, *plan.edit)
        return FrontendRun(await self.runs.start(session_id, plan.turn), partial(self._pending, session_id))

    async def running(self, session_id: str) -> FrontendRun | None:
        """Return the running turn of a session, or None. Raises ``SessionNotFound``."""
        run = await self.runs.find(session_id)
        return FrontendRun(run, partial(self._pending, session_id)) if run is not None and run.running else None

    def _pending(self, session_id: str) -> set[str]:
        return {call.confirmation_id for call in self.approvals.broker.pending(session_id)}

    async def _decide(self, session_id: str, decisions: Mapping[str, Decision]) -> FrontendRun:
        """Apply decisions for tool calls. The stream begins after the event that requested the last of them.

        Decisions about calls that already have one or have timed out are ignored, so a client can repeat the request.
        """
        run = await self.runs.find(session_id)
        positions = {} if run is None else run.log.confirmations
        pending = self._pending(session_id)
        # Unknown IDs come first, so that the request fails before it applies a decision.
        for confirmation_id in sorted(decisions, key=lambda each: each in pending):
            if confirmation_id not in positions or confirmation_id in pending:
                await self.approvals.decide(session_id, confirmation_id, decisions[confirmation_id])
        if run is None:
            raise errors.ConfirmationNotFound(next(iter(decisions)))
        after = max(positions.get(confirmation_id, run.log.last) for confirmation_id in decisions)
        return FrontendRun(run, partial(self._pending, session_id), after)
