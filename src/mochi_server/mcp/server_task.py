"""Connection task of one MCP server. Its errors are reported as problems of the server."""

import asyncio
import logging
import math
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mochi_server.mcp.config import LocalServer, RemoteServer, ServerConfig
from mochi_server.mcp.schema_checks import SchemaChecks
from mochi_server.mcp.session import DISCONNECTED, McpSession, limit_wait
from mochi_server.tools.execution import ToolContent, ToolRaised
from mochi_server.util.masking import SecretMasker

if TYPE_CHECKING:
    from mochi_server.mcp.connection import McpConnection
    from mochi_server.mcp.tool_mapping import McpTool

RETRY_SECONDS = 1.0
"""Pause before the first attempt to reconnect to a remote server. Each failure doubles the pause."""
MAX_RETRY_SECONDS = 60.0
_RELIST_DELAY_SECONDS = 0.2
"""Delay before the tools are listed again, so that a burst of change notifications causes one request."""
_MIN_SECRET_LENGTH = 4
"""Minimum length of a secret that is masked. Masking shorter values would make messages unreadable."""

logger = logging.getLogger(__name__)


class McpServer:
    """An MCP server from ``mcp.json``. ``cwd`` in ``config`` is relative to ``directory``."""

    def __init__(self, name: str, config: ServerConfig, directory: Path, checks: SchemaChecks) -> None:
        self.name = name
        self.location = config.location
        self.tools: list[McpTool] = []
        self.closed = False
        self._tool_problems: list[str] = []
        self._config = config
        self._checks = checks
        self._cwd = str(directory / config.cwd) if isinstance(config, LocalServer) and config.cwd else None
        self._secrets = SecretMasker(value for value in config.secrets() if len(value) >= _MIN_SECRET_LENGTH)
        self.session = McpSession(name, self._secrets)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls = 0
        self._pause = RETRY_SECONDS
        self._is_retired = False

    @property
    def problems(self) -> list[str]:
        """Current problems of the server, with its secrets masked."""
        return [*filter(None, [self.session.problem]), *self._tool_problems]

    def start(self) -> None:
        """Start connecting. If the connection ends, the next tool call reconnects.

        If the server is remote, the connection is also retried after a pause.
        """
        self._spawn(self._run(self.session))

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolContent:
        """Call a tool and return its result. Reconnect first if needed. Raises ``ToolRaised`` if the call fails."""
        self._calls += 1
        try:
            if self.session.ended:
                self._reconnect()
            session = self.session
            connection = await asyncio.shield(session.opened)
            if connection is None:
                raise ToolRaised(f"the MCP server {self.name} cannot be reached: {session.problem}")
            return await connection.call(tool, arguments)
        except ToolRaised as error:
            raise ToolRaised(self._secrets.mask(str(error))) from None
        finally:
            self._calls -= 1
            if self._is_retired and not self._calls:
                self._spawn(self.aclose())

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
        task = asyncio.get_running_loop().create_task(work, name=f"mcp {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _reconnect(self) -> None:
        self.session = McpSession(self.name, self._secrets, problem=self.session.problem)
        self.start()

    async def _run(self, session: McpSession) -> None:
        await self._use(session)
        if isinstance(self._config, RemoteServer):
            pause, self._pause = self._pause, min(2 * self._pause, MAX_RETRY_SECONDS)
            await asyncio.sleep(pause)
            if session is self.session and not self._is_retired:  # no call has reconnected meanwhile
                self._reconnect()

    async def _use(self, session: McpSession) -> None:
        """Connect to the server, and return when the connection has failed or ended."""
        try:
            await self._connect(session)
            logger.warning("MCP connection closed server=%s: %s", self.name, DISCONNECTED)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # task groups can raise groups of any exceptions
            known, session.problem = session.problem, session.explain(error)
            if session.problem != known:  # an attempt that fails like the previous one is not logged again
                logger.warning(
                    "MCP connection failed server=%s location=%s: %s", self.name, self.location, session.problem
                )
        finally:
            session.end()

    async def _connect(self, session: McpSession) -> None:
        # Imported here, because the import takes a second and needs an extra.
        connection_module = await asyncio.to_thread(import_module, "mochi_server.mcp.connection")
        with limit_wait() as timeout:
            async with connection_module.connect(self._config, self._cwd, session) as connection:
                await self._list_tools(connection)
                timeout.deadline = math.inf
                session.open(connection)
                self._pause = RETRY_SECONDS
                while True:
                    await session.changed.wait()
                    await asyncio.sleep(_RELIST_DELAY_SECONDS)
                    session.changed.clear()
                    if session.ended:
                        return
                    with limit_wait():
                        await self._list_tools(connection)

    async def _list_tools(self, connection: "McpConnection") -> None:
        self.tools, self._tool_problems = await connection.tools(self._checks)
        logger.info("MCP tools listed server=%s count=%d", self.name, len(self.tools))
