"""Schemas of MCP servers."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from mochi_server.config import is_http_url
from mochi_server.mcp.authorizations import McpState
from mochi_server.schemas.common import Schema, StrictBody


def _checked_url(value: str) -> str:
    if not is_http_url(value) or "#" in value:
        raise ValueError("not an http:// or https:// URL without a fragment")
    return value


class McpServerInfo(Schema, from_attributes=True):
    """An MCP server of `mcp.json`.

    One that `needs_authorization` has refused a request without a valid token.
    """

    name: str
    location: str = Field(description="Program, or URL without credentials and query.")
    transport: Literal["stdio", "http", "sse"]
    state: McpState
    is_authorized: bool = Field(description="Whether OAuth tokens are stored.")
    tools: int = Field(description="Number of its tools.")
    problems: list[str]


class McpServerList(Schema):
    """All MCP servers, in the order of `mcp.json`."""

    servers: list[McpServerInfo]


class McpAuthorizationRequest(
    StrictBody,
    json_schema_extra={"examples": [{"callback_url": "https://chat.example/api/v1/mcp/callback"}]},
):
    """Where the browser of the user reaches this server."""

    callback_url: Annotated[str, AfterValidator(_checked_url)] | None = Field(
        None,
        max_length=2000,
        description="URL of `GET /api/v1/mcp/callback` for the browser of the user. The default "
        "has the host of this request.",
    )


class McpAuthorization(Schema):
    """An authorization that waits for a user."""

    authorization_url: str = Field(description="URL that the user opens in a browser.")
    expires_in: int = Field(description="How long the user has, in seconds.")
