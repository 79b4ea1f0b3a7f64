"""Comparison of the tools and agents that a session enables with the tools and agents that exist."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import AgentInvalid, AgentNotFound, ToolNotFound
from mochi_server.events import TurnWarning
from mochi_server.sessions.types import AgentSettings, ToolSettings
from mochi_server.tools.discovery import ToolCatalogue
from mochi_server.tools.registry import ToolRegistry
from mochi_server.util.text import join_names, nearest

_RESERVED = f"The tool {AGENT_TOOL!r} cannot be used while agents are enabled, because it calls the agents. Rename it."
_MAX_SUGGESTIONS = 10
"""Number of unknown names for which the nearest name is searched, because a search takes milliseconds."""


class Agent(Protocol):
    """An agent that was found. If ``valid`` is false, ``error_message`` is the reason."""

    @property
    def valid(self) -> bool: ...
    @property
    def error_message(self) -> str | None: ...


@dataclass(frozen=True)
class Selection:
    """Tools and agents that a session enables. ``warnings`` has one entry for each name that cannot be used."""

    active_tools: list[str] = field(default_factory=list)
    missing_tools: list[str] = field(default_factory=list)
    """Names of enabled tools that do not exist or are reserved, and the name of a tool group that does not exist."""
    active_agents: list[str] = field(default_factory=list)
    missing_agents: list[str] = field(default_factory=list)
    """Names of enabled agents that do not exist or are invalid."""
    warnings: list[TurnWarning] = field(default_factory=list)


@dataclass(frozen=True)
class SelectionChecker:
    """Checker of the tools and agents that a session enables. It discovers tools and agents only if it needs them."""

    tools: ToolRegistry
    agents: Callable[[], Awaitable[Mapping[str, Agent]]]
    """Function that returns all agents by name. The agents may lack their tools from MCP servers."""

    async def check(self, tools: ToolSettings | None, agents: AgentSettings | None) -> Selection:
        """Return which tools and agents in the settings can be used. The value None stands for empty settings."""
        selection = Selection()
        if tools is not None and (tools.tools or tools.tool_group):
            _check_tools(tools, await self.tools.catalogue(), selection)
        if agents is not None and agents.enabled_agents:
            _check_agents(agents, await self.agents(), selection)
        if selection.active_agents and AGENT_TOOL in selection.active_tools:
            selection.active_tools.remove(AGENT_TOOL)
            selection.missing_tools.append(AGENT_TOOL)
            selection.warnings.append(TurnWarning(ToolNotFound.code, _RESERVED))
        return selection


def _check_tools(settings: ToolSettings, catalogue: ToolCatalogue, selection: Selection) -> None:
    selection.active_tools.extend(catalogue.selected(settings.tools, settings.tool_group))
    for name in dict.fromkeys(settings.tools):
        if name not in catalogue.tools:
            selection.missing_tools.append(name)
            _warn_unknown(selection, ToolNotFound.code, "tool", name, catalogue.tools)
    group = settings.tool_group
    if group and group not in catalogue.groups:
        selection.missing_tools.append(group)
        _warn_unknown(selection, ToolNotFound.code, "tool group", group, catalogue.groups)


def _check_agents(settings: AgentSettings, agents: Mapping[str, Agent], selection: Selection) -> None:
    for name in dict.fromkeys(settings.enabled_agents):
        if name in agents and agents[name].valid:
            selection.active_agents.append(name)
            continue
        selection.missing_agents.append(name)
        if name in agents:
            message = AgentInvalid(name, str(agents[name].error_message)).message
            selection.warnings.append(TurnWarning(AgentInvalid.code, message))
        else:
            valid = {name: agent for name, agent in agents.items() if agent.valid}
            _warn_unknown(selection, AgentNotFound.code, "agent", name, valid)


def _warn_unknown(selection: Selection, code: str, kind: str, name: str, known: Mapping[str, object]) -> None:
    similar = nearest(name, known) if len(selection.warnings) < _MAX_SUGGESTIONS else None
    question = f" Did you mean {similar!r}?" if similar else ""
    existing = f"Existing {kind}s: {join_names(known)}." if known else f"There are no {kind}s."
    selection.warnings.append(TurnWarning(code, f"There is no {kind} named {name!r}.{question} {existing}"))
