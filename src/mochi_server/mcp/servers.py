"""MCP servers of a tools directory: the connection task of each server, and the names of their
tools.
"""

import asyncio
import logging
import math
import re
from collections.abc import Collection, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

import anyio

from mochi_server.errors import McpServerNotFound
from mochi_server.mcp.config import LocalServer, McpConfig, RemoteServer, ServerConfig, read_config
from mochi_server.mcp.credentials import Credentials
from mochi_server.mcp.limits import McpLimits
from mochi_server.mcp.session import DISCONNECTED, McpSession
from mochi_server.mcp.tool_mapping import McpTool
from mochi_server.sessions.store import SecretStore
from mochi_server.storage.memory import MemorySecretStore
from mochi_server.tools.discovery import RESERVED_NAMES, Tool, ToolCatalogue
from mochi_server.tools.execution import ToolContent, ToolRaised, shorten
from mochi_server.tools.loader import Problem
from mochi_server.util.imports import import_in_thread
from mochi_server.util.schema_checks import SchemaChecks
from mochi_server.util.tasks import start_in

if TYPE_CHECKING:
    from mochi_server.mcp.connection import McpConnection

_RELIST_DELAY_SECONDS = 0.2
"""Delay before the tools are listed again, so that a burst of change notifications causes one
request.
"""

_WITHOUT_STREAMABLE_HTTP = (400, 404, 405)
"""HTTP statuses with which servers of the transport SSE refuse a message, as MCP specifies."""

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_LENGTH = 64

logger = logging.getLogger(__name__)


