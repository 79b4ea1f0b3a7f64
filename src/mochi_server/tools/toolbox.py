"""The seam between a conversation and what a model may call in it. Knows neither functions nor approval."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol

from mochi_server.events import ChatEvent, ToolResult


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a model asked for; ``index`` counts the calls of a turn."""

    index: int
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How a call ended. ``content`` is what the model is told."""

    call: Call
    content: str
    success: bool
    error_code: str | None = None
    execution_time: float = 0.0
    """Seconds."""

    def event(self) -> ToolResult:
        """The outcome as clients see it."""
        return ToolResult(
            tool_name=self.call.name,
            success=self.success,
            result=self.content if self.success else None,
            error_message=None if self.success else self.content,
            error_code=self.error_code,
            call_index=self.call.index,
        )


class Toolbox(Protocol):
    """Some tools. ``run`` yields what clients should see and ends in exactly one ``ToolOutcome``."""

    def schemas(self) -> list[dict[str, Any]]:
        """The tools as Ollama takes them; empty when there are none."""
        ...

    def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        """Carry out a call. Never raises for what a model or a tool does wrong."""
        ...


class EmptyToolbox:
    """No tools; a model that calls one all the same is told so."""

    def schemas(self) -> list[dict[str, Any]]:
        return []

    async def run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        yield ToolOutcome(
            call,
            f"There is no tool named {call.name!r}. Answer without it.",
            success=False,
            error_code="TOOL_NOT_FOUND",
        )
