"""Approval of tool calls by clients."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from inspect import BoundArguments
from typing import TYPE_CHECKING

from mochi_server import errors
from mochi_server.chat.parked_record import ParkedAgent, RecordWriter, TurnParked, fingerprint
from mochi_server.sessions.store import approve_tool
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import InvalidArguments
from mochi_server.tools.toolbox import Approver, BoundCall, Decision, FindTool, ToolInvocation, needs_approval
from mochi_server.util.clock import new_id

if TYPE_CHECKING:
    from mochi_server.chat.run import Run

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


@dataclass(eq=False)
class Confirmation:
    run: "Run"
    bound: BoundCall  # the call to run; the client's decision may replace its arguments
    find: FindTool  # returns the tool that has a name now
    expires_at: float | None = None  # Unix time in seconds, or None for no timeout
    decision: "asyncio.Future[Decision]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Decision of the client. The future is cancelled if the timeout passes first, and has an error if it is parked."""
    stored: asyncio.Event = field(default_factory=asyncio.Event)  # set when the decision is durable, or has a failure
    failure: errors.StorageFailed | None = None  # why the decision was not stored, so that the call waits for another

    def __post_init__(self) -> None:
        self.confirmation_id = new_confirmation_id(self.run.run_id)

    def park(self) -> None:
        """Park the turn if the call waits. The future then raises ``TurnParked``."""
        if not self.decision.done():
            self.run.is_parking = True
            self.decision.set_exception(TurnParked())

    @property
    def session_id(self) -> str:
        return self.run.session_id

    async def is_stale(self) -> bool:
        """Return whether another tool has the name of the requested tool now."""
        tool = await self.find(self.bound.call.name)
        return tool is not None and tool is not self.bound.tool and tool.identity != self.bound.tool.identity


class ApprovalService:
    """Registry of approval requests of running turns. All times are in seconds.

    ``timeout`` is the approval timeout, or 0 for no timeout. A turn is parked after it has waited for ``park_seconds``.
    """

    def __init__(self, *, timeout: float, park_seconds: float = 30) -> None:
        self.timeout = timeout or None
        self.park_seconds = park_seconds
        self.closed = False  # whether turns are parked at once, because the server stops
        self._waiting: dict[str, Confirmation] = {}
        self._ended: dict[tuple[str, str], type[errors.MochiError]] = {}
        """Errors of later decisions on the requests that were decided or timed out, by session and confirmation ID."""

    def pending(self, session_id: str) -> list[Confirmation]:
        """Return the session's requests that wait for a decision, oldest first."""
        return [c for c in self._waiting.values() if c.session_id == session_id and not c.decision.done()]

    def park(self, run: "Run") -> bool:
        """Park the turn of a run if it waits for approval. Return whether it waits."""
        pending = [confirmation for confirmation in self.pending(run.session_id) if confirmation.run is run]
        for confirmation in pending:
            confirmation.park()
        return bool(pending)

    def park_all(self) -> None:
        """Park all turns that wait for approval, also later ones, because the server stops."""
        self.closed = True
        for confirmation in self._waiting.values():
            confirmation.park()

    def add(self, confirmation: Confirmation) -> None:
        self._waiting[confirmation.confirmation_id] = confirmation

    async def wait_for_decision(self, confirmation: Confirmation) -> Decision | None:
        """Wait for the client's decision. Return None if the timeout passes first. Raises ``TurnParked``."""
        park_seconds = 0 if self.closed else self.park_seconds
        timer = asyncio.get_running_loop().call_later(park_seconds, confirmation.park)
        timeout = None if confirmation.expires_at is None else confirmation.expires_at - time.time()
        try:
            await asyncio.wait([confirmation.decision], timeout=timeout)
        finally:  # also if the turn is stopped
            timer.cancel()
        if confirmation.decision.cancel():
            self.end(confirmation.session_id, confirmation.confirmation_id, errors.ConfirmationTimeout)
            return None
        return confirmation.decision.result()

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> Confirmation:
        """Apply the client's decision to the request with this ID, and return the request.

        Raises ``ConfirmationNotFound``, also if the turn is parked, ``ConfirmationResolved``, ``ConfirmationTimeout``,
        and ``ConfirmationStale`` if the tool has changed. After ``ValidationFailed`` and ``StorageFailed``, the call
        stays pending.
        """
        confirmation = self._undecided(session_id, confirmation_id)
        is_stale = decision.approved and await confirmation.is_stale()
        bound = await bind_decision(confirmation.bound, decision)
        confirmation = self._undecided(session_id, confirmation_id)  # meanwhile, it may have been decided or ended
        confirmation.bound = bound
        bound.call.progress.decided_by = "user"
        confirmation.decision.set_result(decision)  # of a changed tool, the turn requests the approval again
        if is_stale:
            self.end(session_id, confirmation_id, errors.ConfirmationStale)
            raise errors.ConfirmationStale(confirmation_id)
        await confirmation.stored.wait()
        if confirmation.failure is not None:
            raise confirmation.failure
        self.end(session_id, confirmation_id, errors.ConfirmationResolved)
        return confirmation

    def close(self, confirmation: Confirmation) -> None:
        self._waiting.pop(confirmation.confirmation_id, None)
        confirmation.stored.set()

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

    def _undecided(self, session_id: str, confirmation_id: str) -> Confirmation:
        confirmation = self._waiting.get(confirmation_id)
        if confirmation is None or confirmation.session_id != session_id or confirmation.decision.done():
            raise self.error_of(session_id, confirmation_id)
        return confirmation


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
        timeout = self.approvals.timeout
        expires_at = None if timeout is None else time.time() + timeout
        confirmation = Confirmation(self.records.run, bound, find, expires_at)
        self.approvals.add(confirmation)  # clients see the request as soon as it is stored
        try:
            await self.records.request(confirmation.confirmation_id, bound, self.agent, expires_at)
            announce(confirmation.confirmation_id)
            decision = await self.approvals.wait_for_decision(confirmation)
            if decision is not None:
                await self._store(decision, confirmation)
        finally:
            self.approvals.close(confirmation)
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