class McpServer:
    """An MCP server from ``mcp.json``. ``cwd`` in ``config`` is relative to ``directory``."""

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        directory: Path,
        *,
        checks: SchemaChecks,
        limits: McpLimits,
        credentials: Credentials,
    ) -> None:
        self.name = name
        self.location = config.location
        self.tools: list[McpTool] = []
        self.has_inherited_tools = False
        self.closed = False
        self._tool_problems: list[str] = []
        self._list_problem: str | None = None
        self.config = config
        self.credentials = credentials
        self._checks = checks
        self._limits = limits
        self._cwd: str | None = None
        if isinstance(config, LocalServer) and config.cwd:
            self._cwd = str(directory / config.cwd)
        self.session = self.new_session()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._calls = 0
        self._pause = limits.retry_seconds
        self._is_retired = False

    @property
    def source(self) -> str:
        """Beginning of the ``source`` of each of its tools."""
        return f"mcp:{quote(self.name, safe='')}/"

    @property
    def problems(self) -> list[str]:
        """Current problems of the server, with its secrets masked."""
        return [*filter(None, [self.session.problem or self._list_problem]), *self._tool_problems]

    def inherit_tools(self, old: "McpServer | None") -> None:
        """Offer the tools from before a reload until this server has listed its own or failed to
        connect, if its configuration is equal.
        """
        if old is not None and old.config == self.config:
            self.has_inherited_tools = True
            self.tools = old.tools
            self._tool_problems = old._tool_problems

    def _drop_inherited_tools(self) -> None:
        if self.has_inherited_tools:
            self.has_inherited_tools = False
            self.tools = []
            self._tool_problems = []

    def start(self) -> None:
        """Start connecting.

        If the connection ends, the next call reconnects, or a remote server after a pause.
        """
        self._spawn(self._run(self.session))

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolContent:
        """Call a tool and return its result.

        Reconnect first if needed. Raises ``ToolRaised`` if the call fails.
        """
        self._calls += 1
        try:
            if self.session.ended:
                self._reconnect_with_problem()
            session = self.session
            send = await asyncio.shield(session.opened)
            if send is None:
                raise ToolRaised(f"the MCP server {self.name} cannot be reached: {session.problem}")
            content = await send(tool, arguments)
            return replace(content, text=self.credentials.token_masker.mask(content.text))
        except ToolRaised as error:
            raise ToolRaised(self.credentials.masker.mask(str(error))) from None
        finally:
            self._calls -= 1
            if self._is_retired and not self._calls:
                self._spawn(self.aclose())

    def new_session(self) -> McpSession:
        """Return the state of a new connection."""
        is_remote = isinstance(self.config, RemoteServer)
        masker = self.credentials.masker
        return McpSession(self.name, masker, self._limits, is_remote=is_remote)

    def reconnect(self) -> None:
        """End the connection, and start to connect anew at once."""
        self.session.end()
        self._pause = self._limits.retry_seconds
        self.session = self.new_session()
        self.start()

    @property
    def transport(self) -> Literal["stdio", "http", "sse"]:
        """Transport of the connection."""
        if not isinstance(self.config, RemoteServer):
            return "stdio"
        return "sse" if self.config.type == "sse" or self.session.over_sse else "http"

    async def retire(self) -> None:
        """Close the connection as soon as all running calls have ended."""
        self._is_retired = True
        if not self._calls:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, even during calls, and stop a local server."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.closed = True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        start_in(self._tasks, work).set_name(f"mcp {self.name}")

    def _reconnect_with_problem(self) -> None:
        """Start to connect anew, and keep the problem until that has succeeded.

        If the attempt fails with the same problem, it is not logged again.
        """
        self.session = replace(self.new_session(), problem=self.session.problem)
        self.start()

    async def _run(self, session: McpSession) -> None:
        """Connect, and return when the connection has failed or ended.

        Reconnect to a remote server after a pause.
        """
        try:
            await self._connect(session)
            logger.warning("MCP connection closed server=%s: %s", self.name, DISCONNECTED)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # task groups can raise groups of any exceptions
            self._drop_inherited_tools()
            known = session.problem
            session.problem = session.explain(error)
            # An attempt that fails like the previous one is not logged again.
            if session.problem != known:
                logger.warning(
                    "MCP connection failed server=%s location=%s: %s",
                    self.name,
                    self.location,
                    session.problem,
                )
        finally:
            session.end()
        if isinstance(self.config, RemoteServer):
            pause = self._pause
            self._pause = min(2 * pause, self._limits.max_retry_seconds)
            await asyncio.sleep(pause)
            has_reconnected = session is not self.session  # meanwhile, for example for a call
            if not has_reconnected and not self._is_retired:
                self._reconnect_with_problem()

    async def _connect(self, session: McpSession) -> None:
        """Connect, and return when the connection has ended.

        If a remote server refuses streamable HTTP, use SSE, unless the configuration names a
        transport.
        """
        config = self.config
        try:
            await self._connect_over(session, config)
        except Exception:
            if not isinstance(config, RemoteServer) or config.type is not None:
                raise
            if session.opened.done() or session.error_status not in _WITHOUT_STREAMABLE_HTTP:
                raise
            session.over_sse = True
            await self._connect_over(session, config.over_sse())

    async def _connect_over(self, session: McpSession, config: ServerConfig) -> None:
        """Connect, list the tools, open the session, and return when the connection has ended."""
        # Imported here, because the import takes a second and needs an extra.
        connection_module = await import_in_thread("mochi_server.mcp.connection")
        with session.connect_timeout() as timeout:
            async with connection_module.connect(
                config, self._cwd, session, self.credentials
            ) as connection:
                await self._list_tools(connection)
                timeout.deadline = math.inf
                session.open(connection.call)
                self._pause = self._limits.retry_seconds
                await self._list_after_changes(session, connection)

    async def _list_after_changes(self, session: McpSession, connection: "McpConnection") -> None:
        """List the tools again after each change, until the connection ends.

        If that fails, try again after a growing pause.
        """
        pause = self._limits.retry_seconds
        while True:
            with anyio.move_on_after(pause if self._list_problem else math.inf):
                await session.changed.wait()  # for a change or the end
            await asyncio.sleep(_RELIST_DELAY_SECONDS)
            session.changed.clear()
            if session.ended:
                return
            await self._list_changed_tools(session, connection)
            pause = min(2 * pause, self._limits.max_retry_seconds)
            if self._list_problem is None:
                pause = self._limits.retry_seconds

    async def _list_changed_tools(self, session: McpSession, connection: "McpConnection") -> None:
        """List the tools again. If that fails, keep the earlier list and the connection.

        Raises the error if the connection is lost, or needs authorization.
        """
        try:
            with session.connect_timeout():
                await self._list_tools(connection)
        except Exception as error:
            reason = connection.reason_of_failure(error)  # ends the session if it is lost
            if session.ended or session.needs_authorization:
                raise
            if isinstance(error, TimeoutError):
                reason = session.explain(error)
            known = self._list_problem
            self._list_problem = f"its changed tools could not be listed: {session.shown(reason)}"
            # A list that fails like the previous one is not logged again.
            if self._list_problem != known:
                logger.warning("MCP tools not listed server=%s: %s", self.name, self._list_problem)

    async def _list_tools(self, connection: "McpConnection") -> None:
        self.tools, problems = await connection.tools(self._checks)
        self._tool_problems = self.credentials.masker.mask(problems)
        self.has_inherited_tools = False
        self._list_problem = None
        logger.info("MCP tools listed server=%s count=%d", self.name, len(self.tools))


