"""The tools of a server, for its event loop: user code is imported off it, and given up when it never ends."""

import asyncio
from collections.abc import Callable

import anyio

from mochi_server.tools.discovery import Problem, ToolCatalogue, ToolDiscoveryService
from mochi_server.tools.execution import Raised, in_thread

IMPORT_SECONDS = 30


class ToolLibrary:
    """One discovery service, asked without blocking."""

    def __init__(self, discovery: ToolDiscoveryService) -> None:
        self._discovery = discovery
        self._slots = asyncio.Semaphore(1)

    async def catalogue(self) -> ToolCatalogue:
        """The tools as found last; looks for them the first time."""
        return self._discovery.found or await self._ask(self._discovery.discover)

    async def reload(self) -> ToolCatalogue:
        """Look for the tools again."""
        return await self._ask(self._discovery.reload_tools)

    async def _ask(self, look: Callable[[], ToolCatalogue]) -> ToolCatalogue:
        try:
            with anyio.fail_after(IMPORT_SECONDS):
                return await in_thread(look, self._slots)
        except (TimeoutError, Raised) as error:
            message = str(error) or f"importing took longer than {IMPORT_SECONDS} seconds"
            return ToolCatalogue(problems=(Problem("__init__.py", message),))
