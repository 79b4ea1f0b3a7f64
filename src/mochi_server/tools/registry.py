"""The tools of a server. User code is imported in a thread, with a timeout."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio

from mochi_server.tools.discovery import ToolCatalogue, ToolDiscoveryService
from mochi_server.tools.execution import ToolRaised, in_thread
from mochi_server.tools.loader import Problem

T = TypeVar("T")
IMPORT_SECONDS = 30


async def import_in_thread(work: Callable[[], T], slots: asyncio.Semaphore, seconds: float = IMPORT_SECONDS) -> T:
    """Run a function that imports user code. Raises ``ToolRaised``, also after the timeout."""
    try:
        with anyio.fail_after(seconds):
            return await in_thread(work, slots)
    except TimeoutError:
        raise ToolRaised(f"importing took longer than {seconds:g} seconds") from None


class ToolSource(Protocol):
    """Tools from elsewhere than the directory."""

    async def joined(self, own: ToolCatalogue) -> ToolCatalogue:
        """Return a catalogue with these tools added."""

    async def reload(self) -> None:
        """Look for the tools again."""


class ToolRegistry:
    """The tools of a directory and those of another source."""

    def __init__(self, discovery: ToolDiscoveryService, more: ToolSource) -> None:
        self._discovery = discovery
        self._more = more
        self._slots = asyncio.Semaphore(1)

    async def catalogue(self) -> ToolCatalogue:
        """Return the tools, which the first call looks for."""
        return await self._more.joined(await self.own())

    async def own(self) -> ToolCatalogue:
        """Return the tools of the directory, without waiting for the other source."""
        return self._discovery.found or await self._import(self._discovery.discover)

    async def reload(self) -> ToolCatalogue:
        """Look for the tools again."""
        own, _ = await asyncio.gather(self._import(self._discovery.reload_tools), self._more.reload())
        return await self._more.joined(own)

    async def _import(self, work: Callable[[], ToolCatalogue]) -> ToolCatalogue:
        try:
            return await import_in_thread(work, self._slots)
        except ToolRaised as error:
            return ToolCatalogue(problems=(Problem("__init__.py", str(error)),))
