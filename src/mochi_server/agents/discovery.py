"""Discovery of agents: folders with a ``SKILL.md`` and Python tools."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import anyio.to_thread

from mochi_server.agents.config import SKILL_FILE, AgentDefinition, SkillError, read_skill
from mochi_server.errors import AgentInvalid, AgentNotFound
from mochi_server.sessions.audit import audit
from mochi_server.sessions.caller import CALLER
from mochi_server.tools.discovery import Tool, ToolCatalogue, find_mistakes, find_tools, permitted
from mochi_server.tools.execution import (
    IMPORT_SECONDS,
    MAX_PARALLEL_CALLS,
    ToolRaised,
    run_import,
)
from mochi_server.tools.loader import Problem, leads_out
from mochi_server.tools.registry import ToolRegistry

CHATS_FOLDER = "agent_chats"
RESERVED_NAMES = frozenset({"chats", "reload", CHATS_FOLDER})
"""Names that no agent can have, because routes below ``/agents`` or the folder of agent sessions
use them.
"""

logger = logging.getLogger(__name__)


class AgentDiscoveryService:
    """Service that finds the agents of one directory and caches them."""

    def __init__(
        self, agents_dir: str | Path | None, agent_chats_dir: str | Path | None = None
    ) -> None:
        """The agents are in ``agents_dir``, if any. They are imported later.

        ``agent_chats_dir`` is by default a folder of ``agents_dir``.
        """
        self._is_empty = agents_dir is None
        self._directory = Path(agents_dir or "")  # not read if there are no agents
        self._chats = (
            Path(agent_chats_dir) if agent_chats_dir is not None else self._directory / CHATS_FOLDER
        )
        self._agents: dict[str, AgentDefinition] | None = None

    def discover(self) -> dict[str, AgentDefinition]:
        """Return all agents by name, including invalid agents.

        The first call imports them, which blocks the thread.
        """
        return self.reload_agents() if self._agents is None else self._agents

    def reload_agents(self) -> dict[str, AgentDefinition]:
        """Import the agents again and return them.

        Until the import ends, ``discover`` returns the old agents.
        """
        self._agents = {name: self.import_agent(name) for name in self.names()}
        return self._agents

    def get(self, name: str) -> AgentDefinition:
        """Return an agent. Raises ``AgentNotFound`` and ``AgentInvalid``."""
        return require_valid(self.discover(), name)

    def names(self) -> list[str]:
        """Return the names of the agents' folders, sorted."""
        if self._is_empty:
            return []
        try:
            folders = [path for path in self._directory.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.warning(
                "Agents directory unreadable path=%s: %s", self._directory, error.strerror
            )
            return []
        chats = self._chats.resolve()
        others = [
            path.name for path in folders if path.name != CHATS_FOLDER and path.resolve() != chats
        ]
        return sorted(name for name in others if not name.startswith(("_", ".")))

    def import_agent(self, name: str) -> AgentDefinition:
        """Import the agent in the folder ``name``.

        If the import fails, return an invalid agent. Never raises.
        """
        directory = self._directory / name
        if leads_out(directory, self._directory):
            return _invalid(name, "the folder is a link that leads out of the agents directory")
        agent = AgentDefinition(name)
        faults = (
            [f"the name {name!r} is reserved; rename the folder"] if name in RESERVED_NAMES else []
        )
        skill_faults = _missing(directory, SKILL_FILE)
        if not skill_faults:
            try:
                agent = read_skill(directory)
            except SkillError as error:
                skill_faults = [str(error)]
        catalogue, tool_faults = _tools(directory, is_optional=bool(agent.mcp_tools))
        faults += skill_faults + tool_faults
        if faults:
            return replace(_invalid(name, *faults), description=agent.description)
        for problem in catalogue.problems:
            logger.warning("Agent problem name=%s file=%s: %s", name, problem.name, problem.message)
        return replace(agent, catalogue=catalogue)

    def with_current_skill(self, agent: AgentDefinition) -> AgentDefinition:
        """Read the ``SKILL.md`` of ``agent`` again and return the updated agent.

        Raises ``AgentInvalid``.
        """
        try:
            return replace(read_skill(self._directory / agent.name), catalogue=agent.catalogue)
        except SkillError as error:
            raise AgentInvalid(agent.name, str(error)) from error


def require_valid(agents: dict[str, AgentDefinition], name: str) -> AgentDefinition:
    """Return the agent ``name`` of ``agents``. Raises ``AgentNotFound`` and ``AgentInvalid``."""
    if name not in agents:
        raise AgentNotFound(name)
    if not agents[name].valid:
        raise AgentInvalid(name, str(agents[name].error_message))
    return agents[name]


def _tools(directory: Path, *, is_optional: bool) -> tuple[ToolCatalogue, list[str]]:
    """Import the Python tools of an agent, which may be absent if ``is_optional``.

    Return them and the faults.
    """
    missing = _missing(directory, f"{directory.name}.py", "__init__.py")
    if is_optional and len(missing) == 2:
        return ToolCatalogue(), []
    if missing:
        with suppress(OSError):
            missing += [
                f"{mistake.name}: {mistake.message}"
                for mistake in find_mistakes(directory, exported=None)
            ]
        return ToolCatalogue(), missing
    catalogue = find_tools(directory)
    if catalogue.tools or (is_optional and not catalogue.problems):
        return catalogue, []
    problems = [f"{problem.name}: {problem.message}" for problem in catalogue.problems]
    return catalogue, ["__init__.py: no usable tool in __all__", *problems]


def _missing(directory: Path, *files: str) -> list[str]:
    """Return a fault for each of ``files`` that does not exist, or one fault if the directory
    cannot be read.
    """
    try:
        return [f"{file} is missing" for file in files if not (directory / file).is_file()]
    except OSError as error:
        return [f"it cannot be read: {error.strerror}"]


def _invalid(name: str, *problems: str) -> AgentDefinition:
    message = "; ".join(dict.fromkeys(problems))
    logger.warning("Invalid agent name=%s: %s", name, message)
    return AgentDefinition(name, valid=False, error_message=message)


@dataclass(eq=False)
class AgentRegistry:
    """Registry of the agents of a directory. ``tools`` has the MCP tools that agents may name.

    It imports the agents with ``discovery``, each with a time limit, and caches them itself.

    It returns what the current caller may use: other agents, and other tools of an agent, do not
    exist for it.
    """

    discovery: AgentDiscoveryService
    tools: ToolRegistry
    import_seconds: float = IMPORT_SECONDS
    _agents: dict[str, AgentDefinition] | None = field(default=None, init=False)
    _importing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def agents(self) -> dict[str, AgentDefinition]:
        """Return all agents by name, including invalid agents. The first call discovers them."""
        return await self._all_with_mcp_tools(await self.directory_agents())

    async def directory_agents(self) -> dict[str, AgentDefinition]:
        """Return all agents by name, with their Python tools only. Do not wait for MCP servers."""
        if self._agents is not None:
            return _permitted(self._agents)
        async with self._importing:  # so that simultaneous first calls import each agent once
            return _permitted(self._agents or await self._discover())

    async def reload(self) -> dict[str, AgentDefinition]:
        """Import all agents again, and return those that ``agents`` returns."""
        async with self._importing:
            agents = await self._discover()
        audit("Agents reloaded")
        return await self._all_with_mcp_tools(_permitted(agents))

    async def get(self, name: str) -> AgentDefinition:
        """Return an agent with its MCP tools. Raises ``AgentNotFound`` and ``AgentInvalid``."""
        agents = await self.directory_agents()
        return await self._with_mcp_tools(require_valid(agents, name))

    async def enabled(self, names: list[str]) -> dict[str, AgentDefinition]:
        """Return the named agents that exist and are valid, without the tools of MCP servers."""
        agents = await self.directory_agents() if names else {}
        return {
            name: agents[name]
            for name in dict.fromkeys(names)
            if name in agents and agents[name].valid
        }

    async def current(self, agent: AgentDefinition) -> AgentDefinition:
        """Read ``SKILL.md`` again and return the agent with the MCP tools that it names.

        Its Python tools are those of the latest import. Raises ``AgentInvalid``.
        """
        imported = self._with_imported_tools(agent)
        updated = await anyio.to_thread.run_sync(self.discovery.with_current_skill, imported)
        return await self._with_mcp_tools(updated)

    async def current_tools(self, agent: AgentDefinition) -> Mapping[str, Tool]:
        """Return the tools of ``agent`` by name, with the tools that its MCP servers offer now.

        Its Python tools are those of the latest import. ``SKILL.md`` is not read again.
        """
        current = await self._with_mcp_tools(self._with_imported_tools(agent))
        return current.catalogue.tools

    async def tools_of(self, name: str) -> Mapping[str, Tool] | None:
        """Return the tools that a call of the agent ``name`` would have, by name.

        Return None if there is no valid agent with this name. An agent whose ``SKILL.md`` has
        become invalid has no tools.
        """
        agents = await self.enabled([name])
        if not agents:
            return None
        try:
            agent = await self.current(agents[name])
        except AgentInvalid:
            return {}
        return agent.catalogue.tools

    def _with_imported_tools(self, agent: AgentDefinition) -> AgentDefinition:
        """Return a copy of ``agent`` with its Python tools of the latest import that the caller may
        use. An agent whose folder is gone keeps its tools.
        """
        imported = (self._agents or {}).get(agent.name, agent)
        return replace(agent, catalogue=permitted(imported.catalogue))

    async def _discover(self) -> dict[str, AgentDefinition]:
        names = await anyio.to_thread.run_sync(self.discovery.names)
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)
        agents = await asyncio.gather(*(self._import(name, slots) for name in names))
        self._agents = {agent.name: agent for agent in agents}
        return self._agents

    async def _all_with_mcp_tools(
        self, agents: dict[str, AgentDefinition]
    ) -> dict[str, AgentDefinition]:
        return {name: await self._with_mcp_tools(agent) for name, agent in agents.items()}

    async def _with_mcp_tools(self, agent: AgentDefinition) -> AgentDefinition:
        if not agent.mcp_tools:
            return agent  # without waiting for the MCP servers
        return _with_named_tools(agent, await self.tools.catalogue())

    async def _import(self, name: str, slots: asyncio.Semaphore) -> AgentDefinition:
        """Import an agent.

        If that takes too long, return an invalid agent without a description.
        """
        try:
            return await run_import(
                partial(self.discovery.import_agent, name), slots, self.import_seconds
            )
        except ToolRaised as error:
            return _invalid(name, f"__init__.py: {error}")


