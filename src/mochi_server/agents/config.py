"""Definition of an agent. ``AgentSettings`` is re-exported from ``mochi_server.sessions.types``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mochi_server.sessions.types import AgentSettings
from mochi_server.tools.discovery import ToolCatalogue

__all__ = ["AgentDefinition", "AgentSettings"]


@dataclass(frozen=True)
class AgentDefinition:
    """A system prompt with its own tools. If the agent is invalid, ``error_message`` names the file and the error."""

    name: str
    description: str = ""
    system_prompt: str = ""
    model: str | None = None
    mcp_tools: tuple[str, ...] = ()
    """Names of MCP tools and MCP servers in ``SKILL.md``. The name of a server stands for all of its tools."""
    catalogue: ToolCatalogue = field(default_factory=ToolCatalogue)
    """The usable tools of the agent, and the problems of its unusable tools."""
    valid: bool = True
    error_message: str | None = None
    modified: int = 0
    """Time of the last change of ``SKILL.md``, in seconds since 1970."""

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The functions that the agent may call, by name."""
        return {name: tool.function for name, tool in self.catalogue.tools.items()}
