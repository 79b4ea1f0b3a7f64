"""The agents of a server, for its event loop: user code is imported off it, and given up when it never ends."""

import asyncio
from functools import partial

import anyio
import anyio.to_thread

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.discovery import AgentDiscoveryService, chosen
from mochi_server.tools.execution import THREADS, Raised, in_thread
from mochi_server.tools.library import IMPORT_SECONDS


class AgentLibrary:
    """One discovery service, asked without blocking. ``import_seconds`` is for each agent."""

    def __init__(self, discovery: AgentDiscoveryService, *, import_seconds: float = IMPORT_SECONDS) -> None:
        self._discovery = discovery
        self._import_seconds = import_seconds
        self._agents: dict[str, AgentDefinition] | None = None

    async def agents(self) -> dict[str, AgentDefinition]:
        """All agents as found last, invalid ones among them; looks for them the first time."""
        return self._agents if self._agents is not None else await self.reload()

    async def reload(self) -> dict[str, AgentDefinition]:
        """Look for the agents again."""
        names = await anyio.to_thread.run_sync(self._discovery.names)
        slots = asyncio.Semaphore(THREADS)
        found = await asyncio.gather(*(self._find(name, slots) for name in names))
        self._agents = {agent.name: agent for agent in found}
        return self._agents

    async def get(self, name: str) -> AgentDefinition:
        """A valid agent by name. Raises ``AgentNotFound``, ``AgentInvalid``."""
        return chosen(await self.agents(), name)

    async def enabled(self, names: list[str]) -> dict[str, AgentDefinition]:
        """Those of some agents that exist and are valid."""
        agents = await self.agents() if names else {}
        return {name: agents[name] for name in dict.fromkeys(names) if name in agents and agents[name].valid}

    async def current(self, agent: AgentDefinition) -> AgentDefinition:
        """An agent with what its ``SKILL.md`` says now. Raises ``AgentInvalid``."""
        return await anyio.to_thread.run_sync(self._discovery.refreshed, agent)

    async def _find(self, name: str, slots: asyncio.Semaphore) -> AgentDefinition:
        try:
            with anyio.fail_after(self._import_seconds):
                return await in_thread(partial(self._discovery.find, name), slots)
        except (TimeoutError, Raised) as error:
            message = str(error) or f"importing took longer than {self._import_seconds:g} seconds"
            return AgentDefinition(name, valid=False, error_message=f"__init__.py: {message}")
