"""Toolboxes: sets of tools that a model may call in a turn, with their approval policy."""

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

import orjson

from mochi_server.constants import DENIED, MAX_ARGUMENT_LEVELS, MAX_ARGUMENT_VALUES
from mochi_server.errors import (
    ConfirmationTimeout,
    ToolExecutionDenied,
    ToolExecutionFailed,
    ToolNotFound,
)
from mochi_server.events import (
    Publish,
    ToolCalled,
    ToolConfirmationRequired,
    ToolResult,
    TurnWarning,
)
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.serialization import has_more_values, is_nested_deeper
from mochi_server.sessions.turn import Decision
from mochi_server.sessions.types import Image, ToolExecutionPolicy
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.schema import TOO_DEEP, TOO_MANY, InvalidArguments, ToolSchema

NOT_AN_OBJECT = "The arguments must be a JSON object with parameter names as keys."
_NOT_INTERACTIVE = (
    "This call was denied: it needs the user's approval, and this request cannot ask the user. "
    "To approve such calls, stream the answer from /api/v1/chat/{session_id}/stream, or send "
    "wait_for_confirmation to /api/v1/chat/{session_id}."
)
_CHANGED = (
    "The tool {!r} changed while its call waited for approval. The call needs approval again."
)
_TIMED_OUT = (
    "This call was denied: the user did not decide within MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS."
)

DecidedBy = Literal["policy", "user", "timeout"]


