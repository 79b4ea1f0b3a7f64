"""Authorization of this server at MCP servers with OAuth, and the states of the MCP servers."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from mochi_server.errors import (
    McpAuthorizationFailed,
    McpAuthorizationUnavailable,
    McpServerNotFound,
)
from mochi_server.mcp.config import RemoteServer
from mochi_server.mcp.pending import SUCCESS, PendingAuthorization, Redirect
from mochi_server.mcp.servers import McpServer, McpServers
from mochi_server.mcp.session import McpSession
from mochi_server.sessions.audit import audit
from mochi_server.sessions.caller import CALLER
from mochi_server.tools.discovery import ToolCatalogue
from mochi_server.util.imports import import_in_thread
from mochi_server.util.tasks import cancel_and_wait, start_in

McpState = Literal["connected", "connecting", "needs_authorization", "failed"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class McpServerState:
    """State of one MCP server. ``problems`` are texts without secrets."""

    name: str
    location: str
    transport: Literal["stdio", "http", "sse"]
    state: McpState
    is_authorized: bool
    tools: int
    problems: list[str]


class McpAuthorizations:
    """Authorizations of the MCP servers of one manager."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers
        self._tasks: set[asyncio.Future[Any]] = set()

    async def states(self, catalogue: ToolCatalogue) -> list[McpServerState]:
        """Return the states of the MCP servers, in the order of ``mcp.json``.

        ``catalogue`` contains the tools that the current caller may use. If its key limits them,
        servers without such tools are left out, unless the caller sees everything.
        """
        await self._servers.settle()
        states = []
        for server in self._servers.all():
            state = await self._state_of(server)
            if CALLER.get().permissions.tools:
                sources = [tool.source or "" for tool in catalogue.tools.values()]
                count = sum(source.startswith(server.source) for source in sources)
                state = replace(state, tools=count, problems=[])  # the problems name tools
                if not count and not CALLER.get().sees_all:
                    continue
            states.append(state)
        return states

    async def authorize(self, name: str, callback_url: str) -> str:
        """Begin to authorize this server at an MCP server, and return the URL that a user opens in
        a browser.

        The authorization waits in the background until the browser is redirected to
        ``callback_url``. Raises ``McpServerNotFound``, ``McpAuthorizationUnavailable`` and
        ``McpAuthorizationFailed``.
        """
        server = await self._servers.get(name)
        config = _authorizable(server)
        session = server.new_session()
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # Imported here, because the import takes a second and needs an extra. Without the extra,
        # no server is configured.
        browser_authorization = await import_in_thread("mochi_server.mcp.browser_authorization")
        pending = PendingAuthorization(server.credentials)
        authorizing = browser_authorization.authorize(config, session, pending, callback_url, url)
        task = start_in(self._tasks, self._reconnect_after(authorizing, server, session))
        await asyncio.wait(
            {task, url},
            timeout=self._servers.limits.connect_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if url.done():
            audit("MCP authorization begun", server=name)
            return url.result()
        if task.done():  # without a URL, it has failed
            raise McpAuthorizationFailed(name, task.result())
        await cancel_and_wait([task])
        raise McpAuthorizationFailed(name, session.explain(TimeoutError()))

    async def finish(self, redirect: Redirect) -> str:
        """Pass the redirect of a browser to the authorization that waits for it. Return the name of
        its MCP server when the authorization has succeeded.

        Raises ``McpAuthorizationFailed``.
        """
        seconds = self._servers.limits.connect_seconds
        await self._servers.open()
        for server in self._servers.all():
            pending = PendingAuthorization(server.credentials)
            outcome = await pending.pass_redirect(redirect, seconds)
            if outcome is None:  # the redirect belongs to another server
                continue
            if outcome != SUCCESS:
                raise McpAuthorizationFailed(server.name, outcome)
            return server.name
        raise McpAuthorizationFailed("?", "the link is unknown, used or expired; begin again")

    async def forget(self, name: str) -> None:
        """Remove the tokens of an MCP server, the registration of this client, and a pending
        authorization.

        A server with OAuth loses its tools and is connected again, which may need a user.

        Raises ``McpServerNotFound``.
        """
        server = await self._servers.get(name)
        await server.credentials.remove()
        audit("MCP authorization removed", server=name)
        if isinstance(server.config, RemoteServer) and server.config.uses_oauth:
            server.tools = []
            server.reconnect()

    async def aclose(self) -> None:
        """End the authorizations that wait for a user."""
        await cancel_and_wait(list(self._tasks))

    async def _reconnect_after(
        self,
        authorizing: Coroutine[Any, Any, None],
        server: McpServer,
        session: McpSession,
    ) -> str:
        """Run an authorization, and connect to the server again when it has succeeded.

        Return why it failed, or ``SUCCESS``.
        """
        try:
            await authorizing
        except Exception as error:
            reason = session.explain(error)
            logger.warning("MCP authorization failed server=%s: %s", server.name, reason)
            return reason
        logger.info("MCP authorization succeeded server=%s", server.name)
        with suppress(McpServerNotFound):  # removed from `mcp.json` meanwhile
            current = await self._servers.get(server.name)  # a reload may have replaced it
            current.reconnect()
        return SUCCESS

    async def _state_of(self, server: McpServer) -> McpServerState:
        return McpServerState(
            name=server.name,
            location=server.location,
            transport=server.transport,
            state=_connection_state(server.session),
            is_authorized=await server.credentials.has_tokens(),
            tools=len(server.tools),
            problems=server.problems,
        )


def _connection_state(session: McpSession) -> McpState:
    """Return the state of a connection.

    Automatic attempts after a failed or ended connection do not count as ``connecting``.
    """
    if session.problem is None:
        return "connected"
    if session.problem == session.authorization_advice:
        return "needs_authorization"
    return "connecting" if session.is_connecting else "failed"


def _authorizable(server: McpServer) -> RemoteServer:
    """Return the configuration of a server that a user can authorize.

    Raises ``McpAuthorizationUnavailable``.
    """
    config = server.config
    if not isinstance(config, RemoteServer):
        raise McpAuthorizationUnavailable(server.name, "it is a program, not a remote server")
    if not config.uses_oauth:
        reason = "its entry in mcp.json has the header Authorization. Remove the header"
        raise McpAuthorizationUnavailable(server.name, reason)
    if config.oauth is not None and config.oauth.grant == "client_credentials":
        reason = "its entry in mcp.json has client credentials, which need no user"
        raise McpAuthorizationUnavailable(server.name, reason)
    return config
