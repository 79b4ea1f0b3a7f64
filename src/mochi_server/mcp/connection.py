"""One connection by the official SDK, opened and closed by the task that uses it as a context manager.

Importing this takes a second and needs the extra ``mcp``.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client._transport import Transport
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from mochi_server import __version__
from mochi_server.mcp.config import LocalServer, ServerConfig
from mochi_server.mcp.content import text_of
from mochi_server.mcp.described import Described, describe
from mochi_server.mcp.http import http
from mochi_server.mcp.stdio import stdio
from mochi_server.tools.execution import Raised

_MOST_TOOLS = 1000
_ENDED = frozenset({mcp_types.CONNECTION_CLOSED, mcp_types.INVALID_REQUEST})
"""Codes under which no call comes through any more: a session that the server has forgotten is an invalid request."""
_CLOSED = ("Connection closed", "SSE stream ")
"""What the SDK says when there will be no answer. Servers have errors of their own under the same code."""

for _name in ("mcp", "httpx2", "httpcore2"):  # they log URLs and messages; what fails, reaches us as an exception
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Listener:
    """Who is told what a server does by itself."""

    changed: Callable[[], None]
    """Its tools are others now."""
    ended: Callable[[], None]
    """No call comes through any more."""
    refused: Callable[[int], None]
    """A request got this HTTP status."""
    said: Callable[[str], None]
    """A line for its log."""


class Connection:
    """A server that has answered."""

    def __init__(self, client: Client, listener: Listener, *, forgets: bool) -> None:
        """``forgets`` says that the server may have lost what it knew of us, and tells so in its errors."""
        self._client = client
        self._listener = listener
        self._forgets = forgets

    async def tools(self) -> tuple[list[Described], list[str]]:
        """What it offers, and what of that cannot be used. Raises what the SDK raises."""
        listed: list[mcp_types.Tool] = []
        cursor = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > _MOST_TOOLS:
                break
        usable, problems = await anyio.to_thread.run_sync(describe, listed[:_MOST_TOOLS])
        if len(listed) > _MOST_TOOLS:
            problems.append(f"it offers more than {_MOST_TOOLS} tools; the others are left out")
        return usable, problems

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool. Raises ``Raised``; a call that is cancelled is cancelled at the server, too."""
        try:
            result = await self._client.call_tool(tool, arguments)
        except MCPError as error:
            closed = error.code == mcp_types.CONNECTION_CLOSED and error.message.startswith(_CLOSED)
            if closed or (self._forgets and error.code in _ENDED):
                self._listener.ended()
            raise Raised("the connection ended before there was an answer" if closed else error.message) from error
        except Exception as error:  # an answer that is none
            raise Raised(f"{type(error).__name__}: {error}") from error
        text = text_of(result)
        if result.is_error:
            raise Raised(text)
        return text

    async def listen(self) -> None:
        """Pass on that the tools have changed, from servers that have to be asked to tell it."""
        try:
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._listener.changed()
        except (ListenNotSupportedError, MCPError, SubscriptionLost):
            return


@asynccontextmanager
async def connect(server: ServerConfig, cwd: str | None, listener: Listener) -> AsyncGenerator[Connection, None]:
    """Connect to a server. Raises whatever the transport, the SDK and the server's answers give reason to."""

    async def noticed(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            listener.changed()

    streams: AbstractAsyncContextManager[object] = (
        stdio(server, cwd, listener.said, listener.ended)
        if isinstance(server, LocalServer)
        else http(server, listener.refused)
    )
    client = Client(
        cast("Transport", streams),
        message_handler=noticed,
        client_info=mcp_types.Implementation(name="mochi-server", version=__version__),
        cache=None,
    )
    async with client:
        connection = Connection(client, listener, forgets=not isinstance(server, LocalServer))
        async with anyio.create_task_group() as tasks:
            tools = client.server_capabilities.tools
            if tools is not None and tools.list_changed:
                tasks.start_soon(connection.listen)
            yield connection
            tasks.cancel_scope.cancel()