def _permitted(agents: dict[str, AgentDefinition]) -> dict[str, AgentDefinition]:
    permissions = CALLER.get().permissions
    allowed = {}
    for name, agent in agents.items():
        if permissions.allow_agent(name):
            allowed[name] = replace(agent, catalogue=permitted(agent.catalogue))
    return allowed


def _with_named_tools(agent: AgentDefinition, catalogue: ToolCatalogue) -> AgentDefinition:
    """Return a copy of ``agent`` with the MCP tools that its ``SKILL.md`` names, and with the
    problems of the names.
    """
    available = {name: tool for name, tool in catalogue.tools.items() if tool.source is not None}
    tools = dict(agent.catalogue.tools)
    problems = list(agent.catalogue.problems)
    for named in agent.mcp_tools:
        found = _tools_named(named, available)
        if not found:
            names = ", ".join(available) or "none"
            text = (
                f"{SKILL_FILE}: mcp_tools names {named!r}, but no MCP tool or server has this name"
            )
            problems.append(Problem(named, f"{text}. Available tools: {names}"))
        for name, tool in found.items():
            if tools.setdefault(name, tool) is not tool:
                text = f"a tool in __init__.py has the same name as the MCP tool {name!r}"
                problems.append(Problem(named, text))
    return replace(agent, catalogue=ToolCatalogue(tools, agent.catalogue.groups, tuple(problems)))


def _tools_named(named: str, available: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """Return the MCP tool with this name, or else all tools of the MCP server with this name."""
    if named in available:
        return {named: available[named]}
    prefix = f"mcp:{quote(named, safe='')}/"
    return {name: tool for name, tool in available.items() if str(tool.source).startswith(prefix)}
