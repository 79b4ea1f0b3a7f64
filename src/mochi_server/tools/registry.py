"""Registry of tools: those of the tools directory, and those of MCP servers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from mochi_server.sessions.audit import audit
from mochi_server.tools.discovery import ToolCatalogue, ToolDiscoveryService, permitted
from mochi_server.tools.execution import IMPORT_SECONDS, ToolRaised, run_import
from mochi_server.tools.loader import Problem


class ToolSource(Protocol):
    """Source of tools that are not in the tools directory."""

    async def add_tools(self, catalogue: ToolCatalogue) -> ToolCatalogue: ...
    async def reload(self) -> None: ...
    async def wait_for(self, source: str) -> None:
        """Wait until the MCP server in the ``source`` of a tool has connected or failed to
        connect.
        """


@dataclass(eq=False)
class ToolRegistry:
    """Registry of the tools of the tools directory and of an additional ``ToolSource``."""

    discovery: ToolDiscoveryService
    extra_source: ToolSource
    import_seconds: float = IMPORT_SECONDS
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1), init=False)
    _failed: ToolCatalogue | None = field(
        default=None, init=False
    )  # the tools from before the last failed import, with its problem
    # Cached tools at that time. An import that ends after its timeout replaces the cache.
    _before_failure: ToolCatalogue | None = field(default=None, init=False)

    async def catalogue(self) -> ToolCatalogue:
        """Return the tools that the caller may use. The first call discovers them."""
        return permitted(await self.extra_source.add_tools(await self.directory_tools()))

    async def directory_tools(self) -> ToolCatalogue:
        """Return the tools of the directory, without waiting for the additional source.

        After a failed import, return the tools from before it until the tools are reloaded.
        """
        cached = self.discovery.cached
        if self._failed is not None and cached is self._before_failure:
            return self._failed
        if cached is not None:
            return cached
        return await self._import(self.discovery.discover)

    async def reload(self) -> ToolCatalogue:
        """Discover the tools of both sources again and return those that the caller may use."""
        catalogue, _ = await asyncio.gather(
            self._import(self.discovery.reload_tools), self.extra_source.reload()
        )
        audit("Tools reloaded")
        return permitted(await self.extra_source.add_tools(catalogue))

    async def _import(self, work: Callable[[], ToolCatalogue]) -> ToolCatalogue:
        """Return the tools that ``work`` imports, or the former tools if it fails or times out."""
        try:
            return await run_import(work, self._slots, self.import_seconds)
        except ToolRaised as error:
            self._slots = asyncio.Semaphore(1)  # an import that hangs never releases its slot
            before = self.discovery.cached
            tools = before or ToolCatalogue()
            problem = Problem("__init__.py", str(error))
            problems = (*tools.problems, problem)
            self._failed = replace(tools, problems=problems)
            self._before_failure = before
            return self._failed
