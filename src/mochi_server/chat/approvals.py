"""Approval of tool calls by clients."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.errors import (
    ConfirmationInterrupted,
    ConfirmationNotFound,
    ConfirmationResolved,
    ConfirmationTimeout,
    MochiError,
    ValidationFailed,
)
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore, approve_tool
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import InvalidArguments
from mochi_server.tools.toolbox import BoundCall, Decision, ToolInvocation, needs_approval

_MAX_ENDED = 1000

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Confirmation:
    """Approval request for one tool call."""

    session_id: str
    bound: BoundCall
    """Tool call to run. The client's decision may replace the arguments of the call."""
    timeout: float | None
    """Seconds until the call is denied, or None for no limit."""
    agent_name: str | None = None
    confirmation_id: str = field(default_factory=lambda: f"conf_{uuid4().hex[:10]}")
    decision: "asyncio.Future[Decision]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Decision of the client. The future is cancelled if the timeout passes first."""

    @property
    def call(self) -> ToolInvocation:
        return self.bound.call

    async def wait_for_decision(self) -> Decision | None:
        """Wait for the client's decision. Return the decision, or None if the timeout passes first."""
        await asyncio.wait([self.decision], timeout=self.timeout)
        return None if self.decision.cancel() else self.decision.result()

    def to_dict(self) -> dict[str, Any]:
        """Return the approval request as a JSON object."""
        return {
            "confirmation_id": self.confirmation_id,
            "tool_name": self.call.name,
            "arguments": self.call.arguments,
            "call_index": self.call.index,
            "agent_name": self.agent_name,
        }

    async def bind(self, decision: Decision) -> BoundCall:
        """Return the call to run, with any arguments that the user edited.

        Raises:
            ValidationFailed: The edited arguments do not match the tool's schema.
        """
        if not decision.approved or decision.arguments is None:
            return self.bound
        call = replace(self.call, arguments=decision.arguments)
        try:
            return replace(self.bound, call=call, arguments=await call.bind(self.bound.tool.schema))
        except InvalidArguments as error:
            raise ValidationFailed(f"The edited arguments are invalid: {error}") from error

    def decide(self, decision: Decision, bound: BoundCall) -> None:
        """Apply the client's decision. ``bound`` is the result of ``bind`` for this decision."""
        self.bound = bound
        self.call.progress.decided_by = "user"
        self.decision.set_result(decision)


class ConfirmationBroker:
    """Registry of the approval requests in this process.

    ``timeout`` is the approval timeout in seconds. If it is 0, calls wait until they are decided.
    """

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout or None
        self._waiting: dict[str, Confirmation] = {}
        self._ended: dict[str, Confirmation] = {}

    def create(self, session_id: str, bound: BoundCall, agent_name: str | None = None) -> Confirmation:
        """Create a confirmation that waits for the client's decision on a tool call."""
        confirmation = Confirmation(session_id, bound, self._timeout, agent_name)
        self._waiting[confirmation.confirmation_id] = confirmation
        return confirmation

    def has(self, confirmation_id: str) -> bool:
        """Return whether this process has a waiting or recently ended confirmation with this ID."""
        return confirmation_id in self._waiting or confirmation_id in self._ended

    def pending(self, session_id: str) -> list[Confirmation]:
        """Return the session's confirmations that wait for a decision, oldest first."""
        return [c for c in self._waiting.values() if c.session_id == session_id and not c.decision.done()]

    async def resolve(self, session_id: str, confirmation_id: str, decision: Decision) -> Confirmation:
        """Apply the client's decision to the confirmation with this ID, and return the confirmation.

        Raises:
            ConfirmationNotFound: The session has no confirmation with this ID.
            ConfirmationResolved: The call already has a decision.
            ConfirmationTimeout: The approval timeout has passed.
            ValidationFailed: The edited arguments are invalid. The call stays pending.
        """
        bound = await self._undecided(session_id, confirmation_id).bind(decision)
        confirmation = self._undecided(session_id, confirmation_id)  # meanwhile, it may have been decided or ended
        confirmation.decide(decision, bound)
        return confirmation

    def _undecided(self, session_id: str, confirmation_id: str) -> Confirmation:
        confirmation = self._waiting.get(confirmation_id) or self._ended.get(confirmation_id)
        if confirmation is None or confirmation.session_id != session_id:
            raise ConfirmationNotFound(confirmation_id)
        if confirmation.decision.cancelled():
            raise ConfirmationTimeout(confirmation_id)
        if confirmation.decision.done():
            raise ConfirmationResolved(confirmation_id)
        return confirmation

    def close(self, confirmation: Confirmation) -> None:
        """Close a confirmation.

        A confirmation that was decided or timed out is retained, so that a later decision fails with
        ``ConfirmationResolved`` or ``ConfirmationTimeout``.
        """
        self._waiting.pop(confirmation.confirmation_id, None)
        if confirmation.decision.done():
            self._ended[confirmation.confirmation_id] = confirmation
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]


