"""Authorization of an MCP server with a user in a browser.

Importing this module takes a second and needs the extra ``mcp``.
"""

import asyncio
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.shared.auth import AuthorizationCodeResult
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from mochi_server.mcp.config import RemoteServer
from mochi_server.mcp.http import http_client
from mochi_server.mcp.oauth import BrowserProvider
from mochi_server.mcp.pending import SUCCESS, PendingAuthorization, checked_code
from mochi_server.mcp.session import McpSession, OAuthFailed

_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
"""Message that needs no session. Only its refusal matters."""
_METHODS = {None: ("POST", "GET"), "sse": ("GET",)}
"""Methods of the requests that the server may refuse, by the configured transport."""
_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": LATEST_HANDSHAKE_VERSION,
}


@dataclass(frozen=True)
class _Browser:
    """Browser of a user, which is known by its redirect to the callback URL."""

    callback_url: str
    pending: PendingAuthorization
    shown_url: "asyncio.Future[str]"

    async def show(self, url: str) -> None:
        await self.pending.begin(_state_parameter(url))
        self.shown_url.set_result(url)

    async def wait(self) -> AuthorizationCodeResult:
        redirect = await self.pending.wait_for_redirect(_state_parameter(self.shown_url.result()))
        code = checked_code(redirect)
        return AuthorizationCodeResult(code=code, state=redirect.state, iss=redirect.iss)


async def authorize(
    server: RemoteServer,
    session: McpSession,
    pending: PendingAuthorization,
    callback_url: str,
    shown_url: "asyncio.Future[str]",
) -> None:
    """Authorize at an MCP server, and store the tokens.

    The server refuses a request without tokens, and the HTTP client then runs the authorization.
    ``shown_url`` receives the URL that the user opens. Raises an exception if the authorization
    fails; ``session`` explains it.
    """
    browser = _Browser(callback_url, pending, shown_url)
    provider = BrowserProvider(server, pending.credentials, session, browser)
    try:
        async with await http_client(server, session, provider) as client:
            for method in _METHODS.get(server.type, ("POST",)):
                content = _PING if method == "POST" else None
                request = client.build_request(method, server.url, json=content, headers=_HEADERS)
                response = await client.send(request, stream=True)
                await response.aclose()
                if shown_url.done():
                    break
        if not shown_url.done():
            raise OAuthFailed(_why_not_begun(response))
        outcome = SUCCESS
    except Exception as error:
        outcome = session.explain(error)
        raise
    except asyncio.CancelledError:
        outcome = "the server was stopped"
        raise
    finally:
        if shown_url.done() and not shown_url.cancelled():
            await pending.store_outcome(_state_parameter(shown_url.result()), outcome)


def _why_not_begun(response: httpx2.Response) -> str:
    if response.is_error:
        return f"it responded with HTTP status {response.status_code}, and not with 401"
    return "it does not require authorization"


def _state_parameter(url: str) -> str:
    """Return the state in the query of the URL of an authorization server."""
    return parse_qs(urlsplit(url).query)["state"][-1]
