"""Toolboxes: what a model may call in a turn, and the policy under which it runs.

A toolbox knows no session, store or wire format.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

import orjson

from mochi_server.errors import ConfirmationTimeout, ToolExecutionDenied, ToolExecutionFailed, ToolNotFound
from mochi_server.events import Publish, ToolCalled, ToolConfirmationRequired, ToolResult
from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.schema import InvalidArguments

DecidedBy = Literal["policy", "user", "timeout"]


@dataclass(slots=True)
class CallProgress:
    """Progress of a call. It decides what is stored when the turn ends before the call does."""

    decided_by: DecidedBy = "policy"
    running: "ToolInvocation | None" = None
    """The call as it runs, with the arguments that the user may have edited; None before it starts."""


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """One tool call of a model. ``index`` counts the calls of a turn."""

    index: int
    id: str
    name: str
    arguments: dict[str, Any]
    defect: str | None = None
    """The fault of a call that the model wrote badly."""
    progress: CallProgress = field(default_factory=CallProgress, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How a call ended. ``content`` is the text for the model; ``execution_time`` is in seconds."""

    call: ToolInvocation
    content: str
    success: bool
    error_code: str | None = None
    execution_time: float = 0.0
    decided_by: DecidedBy = "policy"
    has_own_events: bool = False
    """Whether other events have shown the outcome to clients, so that it needs no ``tool_result``."""
    result: str | None = None
    """The result of the tool, where ``content`` says more than that."""
    handed_back: bool = False
    """Whether the client runs the call: it has no result yet, and the turn ends."""

    def event(self) -> ToolResult:
        """Return the ``tool_result`` event."""
        return ToolResult(
            tool_name=self.call.name,
            success=self.success,
            result=(self.content if self.result is None else self.result) if self.success else None,
            error_message=None if self.success else self.content,
            error_code=self.error_code,
            call_index=self.call.index,
        )

    def executed(self) -> dict[str, Any]:
        """Return the entry of ``tool_calls_executed``; ``execution_time`` is in seconds."""
        return asdict(self.event()) | {"arguments": self.call.arguments, "execution_time": self.execution_time}


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call with its tool and its validated arguments, or with the outcome of a call that cannot run."""

    call: ToolInvocation
    tool: Tool | None = None
    arguments: inspect.BoundArguments | None = None
    refusal: ToolOutcome | None = None

    @classmethod
    def of(cls, call: ToolInvocation, tool: Tool) -> "BoundCall":
        """Validate the arguments of a call against the signature of its tool."""
        if call.defect is not None:
            return cls(call, tool, refusal=failed(call, call.defect))
        try:
            return cls(call, tool, tool.schema.check(call.arguments))
        except InvalidArguments as wrong:
            return cls(call, tool, refusal=failed(call, f"Wrong arguments for {call.name}: {wrong}"))


class Toolbox(Protocol):
    """Set of tools offered to a model."""

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as Ollama takes them; empty when there are none."""
        ...

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        """Run a call and publish the events that show it. Faults of the model, the user or the tool never raise."""
        ...


class JoinedToolbox:
    """Several toolboxes as one. Of tools with the same name the first one is used; others cannot be called."""

    def __init__(self, *toolboxes: Toolbox) -> None:
        self._toolboxes = toolboxes

    def schemas(self) -> list[dict[str, Any]]:
        named: dict[str, dict[str, Any]] = {}
        for toolbox in self._toolboxes:
            named = {schema["function"]["name"]: schema for schema in toolbox.schemas()} | named
        return list(named.values())

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        """Run a call. The last toolbox refuses a name that none of them offers."""
        offering = (t for t in self._toolboxes if any(s["function"]["name"] == call.name for s in t.schemas()))
        return await next(offering, self._toolboxes[-1]).run(call, publish)


class ClientToolbox:
    """Tools that the client runs: their calls are handed back to it. ``schemas`` are as Ollama takes them."""

    def __init__(self, schemas: Sequence[dict[str, Any]]) -> None:
        self._schemas = list(schemas)

    def schemas(self) -> list[dict[str, Any]]:
        return self._schemas

    async def run(self, call: ToolInvocation, _: Publish) -> ToolOutcome:
        return ToolOutcome(call, content="", success=True, handed_back=True)


class ClosedToolbox:
    """No tools: each call is refused."""

    def schemas(self) -> list[dict[str, Any]]:
        return []

    async def run(self, call: ToolInvocation, _: Publish) -> ToolOutcome:
        return failed(call, "No tools may be called now.", ToolNotFound.code)


