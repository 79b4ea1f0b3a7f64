"""The tools of a server, for its event loop: user code is imported off it, and given up when it never ends."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import anyio

from mochi_server.tools.discovery import ToolCatalogue, ToolDiscoveryService
from mochi_server.tools.execution import Raised, in_thread
from mochi_server.tools.loader import Problem

IMPORT_SECONDS = 30


class ToolSource(Protocol):
    """Whoever has more tools than the directory's."""

    async def joined(self, own: ToolCatalogue) -> ToolCatalogue:
        """A catalogue with these tools added to it."""
        ...

    async def reload(self) -> None:
        """Look for them again."""
        ...


class ToolLibrary:
    """One discovery service, asked without blocking, and what other sources add."""

    def __init__(self, discovery: ToolDiscoveryService, more: ToolSource) -> None:
        self._discovery = discovery
        self._more = more
        self._slots = asyncio.Semaphore(1)

    async def catalogue(self) -> ToolCatalogue:
        """The tools as found last; looks for them the first time."""
        return await self._more.joined(await self.own())

    async def own(self) -> ToolCatalogue:
        """Those of the directory alone, for which no other source is waited."""
        return self._discovery.found or await self._ask(self._discovery.discover)

    async def reload(self) -> ToolCatalogue:
        """Look for the tools again."""
        own, _ = await asyncio.gather(self._ask(self._discovery.reload_tools), self._more.reload())
        return await self._more.joined(own)

    async def _ask(self, look: Callable[[], ToolCatalogue]) -> ToolCatalogue:
        try:
            with anyio.fail_after(IMPORT_SECONDS):
                return await in_thread(look, self._slots)
        except (TimeoutError, Raised) as error:
            message = str(error) or f"importing took longer than {IMPORT_SECONDS} seconds"
            return ToolCatalogue(problems=(Problem("__init__.py", message),))
