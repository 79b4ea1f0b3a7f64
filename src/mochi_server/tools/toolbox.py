"""The seam between a conversation and what a model may call in it: one protocol, and what wraps what.

Knows no session, no store and no wire; who approves is somebody else's business, too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import orjson

from mochi_server.errors import ConfirmationTimeout, ToolExecutionDenied, ToolExecutionFailed, ToolNotFound
from mochi_server.events import ChatEvent, ToolCalled, ToolConfirmationRequired, ToolResult
from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.schema import WrongArguments

DecidedBy = Literal["policy", "user", "timeout"]


@dataclass(slots=True)
class Progress:
    """How far a call has come. It decides what is stored when the turn ends before the call does."""

    decided_by: DecidedBy = "policy"
    running: "Call | None" = None
    """The call as it runs, with the arguments that the user may have edited; None before it starts."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a model asked for; ``index`` counts the calls of a turn."""

    index: int
    id: str
    name: str
    arguments: dict[str, Any]
    defect: str | None = None
    """What was wrong with the call as the model wrote it."""
    progress: Progress = field(default_factory=Progress, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How a call ended. ``content`` is what the model is told; ``execution_time`` is in seconds."""

    call: Call
    content: str
    success: bool
    error_code: str | None = None
    execution_time: float = 0.0
    decided_by: DecidedBy = "policy"
    told: bool = False
    """Whether clients know already, by other events: then it has none of its own."""
    result: str | None = None
    """What the tool gave, where the model is told more than that."""
    handed_back: bool = False
    """Whether the client carries the call out: it has no result yet, and the turn ends."""

    def event(self) -> ToolResult:
        """The outcome as clients see it."""
        return ToolResult(
            tool_name=self.call.name,
            success=self.success,
            result=(self.content if self.result is None else self.result) if self.success else None,
            error_message=None if self.success else self.content,
            error_code=self.error_code,
            call_index=self.call.index,
        )

    def executed(self) -> dict[str, Any]:
        """The call and how it ended, for those who get no events; ``execution_time`` is in seconds."""
        event = self.event()
        return {
            "call_index": event.call_index,
            "tool_name": event.tool_name,
            "arguments": self.call.arguments,
            "success": event.success,
            "result": event.result,
            "error_message": event.error_message,
            "error_code": event.error_code,
            "execution_time": self.execution_time,
        }


class Toolbox(Protocol):
    """Some tools. ``run`` yields what clients should see and ends in exactly one ``ToolOutcome``."""

    def schemas(self) -> list[dict[str, Any]]:
        """The tools as Ollama takes them; empty when there are none."""
        ...

    def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        """Carry out a call. Never raises for what a model, a person or a tool does wrong."""
        ...


class JoinedToolbox:
    """Several toolboxes as one. Of tools with the same name the first one is meant; others cannot be called."""

    def __init__(self, *toolboxes: Toolbox) -> None:
        self._toolboxes = toolboxes

    def schemas(self) -> list[dict[str, Any]]:
        named: dict[str, dict[str, Any]] = {}
        for toolbox in self._toolboxes:
            named = {schema["function"]["name"]: schema for schema in toolbox.schemas()} | named
        return list(named.values())

    def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        """Carry out a call; one that nobody knows is refused by the last."""
        return next((t for t in self._toolboxes if _offers(t, call.name)), self._toolboxes[-1]).run(call)


NO_TOOLS = JoinedToolbox()
"""Nothing to call."""


def _offers(toolbox: Toolbox, name: str) -> bool:
    return any(schema["function"]["name"] == name for schema in toolbox.schemas())


class ClientToolbox:
    """Tools that the client carries out: their calls are handed back to it. ``schemas`` are as Ollama takes them."""

    def __init__(self, schemas: Sequence[dict[str, Any]]) -> None:
        self._schemas = list(schemas)

    def schemas(self) -> list[dict[str, Any]]:
        return self._schemas

    async def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        yield ToolOutcome(call, content="", success=True, handed_back=True)


class ClosedToolbox:
    """No tools: a call that a model makes all the same is refused."""

    def schemas(self) -> list[dict[str, Any]]:
        return []

    async def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        yield failed(call, "No tools may be called now.", ToolNotFound.code)


class FunctionToolbox:
    """Functions, run as they are. ``current`` returns those that are enabled now."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        execution: ToolExecutionService,
        current: Callable[[], Awaitable[Mapping[str, Tool]]] | None = None,
    ) -> None:
        self.tools = tools
        self._execution = execution
        self._current = current

    async def refresh(self) -> None:
        """Read which tools are enabled now."""
        if self._current is not None:
            self.tools = await self._current()

    def schemas(self) -> list[dict[str, Any]]:
        return [tool.schema.definition() for tool in self.tools.values()]

    def refusal(self, call: Call) -> ToolOutcome | None:
        """The outcome of a call that cannot be carried out as it is, whoever would approve of it."""
        if call.name not in self.tools:
            known = ", ".join(self.tools) or "none"
            return failed(call, f"There is no tool named {call.name!r}; there are: {known}.", ToolNotFound.code)
        if call.defect is not None:
            return failed(call, call.defect)
        try:
            self.tools[call.name].schema.bind(call.arguments)
        except WrongArguments as wrong:
            return failed(call, f"Wrong arguments for {call.name}: {wrong}")
        return None

    async def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        if (refusal := self.refusal(call)) is not None:
            yield refusal
            return
        call.progress.running = call
        result = await self._execution.execute(self.tools[call.name], call.arguments)
        yield ToolOutcome(
            call,
            content=result.result if result.success and result.result is not None else str(result.error_message),
            success=result.success,
            error_code=None if result.success else ToolExecutionFailed.code,
            execution_time=result.execution_time,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decided about a call. ``arguments`` are edited ones; ``reason`` is told to the model."""

    approved: bool
    arguments: dict[str, Any] | None = None
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


class Question(Protocol):
    """A call put to somebody who may approve of it."""

    confirmation_id: str

    async def decision(self) -> Decision | None:
        """What was decided; None when nobody did in time."""
        ...

    def close(self) -> None:
        """Nobody waits for the decision any more."""
        ...


class Approver(Protocol):
    """Whoever is asked about calls."""

    def ask(self, call: Call, check: Callable[[dict[str, Any]], None]) -> Question | None:
        """Put a call to somebody; None when there is nobody to be asked.

        ``check`` raises ``WrongArguments`` for edited arguments that do not fit.
        """
        ...

    async def must_ask(self, tool: Tool) -> bool:
        """Whether a call of this tool needs approval by the settings of now."""
        ...

    async def remember(self, tool: Tool) -> None:
        """Approve a tool for the rest of the session."""
        ...


def needs_approval(policy: ToolExecutionPolicy, tool: Tool) -> bool:
    """Whether a policy requires approval for a tool."""
    return policy is ToolExecutionPolicy.ALWAYS_CONFIRM or (
        policy is ToolExecutionPolicy.CONFIRM_DESTRUCTIVE and tool.destructive
    )


class ConfirmingToolbox:
    """Tools under a policy: each call runs at once or waits for approval.

    Tools, policy and approvals are read before each call, so a change applies to the next call of the same turn.
    """

    def __init__(self, wrapped: FunctionToolbox, approver: Approver) -> None:
        self._wrapped = wrapped
        self._approver = approver

    def schemas(self) -> list[dict[str, Any]]:
        return self._wrapped.schemas()

    async def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        await self._wrapped.refresh()
        if self._wrapped.refusal(call) is not None or not await self._approver.must_ask(self._wrapped.tools[call.name]):
            yield ToolCalled(call.name, call.arguments, call.index)
            async with aclosing(self._wrapped.run(call)) as events:
                async for event in events:
                    yield event
            return
        question = self._approver.ask(call, self._wrapped.tools[call.name].schema.check)
        if question is None:
            yield failed(call, _NOBODY, ToolExecutionDenied.code)
            return
        try:
            yield ToolConfirmationRequired(call.name, call.arguments, call.index, question.confirmation_id)
            decision = await question.decision()
        finally:
            question.close()
        async with aclosing(self._decided(call, decision)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def _decided(self, call: Call, decision: Decision | None) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        if decision is None:
            yield failed(call, _TOO_LATE, ConfirmationTimeout.code, "timeout")
            return
        if not decision.approved:
            reason = f" Reason: {decision.reason}" if decision.reason else ""
            yield failed(call, f"The user did not approve of this call.{reason}", ToolExecutionDenied.code, "user")
            return
        await self._wrapped.refresh()
        if decision.remember == "session" and call.name in self._wrapped.tools:
            await self._approver.remember(self._wrapped.tools[call.name])
        edited = decision.arguments is not None and decision.arguments != call.arguments
        final = replace(call, arguments=decision.arguments) if decision.arguments is not None else call
        async with aclosing(self._wrapped.run(final)) as events:
            async for event in events:
                yield _by_the_user(event, decision, edited) if isinstance(event, ToolOutcome) else event


def failed(
    call: Call, content: str, error_code: str = ToolExecutionFailed.code, decided_by: DecidedBy = "policy"
) -> ToolOutcome:
    """The outcome of a call that did not run, or not well."""
    return ToolOutcome(call, content, success=False, error_code=error_code, decided_by=decided_by)


_NOBODY = (
    "This call needs the user's approval, and nobody can be asked in this request: it was denied. To decide about such "
    "calls, stream the answer from /api/v1/chat/{session_id}/stream, or send wait_for_confirmation to "
    "/api/v1/chat/{session_id}."
)
_TOO_LATE = "The user did not decide about this call in time: it was denied."


def _by_the_user(outcome: ToolOutcome, decision: Decision, edited: bool) -> ToolOutcome:
    """An approved call's outcome, preceded by what the user changed or said."""
    notes = []
    if edited:
        notes.append(f"The user changed the arguments to {orjson.dumps(decision.arguments).decode()}.")
    if decision.reason:
        notes.append(f"The user said: {decision.reason}")
    told = "\n".join([*notes, outcome.content])
    return replace(outcome, decided_by="user", content=told, result=outcome.content)