class McpServers:
    """Manager of the MCP servers in ``mcp.json`` of a directory.

    Their tools cannot have a name in ``reserved``.
    """

    def __init__(
        self,
        directory: Path | None,
        reserved: Iterable[str] = (),
        limits: McpLimits | None = None,
        checks: SchemaChecks | None = None,
        secrets: SecretStore | None = None,
    ) -> None:
        """``checks`` are closed with the servers."""
        self._directory = directory
        self._reserved = RESERVED_NAMES | set(reserved)
        self.config = McpConfig()  # content of mcp.json when it was last read
        self.checks = checks or SchemaChecks()
        self._secrets = secrets or MemorySecretStore()
        self.limits = limits or McpLimits()
        self._is_open = False
        self._servers: dict[str, McpServer] = {}
        self._retired: list[McpServer] = []
        self._owners: dict[str, tuple[str, str]] = {}
        """Server ("" for the tools directory) and original name of the tool that owns each name.

        A name passes to a tool of another server only after its server has left ``mcp.json``, so
        that sessions and waiting calls cannot reach a wrong tool. The tools directory owns the name
        of each of its tools, even if a server owned it before.
        """
        self._wait_until = 0.0
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Start connecting to the servers, without waiting for them.

        Repeated calls have no effect.
        """
        async with self._lock:
            if not self._is_open:
                await self._start()

    async def reload(self) -> None:
        """Read ``mcp.json`` again and reconnect to all servers.

        Running calls continue on their old connections.
        """
        async with self._lock:
            await self._start()
        await self._wait_until_connected(self._servers.values())

    async def settle(self) -> None:
        """Open the servers, and wait until they have connected, at most for the limit of the
        start.
        """
        await self.open()
        await self._wait_until_connected(self._servers.values())

    def all(self) -> list[McpServer]:
        """Return the servers in the order of ``mcp.json``."""
        return list(self._servers.values())

    async def get(self, name: str) -> McpServer:
        """Return a server. Raises ``McpServerNotFound``."""
        await self.open()
        if name not in self._servers:
            raise McpServerNotFound(name)
        return self._servers[name]

    async def add_tools(self, catalogue: ToolCatalogue) -> ToolCatalogue:
        """Return a copy of ``catalogue`` with the tools, groups and problems of the MCP servers
        added.

        Open the servers, and wait until they have connected, at most for the limit of the start.
        Servers that still offer their tools from before a reload are not waited for. All tools of
        the result own their names from now on.
        """
        await self.open()
        await self._wait_until_connected(
            server for server in self._servers.values() if not server.has_inherited_tools
        )
        tools = dict(catalogue.tools)
        groups = dict(catalogue.groups)
        self._owners |= {name: ("", name) for name in tools}
        problems = [*catalogue.problems, *self.config.problems]
        for name, server in self._servers.items():
            server_tools, messages = self._tools_of(server, tools)
            group = name
            while group in groups:
                group = f"mcp:{group}"  # no group of the tools directory has such a name
            groups[group] = list(server_tools)
            if group != name:
                messages.append(
                    f"a tool group already has this name; the group of the server is {group!r}"
                )
            tools |= server_tools
            problems += [
                Problem(name, f"MCP server {server.location}: {message}") for message in messages
            ]
        return ToolCatalogue(tools, groups, tuple(problems))

    async def wait_for(self, source: str) -> None:
        """Wait until the server in the ``source`` of a tool has connected, at most for the limit of
        its start.
        """
        await self.open()
        name = unquote(source.removeprefix("mcp:").partition("/")[0])
        if name in self._servers:
            await asyncio.wait(
                [self._servers[name].session.opened], timeout=self.limits.connect_seconds
            )

    async def aclose(self) -> None:
        """Close all connections and stop the local servers."""
        async with self._lock:
            servers = [*self._servers.values(), *self._retired]
            self._servers = {}
            self._retired = []
            self.config = McpConfig()
            self._is_open = True  # so that a late call does not start the servers again
            await asyncio.gather(*(server.aclose() for server in servers))
            await self.checks.aclose()

    async def _start(self) -> None:
        """Read ``mcp.json``, retire the earlier servers and start the listed ones."""
        self.config = config = await anyio.to_thread.run_sync(read_config, self._directory)
        self._is_open = True
        old = self._servers
        if config.names is not None:
            self._free_names_except({"", *config.names})
        self._servers = {
            name: McpServer(
                name,
                server,
                self._directory,
                checks=self.checks,
                limits=self.limits,
                credentials=Credentials.of(name, server, self._secrets),
            )
            for name, server in config.servers.items()
            if self._directory
        }
        for problem in config.problems:
            logger.warning(
                "MCP problem file=%s directory=%s: %s",
                problem.name,
                self._directory,
                problem.message,
            )
        self._wait_until = asyncio.get_running_loop().time() + self.limits.start_seconds
        # Stop the old servers first, because they may have exclusive use of a file or port.
        await asyncio.gather(*(server.retire() for server in old.values()))
        self._retired = [server for server in (*self._retired, *old.values()) if not server.closed]
        for name, server in self._servers.items():
            server.inherit_tools(old.get(name))
            server.start()

    def _free_names_except(self, servers: Collection[str]) -> None:
        """Free the names of the tools of all other servers."""
        self._owners = {name: owner for name, owner in self._owners.items() if owner[0] in servers}

    async def _wait_until_connected(self, servers: Iterable[McpServer]) -> None:
        opened = [server.session.opened for server in servers]
        pending = [future for future in opened if not future.done()]
        seconds = self._wait_until - asyncio.get_running_loop().time()
        if pending and seconds > 0:
            await asyncio.wait(pending, timeout=seconds)

    def _tools_of(
        self, server: McpServer, taken: dict[str, Tool]
    ) -> tuple[dict[str, Tool], list[str]]:
        """Return the tools of a server that have a free name, and the problems of the server.

        The tools own their names from now on.
        """
        tools: dict[str, Tool] = {}
        problems = server.problems
        used = {*taken, *self._reserved}
        for tool in server.tools:
            owner = (server.name, tool.name)
            name = self._free_name(owner, used)
            if name is None:
                shown = shorten(tool.name, 100)
                problems.append(f"its tool {shown!r} is ignored: its name is in use or too long")
                continue
            used.add(name)
            self._owners[name] = owner
            tools[name] = Tool(
                name,
                partial(self._call, server.name, tool.name),
                replace(tool.schema, name=name),
                read_only=tool.read_only,
                source=f"{server.source}{tool.name}",
            )
        return tools, problems

    def _free_name(self, owner: tuple[str, str], used: Collection[str]) -> str | None:
        """Return the name for a tool: its own, or else that with the server's name before it.

        Return None if neither is free and valid.
        """
        server, tool = owner
        for text in (tool, f"{server}_{tool}"):
            name = _INVALID_CHARACTERS.sub("_", text)
            is_free = name not in used and self._owners.get(name, owner) == owner
            if is_free and 0 < len(name) <= _MAX_NAME_LENGTH:
                return name
        return None

    async def _call(self, server: str, tool: str, arguments: dict[str, Any]) -> ToolContent:
        if server not in self._servers:
            raise ToolRaised(f"the MCP server {server} was removed from the configuration")
        return await self._servers[server].call(tool, arguments)