@dataclass(frozen=True)
class ApprovalService:
    """Service that lists approval requests and applies the decisions of clients.

    The list includes interrupted requests, which waited for a decision when the server stopped.
    """

    broker: ConfirmationBroker
    store: SessionStore

    async def confirmations(self, session_id: str) -> list[dict[str, Any]]:
        """Return the approval requests of a session as JSON objects. Raises ``SessionNotFound``."""
        interrupted = await self._interrupted(session_id)
        waiting = [{**c.to_dict(), "state": "waiting"} for c in self.broker.pending(session_id)]
        return waiting + ([{**interrupted, "state": "interrupted"}] if interrupted else [])

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> Confirmation:
        """Apply the client's decision to the confirmation with this ID, and return the confirmation.

        Raises:
            SessionNotFound: The session does not exist.
            ConfirmationInterrupted: The server stopped while the tool call waited for the decision.
            MochiError: ``ConfirmationBroker.resolve`` refused the decision.
        """
        try:
            return await self.broker.resolve(session_id, confirmation_id, decision)
        except ConfirmationNotFound:
            interrupted = await self._interrupted(session_id)
            if interrupted and interrupted["confirmation_id"] == confirmation_id:
                raise ConfirmationInterrupted(confirmation_id) from None
            raise

    async def _interrupted(self, session_id: str) -> dict[str, Any] | None:
        stored = (await self.store.load(session_id)).metadata.pending_approval
        return None if stored is None or self.broker.has(stored["confirmation_id"]) else stored


@dataclass
class SessionApprover:
    """Approver of the tool calls in one turn. If ``interactive`` is false, the turn cannot request approval.

    The approval of an agent's tool is valid for that agent only, because other agents may have tools of the same name.
    """

    broker: ConfirmationBroker
    session_id: str
    interactive: bool
    store: SessionStore
    retry: StorageRetry
    agent_name: str | None = None

    async def decide(self, bound: BoundCall, announce: Callable[[str], None]) -> tuple[Decision, BoundCall] | None:
        """Request the user's decision and wait for it. Return None if the timeout passes first.

        Otherwise, return the decision and the call to run, whose arguments the user may have edited. The session stores
        the request, so that clients can list it after a restart.
        """
        confirmation = self.broker.create(self.session_id, bound, self.agent_name)
        try:
            await self._record(confirmation.to_dict())
            announce(confirmation.confirmation_id)
            decision = await confirmation.wait_for_decision()  # if this is cancelled, the record remains
            await self._record(None)
        finally:
            self.broker.close(confirmation)
        return None if decision is None else (decision, confirmation.bound)

    async def load_session(self) -> ChatSession:
        """Load the session of the turn, whose settings may have changed."""
        return await self.retry.run(lambda: self.store.load(self.session_id))

    async def requires_approval(self, tool: Tool) -> bool:
        settings = (await self.load_session()).metadata.tool_settings
        return self._key(tool) not in settings.approved and needs_approval(settings.execution_policy, tool)

    async def approve_for_session(self, tool: Tool) -> None:
        await self.retry.run(lambda: self.store.patch(self.session_id, approve_tool(self._key(tool))))

    async def _record(self, approval: dict[str, Any] | None) -> None:
        try:
            await self.store.patch(self.session_id, {"pending_approval": approval})
        except MochiError as error:  # the approval itself does not depend on the record
            logger.warning("Approval request not stored session_id=%s: %s", self.session_id, error.message)

    def _key(self, tool: Tool) -> str:
        return tool.approved_as if self.agent_name is None else f"{self.agent_name}/{tool.approved_as}"
