"""Approval of tool calls by clients."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from mochi_server import errors
from mochi_server.chat.conversation import Conversation
from mochi_server.sessions.caller import CALLER, current_owner
from mochi_server.sessions.store import SessionStore, approve_tool
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import InvalidArguments
from mochi_server.tools.toolbox import BoundCall, Decision, needs_approval

_MAX_ENDED = 1000

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Confirmation:
    session_id: str
    bound: BoundCall  # the call to run; the client's decision may replace its arguments
    agent_name: str | None = None
    owner: str | None = field(default_factory=current_owner)  # of the session
    confirmation_id: str = field(default_factory=lambda: f"conf_{uuid4().hex[:10]}")
    decision: "asyncio.Future[Decision]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Decision of the client. The future is cancelled if the timeout passes first."""

    def to_dict(self) -> dict[str, Any]:
        call = self.bound.call
        return {
            "confirmation_id": self.confirmation_id,
            "tool_name": call.name,
            "arguments": call.arguments,
            "call_index": call.index,
            "agent_name": self.agent_name,
        }

    async def bind(self, decision: Decision) -> BoundCall:
        """Return the call to run, with any arguments that the user edited. Raises ``ValidationFailed``."""
        if not decision.approved or decision.arguments is None:
            return self.bound
        call = replace(self.bound.call, arguments=decision.arguments)
        try:
            return replace(self.bound, call=call, arguments=await call.bind(self.bound.tool.schema))
        except InvalidArguments as error:
            raise errors.ValidationFailed(f"The edited arguments are invalid: {error}") from error


class ApprovalService:
    """Registry of approval requests. ``timeout`` is the approval timeout in seconds, or 0 for no timeout."""

    def __init__(self, store: SessionStore, *, timeout: float) -> None:
        self._store = store
        self._timeout = timeout or None
        self._waiting: dict[str, Confirmation] = {}
        self._ended: dict[str, Confirmation] = {}  # requests that were decided or timed out

    def pending(self, session_id: str) -> list[Confirmation]:
        """Return the session's requests that wait for a decision, oldest first."""
        return [c for c in self._waiting.values() if c.session_id == session_id and not c.decision.done()]

    async def confirmations(self, session_id: str) -> list[dict[str, Any]]:
        """Return the approval requests of a session as JSON objects. Raises ``SessionNotFound``."""
        interrupted = await self._interrupted(session_id)
        waiting = [{**c.to_dict(), "state": "waiting"} for c in self.pending(session_id)]
        return waiting + ([{**interrupted, "state": "interrupted"}] if interrupted else [])

    def add(self, confirmation: Confirmation) -> None:
        self._waiting[confirmation.confirmation_id] = confirmation

    async def wait_for_decision(self, confirmation: Confirmation) -> Decision | None:
        """Wait for the client's decision. Return None if the timeout passes first."""
        await asyncio.wait([confirmation.decision], timeout=self._timeout)
        return None if confirmation.decision.cancel() else confirmation.decision.result()

    async def decide(self, session_id: str, confirmation_id: str, decision: Decision) -> Confirmation:
        """Apply the client's decision to the request with this ID, and return the request.

        Raises ``SessionNotFound``, ``ConfirmationNotFound``, ``ConfirmationInterrupted`` after a restart of the server,
        ``ConfirmationResolved`` and ``ConfirmationTimeout``. After ``ValidationFailed``, the call stays pending.
        """
        try:
            bound = await self._undecided(session_id, confirmation_id).bind(decision)
            confirmation = self._undecided(session_id, confirmation_id)  # meanwhile, it may have been decided or ended
        except errors.ConfirmationNotFound:
            interrupted = await self._interrupted(session_id)
            if interrupted and interrupted["confirmation_id"] == confirmation_id:
                raise errors.ConfirmationInterrupted(confirmation_id) from None
            raise
        confirmation.bound = bound
        bound.call.progress.decided_by = "user"
        confirmation.decision.set_result(decision)
        return confirmation

    def close(self, confirmation: Confirmation) -> None:
        self._waiting.pop(confirmation.confirmation_id, None)
        if confirmation.decision.done():
            self._ended[confirmation.confirmation_id] = confirmation
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def _undecided(self, session_id: str, confirmation_id: str) -> Confirmation:
        confirmation = self._waiting.get(confirmation_id) or self._ended.get(confirmation_id)
        if confirmation is None or confirmation.session_id != session_id or not CALLER.get().sees(confirmation.owner):
            raise errors.ConfirmationNotFound(confirmation_id)
        if confirmation.decision.cancelled():
            raise errors.ConfirmationTimeout(confirmation_id)
        if confirmation.decision.done():
            raise errors.ConfirmationResolved(confirmation_id)
        return confirmation

    async def _interrupted(self, session_id: str) -> dict[str, Any] | None:
        stored = (await self._store.load(session_id)).metadata.pending_approval
        is_known = stored is None or stored["confirmation_id"] in self._waiting.keys() | self._ended.keys()
        return None if is_known else stored


@dataclass
class SessionApprover:
    """Approver of the tool calls in one turn. Its approvals are valid only for the agent ``agent_name``, if any."""

    approvals: ApprovalService
    conversation: Conversation
    interactive: bool
    agent_name: str | None = None

    async def decide(self, bound: BoundCall, announce: Callable[[str], None]) -> tuple[Decision, BoundCall] | None:
        """Return the user's decision and the call with edited arguments, or None after the timeout."""
        confirmation = Confirmation(self.conversation.session_id, bound, self.agent_name)
        self.approvals.add(confirmation)
        try:
            await self._record(confirmation.to_dict())
            announce(confirmation.confirmation_id)
            decision = await self.approvals.wait_for_decision(confirmation)  # if this is cancelled, the record remains
            await self._record(None)
        finally:
            self.approvals.close(confirmation)
        return None if decision is None else (decision, confirmation.bound)

    async def requires_approval(self, tool: Tool) -> bool:
        settings = (await self.conversation.load()).metadata.tool_settings
        return self._key(tool) not in settings.approved and needs_approval(settings.execution_policy, tool)

    async def approve_for_session(self, tool: Tool) -> None:
        await self.conversation.patch(approve_tool(self._key(tool)))

    async def _record(self, approval: dict[str, Any] | None) -> None:
        session_id = self.conversation.session_id
        try:
            await self.conversation.store.patch(session_id, {"pending_approval": approval})
        except errors.MochiError as error:  # the approval itself does not depend on the record
            logger.warning("Approval request not stored session_id=%s: %s", session_id, error.message)

    def _key(self, tool: Tool) -> str:
        return tool.approved_as if self.agent_name is None else f"{self.agent_name}/{tool.approved_as}"
