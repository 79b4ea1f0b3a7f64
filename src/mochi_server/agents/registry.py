"""Registry of the agents of a server. The Python tools of the agents are imported in worker threads."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import quote

import anyio.to_thread

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.discovery import AgentDiscoveryService, require_valid
from mochi_server.agents.skill import SKILL_FILE
from mochi_server.tools.discovery import Tool, ToolCatalogue
from mochi_server.tools.execution import MAX_PARALLEL_CALLS, ToolRaised
from mochi_server.tools.loader import Problem
from mochi_server.tools.registry import IMPORT_SECONDS, ToolRegistry, import_in_thread


@dataclass(eq=False)
class AgentRegistry:
    """Registry of the agents of a directory. ``tools`` has the MCP tools that agents may name."""

    discovery: AgentDiscoveryService
    tools: ToolRegistry
    import_seconds: float = IMPORT_SECONDS
    """Import timeout for each agent."""
    _agents: dict[str, AgentDefinition] | None = field(default=None, init=False)
    _importing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def agents(self) -> dict[str, AgentDefinition]:
        """Return all agents by name, including invalid agents. The first call discovers them."""
        return await self._with_mcp_tools(await self.directory_agents())

    async def directory_agents(self) -> dict[str, AgentDefinition]:
        """Return all agents by name, with their Python tools only. Do not wait for MCP servers."""
        if self._agents is not None:
            return self._agents
        async with self._importing:  # so that simultaneous first calls import each agent once
            return self._agents or await self._discover()

    async def reload(self) -> dict[str, AgentDefinition]:
        """Discover the agents again and return them by name."""
        async with self._importing:
            agents = await self._discover()
        return await self._with_mcp_tools(agents)

    async def get(self, name: str) -> AgentDefinition:
        """Return the valid agent ``name``. Raises ``AgentNotFound`` or ``AgentInvalid``."""
        return require_valid(await self.agents(), name)

    async def enabled(self, names: list[str]) -> dict[str, AgentDefinition]:
        """Return the named agents that exist and are valid, without the tools of MCP servers."""
        agents = await self.directory_agents() if names else {}
        return {name: agents[name] for name in dict.fromkeys(names) if name in agents and agents[name].valid}

    async def current(self, agent: AgentDefinition) -> AgentDefinition:
        """Read ``SKILL.md`` again and return the agent with the MCP tools that it names. Raises ``AgentInvalid``."""
        imported = (self._agents or {}).get(agent.name, agent)
        updated = await anyio.to_thread.run_sync(self.discovery.refresh, imported)
        return (await self._with_mcp_tools({agent.name: updated}))[agent.name]

    async def current_tools(self, agent: AgentDefinition) -> Mapping[str, Tool]:
        """Return the tools of ``agent`` by name, with the tools that its MCP servers offer now."""
        imported = (self._agents or {}).get(agent.name, agent)
        of_python = replace(agent, catalogue=imported.catalogue)
        return (await self._with_mcp_tools({agent.name: of_python}))[agent.name].catalogue.tools

    async def _discover(self) -> dict[str, AgentDefinition]:
        names = await anyio.to_thread.run_sync(self.discovery.names)
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)
        agents = await asyncio.gather(*(self._find(name, slots) for name in names))
        self._agents = {agent.name: agent for agent in agents}
        return self._agents

    async def _with_mcp_tools(self, agents: dict[str, AgentDefinition]) -> dict[str, AgentDefinition]:
        if not any(agent.mcp_tools for agent in agents.values()):
            return agents  # without waiting for the MCP servers
        catalogue = await self.tools.catalogue()
        return {
            name: _with_named_tools(agent, catalogue) if agent.mcp_tools else agent for name, agent in agents.items()
        }

    async def _find(self, name: str, slots: asyncio.Semaphore) -> AgentDefinition:
        try:
            return await import_in_thread(partial(self.discovery.find, name), slots, self.import_seconds)
        except ToolRaised as error:
            return AgentDefinition(name, valid=False, error_message=f"__init__.py: {error}")


def _with_named_tools(agent: AgentDefinition, catalogue: ToolCatalogue) -> AgentDefinition:
    """Return a copy of ``agent`` with the MCP tools that its ``SKILL.md`` names, and with the problems of the names."""
    available = {name: tool for name, tool in catalogue.tools.items() if tool.source is not None}
    tools, problems = dict(agent.catalogue.tools), list(agent.catalogue.problems)
    for named in agent.mcp_tools:
        found = _tools_named(named, available)
        if not found:
            problems.append(Problem(named, _not_found(named, catalogue, available)))
        for name, tool in found.items():
            if tools.setdefault(name, tool) is not tool:
                problems.append(Problem(named, f"a tool in __init__.py has the same name as the MCP tool {name!r}"))
    return replace(agent, catalogue=ToolCatalogue(tools, agent.catalogue.groups, tuple(problems)))


def _tools_named(named: str, available: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tool called ``named``, or all tools of the MCP server called ``named``."""
    if named in available:
        return {named: available[named]}
    prefix = f"mcp:{quote(named, safe='')}/"
    return {name: tool for name, tool in available.items() if str(tool.source).startswith(prefix)}


def _not_found(named: str, catalogue: ToolCatalogue, available: Mapping[str, Tool]) -> str:
    if named in catalogue.tools:
        return f"{SKILL_FILE}: mcp_tools names {named!r}, which is not a tool of an MCP server"
    names = ", ".join(available) or "none"
    return f"{SKILL_FILE}: mcp_tools names {named!r}, but no MCP tool or server has this name. Available tools: {names}"
