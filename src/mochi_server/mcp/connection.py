"""Connection to an MCP server through the MCP SDK. Importing this module takes a second and needs the extra ``mcp``."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import ValidationError

from mochi_server import __version__
from mochi_server.mcp.config import LocalServer, RemoteServer, ServerConfig
from mochi_server.mcp.messages import MAX_TOOLS, MessageFilter
from mochi_server.mcp.schema_checks import SchemaChecks
from mochi_server.mcp.session import McpSession, MessageTooLarge, invalid_response
from mochi_server.mcp.tool_mapping import McpTool, content_of, map_tools
from mochi_server.mcp.transports import http, stdio
from mochi_server.tools.execution import ToolContent, ToolRaised

_SESSION_LOST_CODES = frozenset({mcp_types.CONNECTION_CLOSED, mcp_types.INVALID_REQUEST})
"""Error codes after which a remote session is unusable. A restarted server rejects requests of the old session."""
_FAILED_MESSAGES = ("Failed to parse JSON response: ", "SSE stream failed: ")
"""Prefixes of the SDK's messages for a response that the transport refused."""
_CLOSED_MESSAGES = ("Connection closed", "SSE stream ")
"""Prefixes of the SDK's messages for a closed connection. Servers use the same error code for other errors."""

for _name in ("mcp", "client", "httpx2", "httpcore2"):  # logs of the SDK contain URLs and messages, which may be secret
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class McpConnection:
    """An initialized connection to an MCP server."""

    client: Client
    session: McpSession
    filter: MessageFilter
    is_remote: bool

    async def tools(self, checks: SchemaChecks) -> tuple[list[McpTool], list[str]]:
        """Return the usable tools of the server, and the problems of its unusable tools. Raises errors of the SDK."""
        tools: list[mcp_types.Tool] = []
        cursor = None
        self.filter.start_listing()
        while True:
            page = await self.client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or self.filter.listed > MAX_TOOLS:
                break
        usable, problems = await map_tools(tools, checks)
        problems = [*self.filter.problems, *problems]
        if self.filter.listed > MAX_TOOLS:
            problems.append(f"it offers more than {MAX_TOOLS} tools; the others are ignored")
        return usable, problems

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolContent:
        """Call a tool and return its result. Raises ``ToolRaised`` if the call fails.

        If the calling task is cancelled, the call is also cancelled on the server.
        """
        try:
            result = await self.client.call_tool(tool, arguments)
        except MCPError as error:
            reason = error.message
            for prefix in _FAILED_MESSAGES:
                reason = reason.removeprefix(prefix)
            if self.session.received_too_much or reason == str(MessageTooLarge()):
                raise ToolRaised(f"{MessageTooLarge()}, which is the limit. Request a smaller result.") from error
            closed = error.code == mcp_types.CONNECTION_CLOSED and reason.startswith(_CLOSED_MESSAGES)
            if closed or (self.is_remote and reason == error.message and error.code in _SESSION_LOST_CODES):
                self.session.end()
            raise ToolRaised("the connection ended before the response" if closed else reason) from error
        except ValidationError as error:
            raise ToolRaised(invalid_response(error)) from error
        except Exception as error:  # another invalid response
            raise ToolRaised(f"{type(error).__name__}: {error}") from error
        content = await anyio.to_thread.run_sync(content_of, result)  # decodes and hashes images
        if result.is_error:
            raise ToolRaised(content.text)
        return content


@asynccontextmanager
async def connect(server: ServerConfig, cwd: str | None, session: McpSession) -> AsyncGenerator[McpConnection, None]:
    """Connect to an MCP server and yield the connection. Raises any error of the transport, the SDK or the server."""

    async def handle(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            session.changed.set()

    async def watch_tools() -> None:
        with suppress(ListenNotSupportedError, MCPError, SubscriptionLost):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    session.changed.set()

    streams: AbstractAsyncContextManager[Any] = (
        stdio(server, cwd, session) if isinstance(server, LocalServer) else http(server, session)
    )
    message_filter = MessageFilter(lambda: client.session.protocol_version or mcp_types.LATEST_PROTOCOL_VERSION)
    client = Client(
        cast("Transport", message_filter.wrap(streams)),
        message_handler=handle,
        client_info=mcp_types.Implementation(name="mochi-server", version=__version__),
        cache=None,
    )
    async with client, anyio.create_task_group() as tasks:
        tools = client.server_capabilities.tools
        if tools is not None and tools.list_changed:
            tasks.start_soon(watch_tools)
        yield McpConnection(client, session, message_filter, is_remote=isinstance(server, RemoteServer))
        tasks.cancel_scope.cancel()
