"""All MCP servers of a tools directory, whose tools are joined with those of the directory."""

import asyncio
import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio

from mochi_server.mcp.config import McpConfig, read_config
from mochi_server.mcp.server_task import McpServer
from mochi_server.tools.discovery import RESERVED_NAMES, Tool, ToolCatalogue
from mochi_server.tools.execution import ToolRaised, shortened
from mochi_server.tools.loader import Problem

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 5
"""How long a request for the tools waits for servers that have just been started. They continue to connect."""
_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME = 64


class McpServers:
    """The servers that ``mcp.json`` names. ``reserved`` are names that their tools cannot have."""

    def __init__(self, directory: Path, reserved: Iterable[str] = ()) -> None:
        self._directory = directory
        self._reserved = RESERVED_NAMES | set(reserved)
        self.config = McpConfig()
        """The content of the file when it was last read."""
        self._is_open = False
        self._servers: dict[str, McpServer] = {}
        self._retired: list[McpServer] = []
        self._patient_until = 0.0
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Begin to connect, unless this was already done. Does not wait for the servers."""
        async with self._changing:
            if not self._is_open:
                await self._start()

    async def reload(self) -> None:
        """Read the file again and reconnect to all servers. Running calls keep their connections."""
        async with self._changing:
            await self._start()

    async def joined(self, own: ToolCatalogue) -> ToolCatalogue:
        """Return a catalogue with the tools, groups and problems of the servers; its own names take precedence."""
        await self.open()
        pending = [opened for server in self._servers.values() if not (opened := server.session.opened).done()]
        left = self._patient_until - asyncio.get_running_loop().time()
        if pending and left > 0:
            await asyncio.wait(pending, timeout=left)
        tools, groups, problems = dict(own.tools), dict(own.groups), [*own.problems, *self.config.problems]
        for name, server in self._servers.items():
            found, told = self._tools_of(server, tools)
            if name not in groups:
                groups[name] = list(found)
            elif found:
                told.append("there is a group of that name; its tools are to be enabled one by one")
            tools |= found
            problems += [Problem(name, f"MCP server: {message}") for message in told]
        return ToolCatalogue(tools, groups, tuple(problems))

    async def aclose(self) -> None:
        """Close all connections, and end the servers that were started here."""
        async with self._changing:
            servers = [*self._servers.values(), *self._retired]
            self._servers, self._retired, self.config, self._is_open = {}, [], McpConfig(), True
            await asyncio.gather(*(server.aclose() for server in servers))

    async def _start(self) -> None:
        self.config = config = await anyio.to_thread.run_sync(read_config, self._directory)
        self._is_open, old = True, self._servers
        self._servers = {name: McpServer(name, server, self._directory) for name, server in config.servers.items()}
        for problem in config.problems:
            logger.warning("%s in %s: %s", problem.name, self._directory, problem.message)
        self._patient_until = asyncio.get_running_loop().time() + START_TIMEOUT_SECONDS
        # The old servers end first: some use a file or a port exclusively.
        await asyncio.gather(*(server.retire() for server in old.values()))
        self._retired = [server for server in (*self._retired, *old.values()) if not server.closed]
        for server in self._servers.values():
            server.start()

    def _tools_of(self, server: McpServer, taken: dict[str, Tool]) -> tuple[dict[str, Tool], list[str]]:
        """Return the tools of a server under names that are free, and its problems."""
        found: dict[str, Tool] = {}
        problems = server.problems
        for described in server.tools:
            names = [_UNUSUAL.sub("_", text) for text in (described.name, f"{server.name}_{described.name}")]
            used = {*taken, *found, *self._reserved}
            name = next((name for name in names if name not in used and 0 < len(name) <= _MAX_NAME), None)
            if name is None:
                problems.append(f"its tool {shortened(described.name, 100)!r} can have no name here")
            else:
                found[name] = Tool(
                    name,
                    partial(self._call, server.name, described.name),
                    replace(described.schema, name=name),
                    read_only=described.read_only,
                    source=f"mcp:{quote(server.name, safe='')}/{described.name}",
                )
        return found, problems

    async def _call(self, server: str, tool: str, arguments: dict[str, Any]) -> str:
        if server not in self._servers:
            raise ToolRaised(f"there is no MCP server {server} any more")
        return await self._servers[server].call(tool, arguments)
