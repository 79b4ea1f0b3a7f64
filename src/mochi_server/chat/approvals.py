"""Approval of tool calls by clients."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from inspect import BoundArguments

from mochi_server import errors
from mochi_server.chat.parked_record import ParkedAgent, RecordWriter, fingerprint
from mochi_server.chat.run import Confirmation, Run, TurnParked
from mochi_server.sessions.store import approve_tool
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import InvalidArguments
from mochi_server.tools.toolbox import Approver, BoundCall, Decision, FindTool, ToolInvocation, needs_approval
from mochi_server.util.clock import new_id

_MAX_ENDED = 1000


def new_confirmation_id(run_id: str) -> str:
    return f"conf_{run_id}_{new_id()}"


def requesting_run(confirmation_id: str) -> str:
    """Return the ID of the run that has requested an approval."""
    return confirmation_id.removeprefix("conf_").partition("_")[0]


async def bind_decision(bound: BoundCall, decision: Decision) -> BoundCall:
    """Return the call to run, with any arguments that the user edited. Raises ``ValidationFailed``."""
    if not decision.approved or decision.arguments is None:
        return bound
    call = replace(bound.call, arguments=decision.arguments)
    return BoundCall(call, bound.tool, await bind_edited(call, bound.tool))


async def bind_edited(call: ToolInvocation, tool: Tool) -> BoundArguments:
    """Validate the arguments of a call that the user edited. Raises ``ValidationFailed``."""
    try:
        return await call.bind(tool.schema)
    except InvalidArguments as error:
        raise errors.ValidationFailed(f"The edited arguments are invalid: {error}") from error


@dataclass(eq=False, kw_only=True)
class ApprovalService:
    """Decisions on the tool calls of running turns. All times are in seconds."""

    timeout: float  # time that a call waits for a decision, or 0 for no timeout
    park_seconds: float = 30  # time after which a turn that waits is parked
    on_waiting: Callable[[Run, str], None] = lambda *_: None  # called with the confirmation ID of a call that waits
    _ended: dict[tuple[str, str], type[errors.MochiError]] = field(default_factory=dict)
    """Errors of later decisions on the requests that were decided or timed out, by session and confirmation ID."""

    async def wait_for_decision(self, run: Run, confirmation: Confirmation) -> Decision | None:
        """Wait for the client's decision. Return None if the timeout passes first. Raises ``TurnParked``."""
        timer = asyncio.get_running_loop().call_later(self.park_seconds, run.park)
        timeout = None if confirmation.expires_at is None else confirmation.expires_at - time.time()
        try:
            await asyncio.wait([confirmation.decision], timeout=timeout)
        finally:  # also if the turn is stopped
            timer.cancel()
        if confirmation.decision.cancel():
            self.end(run.session_id, confirmation.confirmation_id, errors.ConfirmationTimeout)
            return None
        return confirmation.decision.result()

    async def decide(self, run: Run, confirmation_id: str, decision: Decision) -> ToolInvocation:
        """Apply the client's decision to the call of a run that waits, and return the call.

        Raises ``ConfirmationNotFound``, also if the turn is parked, ``ConfirmationResolved``, ``ConfirmationTimeout``,
        and ``ConfirmationStale`` if the tool has changed. After ``ValidationFailed`` and ``StorageFailed``, the call
        stays pending.
        """
        confirmation = self._undecided(run, confirmation_id)
        is_stale = decision.approved and await confirmation.is_stale()
        bound = await bind_decision(confirmation.bound, decision)
        self._undecided(run, confirmation_id)  # meanwhile, it may have been decided or ended
        confirmation.bound = bound
        bound.call.progress.decided_by = "user"
        run.waiting = None
        confirmation.decision.set_result(decision)  # of a changed tool, the turn requests the approval again
        if is_stale:
            self.end(run.session_id, confirmation_id, errors.ConfirmationStale)
            raise errors.ConfirmationStale(confirmation_id)
        await confirmation.stored.wait()
        if confirmation.failure is not None:
            raise confirmation.failure
        self.end(run.session_id, confirmation_id, errors.ConfirmationResolved)
        return bound.call

    def end(self, session_id: str, confirmation_id: str, kind: type[errors.MochiError]) -> None:
        """Answer later decisions on a request with an error of class ``kind``."""
        self._ended[session_id, confirmation_id] = kind
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def error_of(self, session_id: str, confirmation_id: str, run_ids: Collection[str] = ()) -> errors.MochiError:
        """Return the error of a decision on a request that does not wait. All requests of ``run_ids`` are decided."""
        is_decided = requesting_run(confirmation_id) in run_ids
        kind = errors.ConfirmationResolved if is_decided else errors.ConfirmationNotFound
        return self._ended.get((session_id, confirmation_id), kind)(confirmation_id)

    def _undecided(self, run: Run, confirmation_id: str) -> Confirmation:
        if run.waiting is None or run.waiting.confirmation_id != confirmation_id:
            raise self.error_of(run.session_id, confirmation_id)
        return run.waiting


@dataclass
class SessionApprover(Approver):
    """Approver of the tool calls in one turn, or of those of an ``agent`` in it. An agent has its own approvals."""

    approvals: ApprovalService
    records: RecordWriter
    interactive: bool
    agent: ParkedAgent | None = None
    on_request: Callable[[], Awaitable[None]] | None = None  # called before a request is stored

    async def decide(
        self, bound: BoundCall, announce: Callable[[str], None], find: FindTool
    ) -> tuple[Decision, BoundCall] | None:
        """Return the user's decision and the call with edited arguments, or None after the timeout."""
        if (record := self.records.take_decided(bound.call, self.agent)) is not None:
            bound.call.progress.is_announced = True
            if (decision := record.decision) is None:
                return None
            if not decision.approved or fingerprint(bound.tool) == record.fingerprint:
                bound.call.progress.decided_by = "user"
                return decision, await bind_decision(bound, decision)
        if self.on_request is not None:
            await self.on_request()
        run, timeout = self.records.run, self.approvals.timeout
        expires_at = time.time() + timeout if timeout else None
        confirmation = Confirmation(new_confirmation_id(run.run_id), bound, find, expires_at)
        run.waiting = confirmation  # clients see the request as soon as it is stored
        try:
            await self.records.request(confirmation.confirmation_id, bound, self.agent, expires_at)
            announce(confirmation.confirmation_id)
            self.approvals.on_waiting(run, confirmation.confirmation_id)
            decision = await self.approvals.wait_for_decision(run, confirmation)
            if decision is not None:
                await self._store(decision, confirmation)
        finally:
            run.waiting = None
            confirmation.stored.set()
        return None if decision is None else (decision, confirmation.bound)

    async def _store(self, decision: Decision, confirmation: Confirmation) -> None:
        """Store a decision. If that fails, park the turn, because its call waits for another decision."""
        try:
            await self.records.add_decision(decision)
        except errors.StorageFailed as error:
            confirmation.failure = error
            raise TurnParked from error

    async def requires_approval(self, tool: Tool, call: ToolInvocation) -> bool:
        if self.records.decided_by(call, self.agent) != "policy":
            return True
        settings = (await self.records.conversation.load()).metadata.tool_settings
        return self._key(tool) not in settings.approved and needs_approval(settings.execution_policy, tool)

    async def approve_for_session(self, tool: Tool) -> None:
        await self.records.conversation.patch(approve_tool(self._key(tool)))

    async def starting(self, bound: BoundCall) -> None:
        await self.records.starting(bound, self.agent)

    def _key(self, tool: Tool) -> str:
        return tool.approved_as if self.agent is None else f"{self.agent.name}/{tool.approved_as}"
