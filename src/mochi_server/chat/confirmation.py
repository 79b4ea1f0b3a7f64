"""Calls that wait for approval: put, listed, decided about once, given up in time."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import anyio

from mochi_server.errors import ConfirmationNotFound, ConfirmationResolved, ConfirmationTimeout, ValidationFailed
from mochi_server.sessions.changes import approving
from mochi_server.sessions.store import SessionStore
from mochi_server.tools.discovery import Tool
from mochi_server.tools.schema import WrongArguments
from mochi_server.tools.toolbox import Call, Decision, needs_approval

_ENDED_KEPT = 1000

State = Literal["waiting", "decided", "timed_out"]


@dataclass(eq=False)
class Confirmation:
    """One call that waits, or has waited."""

    session_id: str
    call: Call
    check: Callable[[dict[str, Any]], None]
    timeout: float
    ended: "Callable[[Confirmation], None]"
    agent_name: str | None = None
    confirmation_id: str = field(default_factory=lambda: f"conf_{uuid4().hex[:10]}")
    state: State = "waiting"
    _decided: "asyncio.Future[Decision]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def decision(self) -> Decision | None:
        """What was decided; None when nobody did in time."""
        with anyio.move_on_after(self.timeout):
            return await asyncio.shield(self._decided)
        # A decision that came with the last tick counts.
        if self._decided.done():
            return self._decided.result()
        self.state = "timed_out"
        return None

    def close(self) -> None:
        """Nobody waits any more; whoever asked calls this, however it ended."""
        self.ended(self)

    def decide(self, decision: Decision) -> None:
        """Settle it; the caller has made sure that it waits."""
        self.state = "decided"
        self.call.progress.decided_by = "user"
        self._decided.set_result(decision)


class ConfirmationBroker:
    """All confirmations of this process. ``timeout`` is in seconds."""

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout
        self._waiting: dict[str, Confirmation] = {}
        self._ended: OrderedDict[str, Confirmation] = OrderedDict()

    def open(
        self, session_id: str, call: Call, check: Callable[[dict[str, Any]], None], agent_name: str | None = None
    ) -> Confirmation:
        """Put a call to whoever may use the session."""
        confirmation = Confirmation(session_id, call, check, self._timeout, self._close, agent_name)
        self._waiting[confirmation.confirmation_id] = confirmation
        return confirmation

    def waiting(self, session_id: str) -> list[Confirmation]:
        """The session's calls that wait, oldest first."""
        return [c for c in self._waiting.values() if c.session_id == session_id and c.state == "waiting"]

    def resolve(self, session_id: str, confirmation_id: str, decision: Decision) -> Confirmation:
        """Decide about a call; of several who do, one wins.

        Raises ``ConfirmationNotFound``, ``ConfirmationResolved``, ``ConfirmationTimeout``, and
        ``ValidationFailed`` for edited arguments that do not fit, in which case the call goes on waiting.
        """
        confirmation = self._waiting.get(confirmation_id) or self._ended.get(confirmation_id)
        if confirmation is None or confirmation.session_id != session_id:
            raise ConfirmationNotFound(confirmation_id)
        if confirmation.state == "decided":
            raise ConfirmationResolved(confirmation_id)
        if confirmation.state == "timed_out":
            raise ConfirmationTimeout(confirmation_id)
        if decision.approved and decision.arguments is not None:
            _check(confirmation, decision.arguments)
        confirmation.decide(decision)
        return confirmation

    def _close(self, confirmation: Confirmation) -> None:
        """Nobody waits any more. Ended ones are remembered for a while, abandoned ones are not."""
        self._waiting.pop(confirmation.confirmation_id, None)
        if confirmation.state != "waiting":
            self._ended[confirmation.confirmation_id] = confirmation
            if len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)


@dataclass
class SessionApprover:
    """Whoever may use a session, asked through the broker; nobody, when the turn's client cannot be asked.

    What is approved of for an agent is approved of for that agent alone: its tools may have the names of others.
    """

    broker: ConfirmationBroker
    session_id: str
    interactive: bool
    store: SessionStore
    agent_name: str | None = None

    def ask(self, call: Call, check: Callable[[dict[str, Any]], None]) -> Confirmation | None:
        return self.broker.open(self.session_id, call, check, self.agent_name) if self.interactive else None

    async def must_ask(self, tool: Tool) -> bool:
        settings = (await self.store.load(self.session_id)).metadata.tool_settings
        return self._key(tool) not in settings.approved and needs_approval(settings.execution_policy, tool)

    async def remember(self, tool: Tool) -> None:
        await self.store.patch(self.session_id, approving(self._key(tool)))

    def _key(self, tool: Tool) -> str:
        return tool.approved_as if self.agent_name is None else f"{self.agent_name}/{tool.approved_as}"


def _check(confirmation: Confirmation, arguments: dict[str, Any]) -> None:
    try:
        confirmation.check(arguments)
    except WrongArguments as wrong:
        raise ValidationFailed(f"The edited arguments do not fit: {wrong}") from wrong