@dataclass
class FunctionToolbox:
    """Functions. ``current`` returns those that are enabled now."""

    tools: Mapping[str, Tool]
    execution: ToolExecutionService
    current: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None

    def schemas(self) -> list[dict[str, Any]]:
        return [tool.schema.definition() for tool in self.tools.values()]

    async def bind(self, call: ToolInvocation) -> BoundCall:
        """Look the tool of a call up among those that are enabled now, and validate the arguments."""
        await self._refresh()
        if (tool := self.tools.get(call.name)) is not None:
            return BoundCall.of(call, tool)
        known = ", ".join(self.tools) or "none"
        refusal = failed(call, f"There is no tool named {call.name!r}; there are: {known}.", ToolNotFound.code)
        return BoundCall(call, refusal=refusal)

    async def is_current(self, bound: BoundCall) -> bool:
        """Return whether the tool of a call is still enabled and the same."""
        await self._refresh()
        return bound.tool is not None and self.tools.get(bound.call.name) is bound.tool

    async def execute(self, bound: BoundCall) -> ToolOutcome:
        """Run a validated call; return the refusal of one that cannot run."""
        call = bound.call
        if bound.refusal is not None or bound.tool is None or bound.arguments is None:
            return bound.refusal or failed(call, "The call cannot run.")
        call.progress.running = call
        result = await self.execution.execute_bound(bound.tool, bound.arguments)
        return ToolOutcome(
            call,
            content=result.result if result.success and result.result is not None else str(result.error_message),
            success=result.success,
            error_code=None if result.success else ToolExecutionFailed.code,
            execution_time=result.execution_time,
        )

    async def _refresh(self) -> None:
        if self.current is not None:
            self.tools = await self.current()


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a call. ``arguments`` are edited ones; ``reason`` is passed to the model."""

    approved: bool
    arguments: dict[str, Any] | None = None
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


class PendingApproval(Protocol):
    """A call that waits for a decision."""

    confirmation_id: str
    bound: BoundCall
    """The call to run, with the arguments that the user may have edited."""

    async def decision(self) -> Decision | None:
        """Wait for the decision; None after the timeout."""
        ...

    def close(self) -> None:
        """Stop waiting for the decision."""
        ...


class Approver(Protocol):
    """Decides which calls need approval, and obtains it."""

    def request(self, bound: BoundCall) -> PendingApproval | None:
        """Request approval of a call; None when no client can decide."""
        ...

    async def requires_approval(self, tool: Tool) -> bool:
        """Return whether a call of this tool needs approval by the current settings."""
        ...

    async def approve_for_session(self, tool: Tool) -> None:
        """Approve a tool for the rest of the session."""
        ...


def needs_approval(policy: ToolExecutionPolicy, tool: Tool) -> bool:
    """Return whether a policy requires approval for a tool."""
    return policy is ToolExecutionPolicy.ALWAYS_CONFIRM or (
        policy is ToolExecutionPolicy.CONFIRM_DESTRUCTIVE and tool.destructive
    )


@dataclass
class ConfirmingToolbox:
    """Tools under a policy: each call runs at once or waits for approval.

    Tools, policy and approvals are read before each call, so a change applies to the next call of the same turn.
    """

    tools: FunctionToolbox
    approver: Approver

    def schemas(self) -> list[dict[str, Any]]:
        return self.tools.schemas()

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        bound = await self.tools.bind(call)
        if bound.refusal is not None or bound.tool is None or not await self.approver.requires_approval(bound.tool):
            publish([ToolCalled(call.name, call.arguments, call.index)])
            return await self.tools.execute(bound)
        pending = self.approver.request(bound)
        if pending is None:
            return failed(call, _NOT_INTERACTIVE, ToolExecutionDenied.code)
        try:
            publish([ToolConfirmationRequired(call.name, call.arguments, call.index, pending.confirmation_id)])
            decision = await pending.decision()
        finally:
            pending.close()
        if decision is None:
            return failed(call, _TIMED_OUT, ConfirmationTimeout.code, "timeout")
        if not decision.approved:
            reason = f" Reason: {decision.reason}" if decision.reason else ""
            return failed(call, f"The user did not approve of this call.{reason}", ToolExecutionDenied.code, "user")
        return await self._run_approved(pending.bound, decision, edited=pending.bound.call != call)

    async def _run_approved(self, bound: BoundCall, decision: Decision, *, edited: bool) -> ToolOutcome:
        if not await self.tools.is_current(bound):  # the settings or the file changed while the call waited
            bound = await self.tools.bind(bound.call)
        if decision.remember == "session" and bound.tool is not None:
            await self.approver.approve_for_session(bound.tool)
        outcome = await self.tools.execute(bound)
        notes = []
        if edited:
            notes.append(f"The user changed the arguments to {orjson.dumps(decision.arguments).decode()}.")
        if decision.reason:
            notes.append(f"The user said: {decision.reason}")
        content = "\n".join([*notes, outcome.content])
        return replace(outcome, decided_by="user", content=content, result=outcome.content)


def failed(
    call: ToolInvocation, content: str, error_code: str = ToolExecutionFailed.code, decided_by: DecidedBy = "policy"
) -> ToolOutcome:
    """Return the outcome of a call that did not run, or failed."""
    return ToolOutcome(call, content, success=False, error_code=error_code, decided_by=decided_by)


_NOT_INTERACTIVE = (
    "This call needs the user's approval, and this request cannot ask the user: it was denied. To decide about such "
    "calls, stream the answer from /api/v1/chat/{session_id}/stream, or send wait_for_confirmation to "
    "/api/v1/chat/{session_id}."
)
_TIMED_OUT = "The user did not decide about this call in time: it was denied."
