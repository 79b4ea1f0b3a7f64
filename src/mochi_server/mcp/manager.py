"""Manager of the MCP servers of a tools directory."""

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
from mochi_server.mcp.schema_checks import SchemaChecks
from mochi_server.mcp.server_task import McpServer
from mochi_server.tools.discovery import RESERVED_NAMES, Tool, ToolCatalogue
from mochi_server.tools.execution import ToolContent, ToolRaised, shorten
from mochi_server.tools.loader import Problem

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 5
"""Maximum seconds to wait for MCP servers to connect before the tools are listed. Slower servers connect later."""
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_LENGTH = 64


class McpServers:
    """Manager of the MCP servers in ``mcp.json``. Tools of these servers cannot have a name in ``reserved``."""

    def __init__(self, directory: Path | None, reserved: Iterable[str] = ()) -> None:
        """``directory`` contains ``mcp.json``. If it is None, there are no servers."""
        self._directory = directory
        self._reserved = RESERVED_NAMES | set(reserved)
        self.config = McpConfig()
        """Content of ``mcp.json`` when it was last read."""
        self._checks = SchemaChecks()
        self._is_open = False
        self._servers: dict[str, McpServer] = {}
        self._retired: list[McpServer] = []
        self._owners: dict[str, tuple[str, str]] = {}
        """Server and original name of the tool that owns each name. The server "" stands for the tools directory.

        A name never passes to another tool, so that sessions and waiting calls cannot reach a tool of another server.
        """
        self._wait_until = 0.0
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Start connecting to the servers, without waiting for them. Repeated calls have no effect."""
        async with self._lock:
            if not self._is_open:
                await self._start()

    async def reload(self) -> None:
        """Read ``mcp.json`` again and reconnect to all servers. Running calls continue on their old connections."""
        async with self._lock:
            await self._start()

    async def add_tools(self, catalogue: ToolCatalogue) -> ToolCatalogue:
        """Return a copy of ``catalogue`` with the tools, groups and problems of the MCP servers added."""
        await self.open()
        pending = [opened for server in self._servers.values() if not (opened := server.session.opened).done()]
        seconds = self._wait_until - asyncio.get_running_loop().time()
        if pending and seconds > 0:
            await asyncio.wait(pending, timeout=seconds)
        tools, groups = dict(catalogue.tools), dict(catalogue.groups)
        self._owners |= {name: ("", name) for name in tools}
        problems = [*catalogue.problems, *self.config.problems]
        for name, server in self._servers.items():
            server_tools, messages = self._tools_of(server, tools)
            group = name
            while group in groups:
                group = f"mcp:{group}"  # no group of the tools directory has such a name
            groups[group] = list(server_tools)
            if group != name:
                messages.append(f"a tool group already has this name; the group of the server is {group!r}")
            tools |= server_tools
            problems += [Problem(name, f"MCP server {server.location}: {message}") for message in messages]
        return ToolCatalogue(tools, groups, tuple(problems))

    async def aclose(self) -> None:
        """Close all connections and stop the local servers."""
        async with self._lock:
            servers = [*self._servers.values(), *self._retired]
            self._servers, self._retired, self.config, self._is_open = {}, [], McpConfig(), True
            await asyncio.gather(*(server.aclose() for server in servers))
            await self._checks.aclose()

    async def _start(self) -> None:
        self.config = config = await anyio.to_thread.run_sync(read_config, self._directory)
        self._is_open, old = True, self._servers
        self._owners = {name: owner for name, owner in self._owners.items() if owner[0] in {"", *config.servers}}
        self._servers = {
            name: McpServer(name, server, self._directory, self._checks)
            for name, server in config.servers.items()
            if self._directory
        }
        for problem in config.problems:
            logger.warning("MCP problem file=%s directory=%s: %s", problem.name, self._directory, problem.message)
        self._wait_until = asyncio.get_running_loop().time() + START_TIMEOUT_SECONDS
        # Stop the old servers first, because they may have exclusive use of a file or port.
        await asyncio.gather(*(server.retire() for server in old.values()))
        self._retired = [server for server in (*self._retired, *old.values()) if not server.closed]
        for server in self._servers.values():
            server.start()

    def _tools_of(self, server: McpServer, taken: dict[str, Tool]) -> tuple[dict[str, Tool], list[str]]:
        """Return the tools of ``server`` by name, and the problems of the server. None of the names is in ``taken``."""
        tools: dict[str, Tool] = {}
        problems = server.problems
        used = {*taken, *self._reserved}
        for tool in server.tools:
            names = [_INVALID_CHARACTERS.sub("_", text) for text in (tool.name, f"{server.name}_{tool.name}")]
            owner = (server.name, tool.name)
            free = [name for name in names if name not in used and self._owners.get(name, owner) == owner]
            name = next((name for name in free if 0 < len(name) <= _MAX_NAME_LENGTH), None)
            if name is None:
                problems.append(f"its tool {shorten(tool.name, 100)!r} is ignored: its name is in use or too long")
            else:
                used.add(name)
                self._owners[name] = owner
                tools[name] = Tool(
                    name,
                    partial(self._call, server.name, tool.name),
                    replace(tool.schema, name=name),
                    read_only=tool.read_only,
                    source=f"mcp:{quote(server.name, safe='')}/{tool.name}",
                )
        return tools, problems

    async def _call(self, server: str, tool: str, arguments: dict[str, Any]) -> ToolContent:
        if server not in self._servers:
            raise ToolRaised(f"the MCP server {server} was removed from the configuration")
        return await self._servers[server].call(tool, arguments)
