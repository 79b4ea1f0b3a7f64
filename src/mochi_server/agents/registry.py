"""The agents of a server. User code is imported in threads, with a timeout for each agent."""

import asyncio
from functools import partial

import anyio.to_thread

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.discovery import AgentDiscoveryService, require_valid
from mochi_server.tools.execution import THREADS, ToolRaised
from mochi_server.tools.registry import IMPORT_SECONDS, import_in_thread


class AgentRegistry:
    """The agents of a directory, imported without blocking. ``import_seconds`` is the timeout for each agent."""

    def __init__(self, discovery: AgentDiscoveryService, *, import_seconds: float = IMPORT_SECONDS) -> None:
        self._discovery = discovery
        self._import_seconds = import_seconds
        self._agents: dict[str, AgentDefinition] | None = None

    async def agents(self) -> dict[str, AgentDefinition]:
        """Return all agents, including invalid ones. The first call looks for them."""
        return self._agents if self._agents is not None else await self.reload()

    async def reload(self) -> dict[str, AgentDefinition]:
        """Look for the agents again."""
        names = await anyio.to_thread.run_sync(self._discovery.names)
        slots = asyncio.Semaphore(THREADS)
        found = await asyncio.gather(*(self._find(name, slots) for name in names))
        self._agents = {agent.name: agent for agent in found}
        return self._agents

    async def get(self, name: str) -> AgentDefinition:
        """Return a valid agent by name. Raises ``AgentNotFound``, ``AgentInvalid``."""
        return require_valid(await self.agents(), name)

    async def enabled(self, names: list[str]) -> dict[str, AgentDefinition]:
        """Return those of some agents that exist and are valid."""
        agents = await self.agents() if names else {}
        return {name: agents[name] for name in dict.fromkeys(names) if name in agents and agents[name].valid}

    async def current(self, agent: AgentDefinition) -> AgentDefinition:
        """Return an agent with the current content of its ``SKILL.md``. Raises ``AgentInvalid``."""
        return await anyio.to_thread.run_sync(self._discovery.refreshed, agent)

    async def _find(self, name: str, slots: asyncio.Semaphore) -> AgentDefinition:
        try:
            return await import_in_thread(partial(self._discovery.find, name), slots, self._import_seconds)
        except ToolRaised as error:
            return AgentDefinition(name, valid=False, error_message=f"__init__.py: {error}")