@dataclass(slots=True)
class CallProgress:
    """Progress of a tool call.

    If the turn ends during the call, the progress determines the call's result.
    """

    is_announced: bool = False
    """Whether an event has announced the call, so that clients expect its result."""
    decided_by: DecidedBy = "policy"
    confirmation_id: str | None = None
    """ID of the latest request for the approval of the call, or None."""
    running: "ToolInvocation | None" = None
    """The running call, with any arguments that the user edited."""
    partial_output: str = ""
    """Beginning of the result if the turn ends during the call."""
    agent_name: str | None = None
    """Name of the agent that the call runs, or None."""
    agent_session_id: str | None = None
    """ID of the agent's session, or None if the agent has not started."""
    agent_result: Any = None
    """``TurnResult`` of the agent that the call runs, or None."""


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """One tool call of a model. ``index`` is its position among the calls of the turn."""

    index: int
    id: str
    name: str
    arguments: dict[str, Any]
    defect: str | None = None  # error message for the model if the call is malformed
    raw_arguments: str | None = None
    """Arguments as the model has written them, if they are not an object."""
    progress: CallProgress = field(default_factory=CallProgress, compare=False, repr=False)

    @property
    def arguments_text(self) -> str:
        """Arguments as JSON, or as the model has written them if they are not an object."""
        if self.raw_arguments is not None:
            return self.raw_arguments
        return orjson.dumps(self.arguments).decode()

    def event(self) -> ToolCalled:
        return ToolCalled(self.name, self.arguments, self.index)

    def begin_agent(self, name: str, session_id: str) -> None:
        """Record that the call runs an agent in this session. Clients know that it has begun."""
        progress = self.progress
        progress.is_announced = True
        progress.running = self
        progress.agent_name = name
        progress.agent_session_id = session_id
        progress.partial_output = f"Session ID: {session_id}"

    async def bind(
        self, schema: ToolSchema, execution: ToolExecutionService
    ) -> inspect.BoundArguments:
        """Validate the arguments and return them.

        Raises ``InvalidArguments`` with an error message for the model.
        """
        if self.defect is not None:
            raise InvalidArguments(self.defect)
        try:
            if is_nested_deeper(self.arguments, MAX_ARGUMENT_LEVELS):
                raise InvalidArguments(TOO_DEEP)
            if has_more_values(self.arguments, MAX_ARGUMENT_VALUES):
                raise InvalidArguments(TOO_MANY)
            return await execution.bind(schema, self.arguments)
        except InvalidArguments as error:
            raise InvalidArguments(f"Wrong arguments for {self.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """Outcome of a tool call.

    ``content`` is the text for the model; ``execution_time`` is in seconds.
    """

    call: ToolInvocation
    content: str
    success: bool
    error_code: str | None = None
    execution_time: float = 0.0
    decided_by: DecidedBy = "policy"
    has_own_events: bool = False  # whether other events already reported the outcome
    result: str | None = None  # result of the tool if ``content`` may contain more than the result
    images: tuple[Image, ...] = ()  # images of the result, for models that can see
    is_interrupted: bool = False  # whether the turn ended, or the server stopped, before the result

    def event(self) -> ToolResult:
        result = self.content if self.result is None else self.result
        return ToolResult(
            tool_name=self.call.name,
            success=self.success,
            result=result if self.success else None,
            error_message=None if self.success else self.content,
            error_code=self.error_code,
            call_index=self.call.index,
        )

    def executed(self) -> dict[str, Any]:
        """Return the outcome as an entry of the response field ``tool_calls_executed``."""
        return asdict(self.event()) | {
            "arguments": self.call.arguments,
            "execution_time": self.execution_time,
        }


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A tool call with its tool and validated arguments."""

    call: ToolInvocation
    tool: Tool
    arguments: inspect.BoundArguments


class Toolbox(Protocol):
    """Set of tools offered to a model, with schemas in Ollama's format."""

    def schemas(self) -> list[dict[str, Any]]: ...

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        """Run a tool call, publish the events until its result, and return its outcome.

        The caller publishes the result unless the outcome has its own events. Failed and denied
        calls do not raise.
        """


def name_of(schema: Mapping[str, Any]) -> str:
    """Return the name of a tool in Ollama's format."""
    name: str = schema["function"]["name"]
    return name


class JoinedToolbox:
    """Several toolboxes combined into one.

    If tools have the same name, only the first can be called.
    """

    def __init__(self, *toolboxes: Toolbox) -> None:
        self._toolboxes = toolboxes

    def schemas(self) -> list[dict[str, Any]]:
        named: dict[str, dict[str, Any]] = {}
        # In reverse, so that the first of several tools with the same name replaces the others.
        for toolbox in reversed(self._toolboxes):
            for schema in toolbox.schemas():
                named[name_of(schema)] = schema
        return list(named.values())

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        """Run a call in the first toolbox that contains its tool.

        The last toolbox refuses unknown names.
        """
        for toolbox in self._toolboxes:
            names = map(name_of, toolbox.schemas())
            if call.name in names:
                return await toolbox.run(call, publish)
        return await self._toolboxes[-1].run(call, publish)


@dataclass(frozen=True)
class LimitedToolbox:
    """Toolbox that offers only the tools ``names`` of another toolbox."""

    toolbox: Toolbox
    names: Collection[str]

    def schemas(self) -> list[dict[str, Any]]:
        return [schema for schema in self.toolbox.schemas() if name_of(schema) in self.names]

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        if call.name in self.names:
            return await self.toolbox.run(call, publish)
        text = "No tools may be called now. Answer without tools."
        if self.names:
            text = f"Only these tools may be called now: {', '.join(sorted(self.names))}."
        return failed(call, text, ToolNotFound.code)


@dataclass(frozen=True)
class ClientToolbox:
    """Toolbox of tools that the client runs after the turn. ``tools`` are in Ollama's format."""

    tools: Sequence[dict[str, Any]]

    def schemas(self) -> list[dict[str, Any]]:
        return list(self.tools)

    async def run(self, call: ToolInvocation, _: Publish) -> ToolOutcome:
        """Refuse a malformed call. The client runs all others."""
        return failed(call, call.defect or NOT_AN_OBJECT)


FindTool = Callable[[str], Awaitable[Tool | None]]


class Approver:
    """Base class of approvers, which decide which calls need approval.

    Its methods suit turns without a user. A subclass must define ``requires_approval``.
    """

    interactive: bool = False  # whether a client can decide on calls

    async def requires_approval(self, tool: Tool, call: ToolInvocation) -> bool:
        raise NotImplementedError

    async def approve_for_session(self, tool: Tool) -> None:
        """Approve all later calls of a tool in the session."""

    async def starting(self, bound: BoundCall) -> None:
        """Store that a call is about to run, so that it does not run twice."""

    async def obtain_decision(
        self, bound: BoundCall, announce: Callable[[str], None], find: FindTool
    ) -> tuple[Decision, BoundCall] | None:
        """Announce the ID of a request, and return the decision and the edited call, or None after
        the timeout.

        ``find`` returns the tool that has a name now.
        """


def needs_approval(policy: ToolExecutionPolicy, tool: Tool, *, is_remembered: bool = False) -> bool:
    """Return whether a call of ``tool`` needs approval.

    The policy of the caller's permissions always applies. The ``policy`` does not apply if the
    approval ``is_remembered``: the user has approved the tool for the session.
    """
    if _requires_approval(CALLER.get().permissions.policy, tool):
        return True
    return not is_remembered and _requires_approval(policy, tool)


def _requires_approval(policy: ToolExecutionPolicy, tool: Tool) -> bool:
    if policy is ToolExecutionPolicy.CONFIRM_DESTRUCTIVE:
        return tool.destructive
    return policy is ToolExecutionPolicy.ALWAYS_CONFIRM


@dataclass
class FunctionToolbox:
    """Toolbox of functions with an approval policy.

    Tools, policy and approvals are read again before each call.
    """

    tools: Mapping[str, Tool]
    execution: ToolExecutionService
    approver: Approver
    current: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None
    """Function that returns the tools that are enabled now."""
    publishes_approved: bool = False
    """Whether ``run`` publishes ``ToolCalled`` also for a call that the user approved."""

    def schemas(self) -> list[dict[str, Any]]:
        return [tool.schema.definition() for tool in self.tools.values()]

    async def run(self, call: ToolInvocation, publish: Publish) -> ToolOutcome:
        bound = await self._bind(call, await self._find(call.name))
        if isinstance(bound, BoundCall) and await self.approver.requires_approval(bound.tool, call):
            if not self.approver.interactive:
                return failed(call, _NOT_INTERACTIVE, ToolExecutionDenied.code)
            return await self._run_approved(bound, publish)
        call.progress.is_announced = True
        publish([call.event()])
        return await self._execute(bound)

    async def _run_approved(self, bound: BoundCall, publish: Publish) -> ToolOutcome:
        """Request approval of a call and run it.

        If its tool changes meanwhile, request approval again.
        """
        call = bound.call
        while True:
            announce = partial(_announce, bound.call, publish)
            decided = await self.approver.obtain_decision(bound, announce, self._find)
            if decided is None:
                return failed(call, _TIMED_OUT, ConfirmationTimeout.code, "timeout")
            decision, approved = decided
            if not decision.approved:
                return denied(call, decision.reason)
            # Settings, files or the tools of an MCP server may have changed while the call was
            # pending.
            tool = await self._find(call.name)
            current = approved if tool is approved.tool else await self._bind(approved.call, tool)
            has_changed = tool is not None and tool.identity != approved.tool.identity
            if not has_changed:
                break
            if isinstance(current, ToolOutcome):
                return replace(current, decided_by="user")
            publish([changed_warning(call.name)])
            bound = current
        if tool is not None and decision.remember == "session":
            await self.approver.approve_for_session(tool)
        if self.publishes_approved:
            publish([approved.call.event()])
        outcome = await self._execute(current)
        return _with_notes(outcome, decision, is_edited=approved.call != call)

    async def _find(self, name: str) -> Tool | None:
        """Read the tools again and return the tool with this name, or None."""
        if self.current is not None:
            self.tools = await self.current()
        return self.tools.get(name)

    async def _bind(self, call: ToolInvocation, tool: Tool | None) -> BoundCall | ToolOutcome:
        """Return a call that can run, or the outcome of a call that cannot."""
        if tool is None:
            names = ", ".join(self.tools) or "none"
            text = f"There is no tool named {call.name!r}. Available tools: {names}."
            return failed(call, text, ToolNotFound.code, call.progress.decided_by)
        try:
            return BoundCall(call, tool, await call.bind(tool.schema, self.execution))
        except InvalidArguments as error:
            return failed(call, str(error), decided_by=call.progress.decided_by)

    async def _execute(self, bound: BoundCall | ToolOutcome) -> ToolOutcome:
        """Run the result of ``_bind`` if it is a call, and return the outcome."""
        if isinstance(bound, ToolOutcome):
            return bound
        await self.approver.starting(bound)
        bound.call.progress.running = bound.call
        result = await self.execution.execute_bound(bound.tool, bound.arguments)
        content = result.result if result.success else result.error_message
        return ToolOutcome(
            bound.call,
            content=str(content),
            success=result.success,
            error_code=None if result.success else ToolExecutionFailed.code,
            execution_time=result.execution_time,
            images=result.images,
        )


def _with_notes(outcome: ToolOutcome, decision: Decision, *, is_edited: bool) -> ToolOutcome:
    """Return the outcome of an approved call, with notes for the model about the decision."""
    notes = []
    if is_edited:
        arguments = orjson.dumps(outcome.call.arguments).decode()
        notes.append(f"The user changed the arguments to {arguments}.")
    if decision.reason:
        notes.append(f"Comment of the user: {decision.reason}")
    content = "\n".join([*notes, outcome.content])
    return replace(outcome, decided_by="user", content=content, result=outcome.content)


def changed_warning(name: str) -> TurnWarning:
    """Return the warning that the tool ``name`` has changed while a call of it waited for
    approval.
    """
    return TurnWarning("TOOL_CHANGED", _CHANGED.format(name))


def _announce(call: ToolInvocation, publish: Publish, confirmation_id: str) -> None:
    call.progress.is_announced = True
    call.progress.decided_by = "policy"
    call.progress.confirmation_id = confirmation_id
    request = ToolConfirmationRequired(
        tool_name=call.name,
        arguments=call.arguments,
        call_index=call.index,
        confirmation_id=confirmation_id,
    )
    publish([request])


def failed(
    call: ToolInvocation,
    content: str,
    error_code: str = ToolExecutionFailed.code,
    decided_by: DecidedBy = "policy",
) -> ToolOutcome:
    """Return the outcome of a call that failed or did not run."""
    return ToolOutcome(call, content, success=False, error_code=error_code, decided_by=decided_by)


def denied(call: ToolInvocation, reason: str | None = None) -> ToolOutcome:
    """Return the outcome of a call that the user has denied."""
    content = f"{DENIED} Reason: {reason}" if reason else DENIED
    return failed(call, content, ToolExecutionDenied.code, "user")
