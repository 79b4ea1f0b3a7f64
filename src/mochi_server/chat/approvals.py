"""Approval of tool calls by clients."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from inspect import BoundArguments

import orjson

from mochi_server import errors
from mochi_server.chat.event_log import EventLog
from mochi_server.chat.turn_control import ApprovalRequest, TurnControl, TurnSuspended
from mochi_server.chat.writer import TurnWriter
from mochi_server.sessions.audit import audit
from mochi_server.sessions.store import approve_tool
from mochi_server.sessions.turn import AgentCall, Approval, Decision, StoredTurn
from mochi_server.sessions.types import Message
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.schema import InvalidArguments
from mochi_server.tools.toolbox import (
    Approver,
    BoundCall,
    FindTool,
    ToolInvocation,
    needs_approval,
)
from mochi_server.util.clock import new_id

_MAX_ENDED = 1000
_CLOCK_SECONDS = 5.0
"""Interval at which a wait compares its deadline with the clock, which a person can set."""


def new_confirmation_id(run_id: str) -> str:
    return f"conf_{run_id}_{new_id()}"


def requesting_run(confirmation_id: str) -> str:
    """Return the ID of the run that has requested an approval."""
    return confirmation_id.removeprefix("conf_").partition("_")[0]


def stored_error(
    turn: StoredTurn | None, messages: Sequence[Message], confirmation_id: str
) -> type[errors.MochiError]:
    """Return the error class for a late decision, on a request that no longer waits.

    The latest turn of the session and ``messages``, also those of replaced answers, show what
    became of the request.
    """
    approval = None if turn is None else turn.approval
    if approval is not None and approval.decision is None and confirmation_id in approval.stale_ids:
        return errors.ConfirmationStale
    for message in messages:
        if message["role"] == "tool" and message.get("confirmation_id") == confirmation_id:
            is_late = message.get("decided_by") == "timeout"
            return errors.ConfirmationTimeout if is_late else errors.ConfirmationResolved
    if turn is None or turn.was_lost or requesting_run(confirmation_id) not in turn.run_ids:
        return errors.ConfirmationNotFound
    # A turn that has ended no longer has the IDs of its requests.
    if approval is not None and confirmation_id not in approval.ids:
        return errors.ConfirmationNotFound
    return errors.ConfirmationResolved


def fingerprint(tool: Tool) -> str:
    """Return a hash of the name, schema, source and ``read_only`` of a tool."""
    return hashlib.sha256(
        orjson.dumps(tool.identity, option=orjson.OPT_SORT_KEYS, default=str)
    ).hexdigest()[:32]


def audit_decision(
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


@dataclass(eq=False, kw_only=True)
class ApprovalService:
    """Decisions on the tool calls of live turns. All times are in seconds."""

    timeout: float  # time that a call waits for a decision, or 0 for no timeout
    suspend_seconds: float = 30  # time after which a turn that waits is suspended
    execution: ToolExecutionService = field(default_factory=ToolExecutionService)
    _ended: dict[tuple[str, str], type[errors.MochiError]] = field(default_factory=dict)
    """Error class for late decisions on a request, by session ID and confirmation ID."""

    def expires_at(self) -> float | None:
        """Return the Unix time in seconds at which a request of now expires, or None for never."""
        return time.time() + self.timeout if self.timeout else None

    async def wait_for_decision(
        self, session_id: str, control: TurnControl, request: ApprovalRequest
    ) -> Decision | None:
        """Wait for the client's decision. After ``suspend_seconds``, suspend the turn.

        Return None if the timeout passes first, and refuse late decisions. Raises
        ``TurnSuspended``.
        """
        timer = asyncio.get_running_loop().call_later(self.suspend_seconds, control.suspend)
        try:
            while request.approval.is_waiting and not request.decision.done():
                expires_at = request.approval.expires_at
                left = _CLOCK_SECONDS
                if expires_at is not None:
                    left = min(left, expires_at - time.time())
                await asyncio.wait([request.decision], timeout=left)
        finally:  # also if the turn is stopped
            timer.cancel()
        if request.decision.cancel():  # there was no decision
            self.close_request(session_id, request.confirmation_id, errors.ConfirmationTimeout)
            return None
        return request.decision.result()

    async def deliver_decision(
        self, session_id: str, control: TurnControl, confirmation_id: str, decision: Decision
    ) -> ToolInvocation:
        """Apply the client's decision to the call of a live turn that waits, and return the call.

        Raises ``ConfirmationNotFound``, also if the turn is suspended or another server has taken
        its session, ``ConfirmationResolved``, ``ConfirmationTimeout``, and ``ConfirmationStale`` if
        the tool has changed. After ``ValidationFailed`` and ``StorageFailed``, the call stays
        pending.
        """
        request = self._waiting_request(session_id, control, confirmation_id)
        is_stale = decision.approved and await request.is_stale()
        bound = await self.bind_decision(request.bound, decision)
        # Meanwhile, the request may have been decided, or the turn may have ended.
        self._waiting_request(session_id, control, confirmation_id)
        request.bound = bound
        bound.call.progress.decided_by = "user"
        control.request = None
        control.decided_at = asyncio.get_running_loop().time()
        # If the tool has changed, the turn requests the approval again.
        request.decision.set_result(decision)
        if is_stale:
            self.close_request(session_id, confirmation_id, errors.ConfirmationStale)
            raise errors.ConfirmationStale(confirmation_id)
        await request.decision_settled.wait()
        if request.failure is not None:
            raise request.failure
        self.close_request(session_id, confirmation_id, errors.ConfirmationResolved)
        return bound.call

    async def bind_decision(self, bound: BoundCall, decision: Decision) -> BoundCall:
        """Return the call to run, with any arguments that the user edited.

        Raises ``ValidationFailed``.
        """
        if not decision.approved or decision.arguments is None:
            return bound
        call = replace(bound.call, arguments=decision.arguments)
        return BoundCall(call, bound.tool, await self.bind_edited(call, bound.tool))

    async def bind_edited(self, call: ToolInvocation, tool: Tool) -> BoundArguments:
        """Validate the arguments of a call that the user edited. Raises ``ValidationFailed``."""
        try:
            return await call.bind(tool.schema, self.execution)
        except InvalidArguments as error:
            raise errors.ValidationFailed(f"The edited arguments are invalid: {error}") from error

    def close_request(
        self, session_id: str, confirmation_id: str, late_error: type[errors.MochiError]
    ) -> None:
        """Refuse late decisions on a request with this class of error."""
        self._ended[session_id, confirmation_id] = late_error
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def error_of(
        self,
        session_id: str,
        confirmation_id: str,
        stored: type[errors.MochiError] = errors.ConfirmationNotFound,
    ) -> errors.MochiError:
        """Return the error for a late decision.

        ``stored`` is its class if this process has not closed the request.
        """
        return self._ended.get((session_id, confirmation_id), stored)(confirmation_id)

    def _waiting_request(
        self, session_id: str, control: TurnControl, confirmation_id: str
    ) -> ApprovalRequest:
        """Return the request of a live turn on which clients can decide, else raise the error."""
        request = control.request
        if request is None or request.confirmation_id != confirmation_id:
            raise self.error_of(session_id, confirmation_id)
        if not request.approval.is_waiting:
            raise errors.ConfirmationTimeout(confirmation_id)
        return request


@dataclass(frozen=True)
class SessionApprover(Approver):
    """Approver of the tool calls in one turn, or of those of an ``agent`` in it.

    An agent has its own approvals.

    The user's turn stores each request and decision, with ``writer``. The turn that makes the
    calls, which may be that of the agent, stores with ``own_writer`` that a call is about to run.
    """

    approvals: ApprovalService
    writer: TurnWriter
    own_writer: TurnWriter
    control: TurnControl
    log: EventLog
    interactive: bool
    agent: AgentCall | None = None

    def for_agent(self, agent: AgentCall, writer: TurnWriter) -> "SessionApprover":
        """Return the approver for an agent in this turn, which stores its messages with
        ``writer``.
        """
        return replace(self, own_writer=writer, agent=agent)

    async def obtain_decision(
        self, bound: BoundCall, announce: Callable[[str], None], find: FindTool
    ) -> tuple[Decision, BoundCall] | None:
        """Return the user's decision and the call with edited arguments, or None after the
        timeout.

        The decision may have been stored before the turn continued. Raises ``TurnSuspended``, and
        ``ValidationFailed`` if arguments in a stored decision are invalid.
        """
        stored = self._stored_approval(bound.call)
        if stored is not None:
            if stored.decision is None:
                return None
            if not stored.decision.approved or self._is_same_call(stored, bound):
                return stored.decision, await self.approvals.bind_decision(bound, stored.decision)
        stale_ids = () if stored is None else (*stored.stale_ids, stored.confirmation_id)
        return await self._request(bound, announce, find, stale_ids)

    async def _request(
        self,
        bound: BoundCall,
        announce: Callable[[str], None],
        find: FindTool,
        stale_ids: tuple[str, ...],
    ) -> tuple[Decision, BoundCall] | None:
        previous = self.writer.turn.approval
        approval = Approval(
            new_confirmation_id(self.writer.turn.run_id),
            bound.call.name,
            bound.call.arguments,
            bound.call.index,
            fingerprint(bound.tool),
            bound.tool.source,
            expires_at=self.approvals.expires_at(),
            agent=self.agent,
            stale_ids=stale_ids,
            earlier_ids=() if previous is None else previous.ids,
        )
        request = ApprovalRequest(approval, bound, find)
        session_id = self.writer.conversation.session_id
        self.control.request = request  # a client may decide as soon as the request is stored
        try:
            if self.own_writer is not self.writer:
                await self.own_writer.make_survive()
            await self.writer.store_request(approval, self.log.last)
            request.is_stored = True
            announce(approval.confirmation_id)
            decision = await self.approvals.wait_for_decision(session_id, self.control, request)
            await self._store(decision, request)
        finally:
            self.control.request = None
            request.decision_settled.set()
        return None if decision is None else (decision, request.bound)

    async def _store(self, decision: Decision | None, request: ApprovalRequest) -> None:
        """Store a decision.

        If that fails, suspend the turn, because its call waits for another decision. Also suspend
        it if another server has taken the session: then the decision is for the stored turn. The
        write finds that out, or this server does and cancels the task during the write.
        """
        try:
            await self.writer.store_decision(decision)
        except asyncio.CancelledError as error:
            if not isinstance(self.control.abort_error, errors.SessionTaken):
                raise
            request.failure = errors.ConfirmationNotFound(request.confirmation_id)
            raise TurnSuspended from error
        except errors.SessionTaken as error:
            request.failure = errors.ConfirmationNotFound(request.confirmation_id)
            raise TurnSuspended from error
        except errors.StorageFailed as error:
            request.failure = error
            raise TurnSuspended from error

    async def requires_approval(self, tool: Tool, call: ToolInvocation) -> bool:
        if self._stored_approval(call) is not None:  # `obtain_decision` returns the stored decision
            return True
        settings = (await self.writer.conversation.load()).metadata.tool_settings
        is_remembered = self._session_key(tool) in settings.approved
        return needs_approval(settings.execution_policy, tool, is_remembered=is_remembered)

    async def approve_for_session(self, tool: Tool) -> None:
        await self.writer.conversation.patch(approve_tool(self._session_key(tool)))

    async def starting(self, bound: BoundCall) -> None:
        if self.writer.turn.survives and not bound.tool.read_only:
            await self.own_writer.start_call(bound.call)

    def restore_decision(self, call: ToolInvocation) -> None:
        """Record the stored decision on a call, if any, in the progress of the call."""
        stored = self._stored_approval(call)
        if stored is None:
            return
        call.progress.is_announced = True
        call.progress.confirmation_id = stored.confirmation_id
        call.progress.decided_by = "timeout" if stored.decision is None else "user"

    def _stored_approval(self, call: ToolInvocation) -> Approval | None:
        """Return the stored request for this call if it was decided or has expired.

        A turn whose request is still open is not in the state ``running``.
        """
        turn = self.writer.turn
        stored = turn.approval
        if stored is None or turn.state != "running":
            return None
        is_for_call = stored.call_index == call.index and stored.agent == self.agent
        return stored if is_for_call else None

    def _is_same_call(self, stored: Approval, bound: BoundCall) -> bool:
        """Return whether the user has approved this call of this tool.

        The stored session, or the tool, may have been changed.
        """
        call = bound.call
        is_same = stored.tool_name == call.name and stored.arguments == call.arguments
        return is_same and stored.fingerprint == fingerprint(bound.tool)

    def _session_key(self, tool: Tool) -> str:
        """Return the key under which the session stores that it always approves a tool."""
        return tool.approved_as if self.agent is None else f"{self.agent.name}/{tool.approved_as}"
