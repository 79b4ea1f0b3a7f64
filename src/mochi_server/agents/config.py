"""What an agent is, and a session's agent settings, which are stored with sessions and defined there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mochi_server.sessions.types import AgentSettings
from mochi_server.tools.discovery import ToolCatalogue

__all__ = ["AgentDefinition", "AgentSettings"]


@dataclass(frozen=True)
class AgentDefinition:
    """A persona with tools of its own. An invalid one says in ``error_message`` which file is wrong, and why."""

    name: str
    description: str = ""
    system_prompt: str = ""
    model: str | None = None
    catalogue: ToolCatalogue = field(default_factory=ToolCatalogue)
    """Its tools as they were found, with what is wrong with others."""
    valid: bool = True
    error_message: str | None = None

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The functions that the agent may call, by name."""
        return {name: tool.function for name, tool in self.catalogue.tools.items()}
