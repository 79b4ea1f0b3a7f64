"""All MCP servers of a tools directory: connected to while the server serves, their tools joined with the others."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from mochi_server.mcp.config import McpConfig, read_config
from mochi_server.mcp.server import McpServer
from mochi_server.tools.discovery import RESERVED_NAMES, Tool, ToolCatalogue
from mochi_server.tools.execution import Raised, shortened
from mochi_server.tools.loader import Problem

if TYPE_CHECKING:
    from mochi_server.mcp.described import Described

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5
"""What whoever asks for the tools waits for servers that have just been started; they go on connecting."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What models may call a tool."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")

Call = Callable[[str, dict[str, Any]], Coroutine[Any, Any, str]]


class McpServers:
    """The servers that ``mcp.json`` names. ``reserved`` are names that none of their tools can have."""

    def __init__(self, directory: Path, reserved: Iterable[str] = ()) -> None:
        self._directory = directory
        self._reserved = RESERVED_NAMES | set(reserved)
        self._config: McpConfig | None = None
        self._servers: dict[str, McpServer] = {}
        self._retired: list[McpServer] = []
        self._patient_until = 0.0
        self._changing = asyncio.Lock()

    @property
    def config(self) -> McpConfig:
        """What the file said when it was read last."""
        return self._config or McpConfig()

    async def open(self) -> None:
        """Begin to connect, unless that has been done; waits for nobody."""
        async with self._changing:
            if self._config is None:
                await self._start()

    async def reload(self) -> None:
        """Read the file again and connect to all servers anew. Calls that are under way end as they would have."""
        async with self._changing:
            await self._start()

    async def joined(self, own: ToolCatalogue) -> ToolCatalogue:
        """A catalogue with the servers' tools, groups and problems; its own names go first."""
        await self.open()
        await self._settled()
        if not self.config.servers and not self.config.problems:
            return own
        joining = _Joining(own, self._reserved, self.config.problems)
        for server in self._servers.values():
            joining.add(server, partial(self._call, server.name))
        return joining.catalogue()

    async def aclose(self) -> None:
        """End all connections, and the servers that were started here."""
        async with self._changing:
            servers = [*self._servers.values(), *self._retired]
            self._servers, self._retired, self._config = {}, [], McpConfig()
            await asyncio.gather(*(server.aclose() for server in servers))

    async def _start(self) -> None:
        config = await anyio.to_thread.run_sync(read_config, self._directory)
        old = self._servers
        self._servers = {name: McpServer(name, server, self._directory) for name, server in config.servers.items()}
        self._config = config
        for problem in config.problems:
            logger.warning("%s in %s: %s", problem.name, self._directory, problem.message)
        self._patient_until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        # First the old ones: some keep a file or a port to themselves.
        await asyncio.gather(*(server.retire() for server in old.values()))
        self._retired = [server for server in (*self._retired, *old.values()) if not server.closed]
        for server in self._servers.values():
            server.start()

    async def _settled(self) -> None:
        pending = [server.opened for server in self._servers.values() if not server.opened.done()]
        left = self._patient_until - asyncio.get_running_loop().time()
        if pending and left > 0:
            await asyncio.wait(pending, timeout=left)

    async def _call(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        if server not in self._servers:
            raise Raised(f"there is no MCP server {server} any more")
        return await self._servers[server].call(tool, arguments)


class _Joining:
    """A catalogue in the making."""

    def __init__(self, own: ToolCatalogue, reserved: frozenset[str], problems: Iterable[Problem]) -> None:
        self._reserved = reserved
        self._tools = dict(own.tools)
        self._groups = dict(own.groups)
        self._problems = [*own.problems, *problems]

    def add(self, server: McpServer, call: Call) -> None:
        """Add a server's tools, as a group of its name. ``call`` takes the tool's own name first."""
        self._problems += [Problem(server.name, f"MCP server: {problem}") for problem in server.problems]
        names = [name for described in server.tools if (name := self._tool(server.name, described, call)) is not None]
        if server.name not in self._groups:
            self._groups[server.name] = names
        elif names:
            self._problem(server.name, "there is a group of that name; its tools are to be enabled one by one")

    def catalogue(self) -> ToolCatalogue:
        return ToolCatalogue(MappingProxyType(self._tools), MappingProxyType(self._groups), tuple(self._problems))

    def _tool(self, server: str, described: "Described", call: Call) -> str | None:
        """Add a tool; its name here, or None where it can have none."""
        name = next((name for name in _names(server, described.name) if self._is_free(name)), None)
        if name is None:
            self._problem(server, f"its tool {shortened(described.name, 100)!r} can have no name here")
            return None
        self._tools[name] = Tool(
            name,
            partial(call, described.name),
            replace(described.schema, name=name),
            read_only=described.read_only,
            source=f"mcp:{quote(server, safe='')}/{described.name}",
        )
        return name

    def _is_free(self, name: str) -> bool:
        return bool(_NAME.fullmatch(name)) and name not in self._tools and name not in self._reserved

    def _problem(self, server: str, text: str) -> None:
        self._problems.append(Problem(server, f"MCP server: {text}"))


def _names(server: str, tool: str) -> Iterator[str]:
    """Its own name, and with the server's before it."""
    yield _UNUSUAL.sub("_", tool)
    yield _UNUSUAL.sub("_", f"{server}_{tool}")
