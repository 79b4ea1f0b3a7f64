"""One MCP server: a task of its own opens its connection, holds it and closes it, for each connection a new one.

Whatever happens in that task is a problem of this server and of nobody else.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import ValidationError

from mochi_server.logs import Secrets
from mochi_server.mcp.config import LocalServer, ServerConfig
from mochi_server.mcp.limits import TooLarge
from mochi_server.tools.execution import Raised, shortened

if TYPE_CHECKING:
    from mochi_server.mcp.connection import Connection, Listener
    from mochi_server.mcp.described import Described

    Connect = Callable[[ServerConfig, str | None, Listener], AbstractAsyncContextManager[Connection]]

CONNECT_SECONDS = 30
_REST_SECONDS = 0.2
"""Before the tools of a server are listed again, which may say that they have changed whenever they are."""
_LONGEST_TEXT = 500

_CONNECTING = "it has not answered yet"
_HUNG_UP = "it ended without an answer; what it printed is in the log at the level DEBUG"
_LOST = "the connection has ended; the next call makes another"

logger = logging.getLogger(__name__)


class McpServer:
    """A server by its configuration. ``cwd`` is relative to ``directory``."""

    def __init__(self, name: str, config: ServerConfig, directory: Path) -> None:
        self.name = name
        self.tools: list[Described] = []
        self._odd_tools: list[str] = []
        self._config = config
        self._cwd = str(directory / config.cwd) if isinstance(config, LocalServer) and config.cwd else None
        self._secrets = Secrets(config.secrets())
        self._link = _Link()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed = False

    def start(self) -> None:
        """Begin to connect; later calls do it again where that is needed."""
        self._spawn(self._own(self._link))

    @property
    def problems(self) -> list[str]:
        """What is wrong now, in words, without secrets."""
        return [*filter(None, [self._link.problem]), *self._odd_tools]

    @property
    def opened(self) -> "asyncio.Future[Connection | None]":
        """Done when the newest attempt has come to something."""
        return self._link.opened

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool, over a new connection if there is none any more. Raises ``Raised``."""
        self._calls += 1
        self._idle.clear()
        try:
            connection = await self._connection()
            return await connection.call(tool, arguments)
        except Raised as error:
            raise Raised(self._masked(str(error))) from None
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def retire(self) -> None:
        """Close it: now, or where calls are under way, when they have ended."""
        if self._idle.is_set():
            await self.aclose()
        else:
            self._spawn(self._close_when_idle())

    async def aclose(self) -> None:
        """Close the connection, whoever uses it, and end the server if it was started here."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.closed = True

    async def _close_when_idle(self) -> None:
        await self._idle.wait()
        await self.aclose()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"mcp {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self) -> "Connection":
        if self._link.ended:
            self._link = _Link()
            self.start()
        link = self._link
        connection = await asyncio.shield(link.opened)
        if connection is None:
            raise Raised(f"the MCP server {self.name} cannot be reached: {link.problem}")
        return connection

    async def _own(self, link: "_Link") -> None:
        try:
            await self._hold(link)
            logger.warning("MCP server %s: %s", self.name, _LOST)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the SDK's task groups raise groups, of anything
            link.problem = self._in_words(error, link)
            logger.warning("MCP server %s: %s", self.name, link.problem)
        finally:
            link.end()

    async def _hold(self, link: "_Link") -> None:
        connect, listener = await asyncio.to_thread(_sdk)
        told = listener(changed=link.change, ended=link.end, refused=link.refuse, said=self._log)
        with anyio.fail_after(CONNECT_SECONDS) as patience:
            async with connect(self._config, self._cwd, told) as connection:
                self.tools, self._odd_tools = await connection.tools()
                patience.deadline = math.inf
                link.open(connection)
                logger.info("MCP server %s: connected, %d tools", self.name, len(self.tools))
                while await link.changed():
                    with anyio.fail_after(CONNECT_SECONDS):
                        self.tools, self._odd_tools = await connection.tools()
                    logger.info("MCP server %s: now %d tools", self.name, len(self.tools))

    def _in_words(self, error: BaseException, link: "_Link") -> str:
        while inner := getattr(error, "exceptions", None):
            error = inner[0]
        if isinstance(error, TimeoutError) and error.errno is None:
            return f"it did not answer within {CONNECT_SECONDS} seconds"
        if isinstance(error, TooLarge):
            return str(error)
        if link.ended:
            return _HUNG_UP
        if link.status is not None:
            return f"it answered with the HTTP status {link.status}"
        if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
            return f"it cannot be started: {error.strerror}"
        return shortened(self._masked(" ".join(_text_of(error).split())), _LONGEST_TEXT)

    def _log(self, line: str) -> None:
        if line:
            logger.debug("MCP server %s: %s", self.name, shortened(self._masked(line), _LONGEST_TEXT))

    def _masked(self, text: str) -> str:
        return str(self._secrets.mask(text))


def _text_of(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"it answered other than the protocol says: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class _Link:
    """One connection, from the attempt to its end."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self.problem: str | None = _CONNECTING
        self.ended = False
        self.status: int | None = None
        """With which a request was refused last."""
        self._news = asyncio.Event()

    def open(self, connection: "Connection") -> None:
        self.problem = None
        if not self.opened.done():
            self.opened.set_result(connection)

    def change(self) -> None:
        self._news.set()

    def refuse(self, status: int) -> None:
        self.status = status

    def end(self) -> None:
        self.ended = True
        self.problem = {None: _LOST, _CONNECTING: _HUNG_UP}.get(self.problem, self.problem)
        self._news.set()
        if not self.opened.done():
            self.opened.set_result(None)

    async def changed(self) -> bool:
        """Wait for news; False when the connection has ended."""
        await self._news.wait()
        if not self.ended:
            await asyncio.sleep(_REST_SECONDS)
        self._news.clear()
        return not self.ended


def _sdk() -> "tuple[Connect, type[Listener]]":
    from mochi_server.mcp.connection import Listener, connect  # noqa: PLC0415 - it takes a second, and is an extra

    return connect, Listener
