"""Routes under `/mcp`."""

from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from mochi_server.dependencies import ServicesDep
from mochi_server.errors import (
    McpAuthorizationFailed,
    McpAuthorizationUnavailable,
    McpServerNotFound,
    StorageFailed,
    ValidationFailed,
)
from mochi_server.mcp.pending import BROWSER_SECONDS, Redirect
from mochi_server.schemas.mcp import McpAuthorization, McpAuthorizationRequest, McpServerList
from mochi_server.web.routes import BodyReleasingRoute, PrefixRouter, Responses, responses

_MAX_PARAMETER = 4000
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>mochi-server</title>
<p>{text}</p></html>"""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the URL contains the code
}
_PAGES: Responses = {
    200: {
        "description": "Page for the user. If the authorization failed, the status is 400.",
        "content": {"text/html": {"schema": {"type": "string"}}},
    },
}

router = PrefixRouter(prefix="/mcp/servers", tags=["tools"])
callback_router = APIRouter(prefix="/mcp", tags=["tools"], route_class=BodyReleasingRoute)


@router.get("", response_model=McpServerList, responses=responses(StorageFailed))
async def list_mcp_servers(services: ServicesDep) -> dict[str, Any]:
    """List the MCP servers with their states."""
    catalogue = await services.tools.catalogue()
    return {"servers": await services.mcp_authorizations.states(catalogue)}


@router.post(
    "/{name:path}/authorize",  # names such as io.github.owner/server have slashes
    responses=responses(
        McpServerNotFound,
        McpAuthorizationUnavailable,
        McpAuthorizationFailed,
        ValidationFailed,
        StorageFailed,
    ),
)
async def authorize_mcp_server(
    name: str,
    request: Request,
    services: ServicesDep,
    body: McpAuthorizationRequest | None = None,
) -> McpAuthorization:
    """Begin to authorize this server at an MCP server, with OAuth.

    A user opens the returned URL in a browser, which then returns to `/api/v1/mcp/callback`.
    """
    callback_url = body.callback_url if body else None
    if callback_url is None:
        callback_url = str(request.url_for(finish_mcp_authorization.__name__))
    url = await services.mcp_authorizations.authorize(name, callback_url)
    return McpAuthorization(authorization_url=url, expires_in=BROWSER_SECONDS)


@router.delete(
    "/{name:path}/authorize",
    status_code=204,
    responses=responses(McpServerNotFound, StorageFailed),
)
async def forget_mcp_authorization(name: str, services: ServicesDep) -> None:
    """Forget the OAuth tokens of an MCP server, and end its connection."""
    await services.mcp_authorizations.forget(name)


@callback_router.get("/callback", response_class=HTMLResponse, responses=_PAGES)
async def finish_mcp_authorization(
    services: ServicesDep,
    state: Annotated[str, Query(max_length=_MAX_PARAMETER)] = "",
    code: Annotated[str, Query(max_length=_MAX_PARAMETER)] = "",
    iss: Annotated[str | None, Query(max_length=_MAX_PARAMETER)] = None,
    error: Annotated[str, Query(max_length=_MAX_PARAMETER)] = "",
) -> HTMLResponse:
    """Complete the authorization at an MCP server. The browser of the user sends this request.

    Requires no API key. The secret `state` shows that this server has begun the authorization.
    """
    redirect = Redirect(state=state, code=code, iss=iss, error=error)
    try:
        name = await services.mcp_authorizations.finish(redirect)
    except McpAuthorizationFailed as failure:
        return _page(failure.message, 400)
    return _page(f"mochi-server is authorized at the MCP server {name}. You can close this page.")


def _page(text: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(_PAGE.format(text=escape(text)), status, _HEADERS)
