"""Tools of MCP servers that an agent's ``SKILL.md`` names."""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.skill import SKILL_FILE
from mochi_server.tools.discovery import Tool, ToolCatalogue
from mochi_server.tools.loader import Problem


def with_mcp_tools(agent: AgentDefinition, catalogue: ToolCatalogue) -> AgentDefinition:
    """Return a copy of ``agent`` with the MCP tools that it names. ``catalogue`` has all tools of the server.

    A name that cannot be used becomes a problem of the agent.
    """
    available = {name: tool for name, tool in catalogue.tools.items() if tool.source is not None}
    tools, problems = dict(agent.catalogue.tools), list(agent.catalogue.problems)
    for named in agent.mcp_tools:
        found = _find(named, available)
        if not found:
            problems.append(Problem(named, _not_found(named, catalogue, available)))
        for name, tool in found.items():
            if tools.setdefault(name, tool) is not tool:
                problems.append(Problem(named, f"a tool in __init__.py has the same name as the MCP tool {name!r}"))
    return replace(agent, catalogue=ToolCatalogue(tools, agent.catalogue.groups, tuple(problems)))


def _find(named: str, available: Mapping[str, Tool]) -> dict[str, Tool]:
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
