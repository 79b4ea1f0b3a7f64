"""API documentation: the OpenAPI document, the entry page `/` and the page `/docs`.

The server itself serves the scripts of the page, so that browsers need no other site.
"""

import html
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic.json_schema import models_json_schema

from mochi_server import __version__
from mochi_server.constants import API_PREFIX
from mochi_server.schemas.chat import CHAT_EVENTS
from mochi_server.schemas.common import MESSAGE_PLACEHOLDER, REFERENCE, ErrorEnvelope, StoredMessage
from mochi_server.schemas.models import COMPARE_EVENTS
from mochi_server.schemas.sessions import SessionImport
from mochi_server.web.requests import Protocol

_ASSETS = "/docs/assets"
_LINKS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "api": API_PREFIX,
    "health": f"{API_PREFIX}/health",
}
PUBLIC_PAGES = frozenset(
    (
        "/",
        "/docs",
        f"{_ASSETS}/swagger-ui-bundle.js",
        f"{_ASSETS}/swagger-ui.css",
        f"{_ASSETS}/favicon.png",
    )
)
"""Paths that require no API key. The page `/docs` asks for a key before it shows the API."""

_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of the pages. Other sites cannot frame them, and browsers do not guess the content
type.
"""

TAGS = {
    "chat": "Send messages, stream answers, approve tool calls and stop turns.",
    "sessions": "Create, list, change, import and export sessions: settings, messages and "
    "summaries.",
    "models": "List the chat models of Ollama and compare up to three of them.",
    "tools": "List the tools that models may call, and the latest tool calls.",
    "agents": "List the agents and their sessions. An agent is a model with its own prompt and "
    "tools.",
    "system prompts": "Read and write prompt files.",
    "usage": "Get the tokens that API keys have used.",
    "health": "Check the server, and get its metrics.",
}
"""Descriptions of the tags of the native API, in the order in which `/docs` shows them."""

_DESCRIPTION = """
Sessions, streaming, tool calls with approval, agents and automatic context windows.

**Streams** are server-sent events. The body of a `text/event-stream` response is text. The schemas
`ChatStreamEvent` and `CompareStreamEvent` describe one event: `event` is its name, and `data` is
JSON. Ignore events with unknown names, because new events may be added.

**Errors** have the envelope `{"error": {"code", "message", "details"}}`, except under `/v1`.
"""
_SPELLINGS = {"openai": "OpenAI", "ai sdk": "AI SDK", "ag ui": "AG-UI"}
"""Names of products in summaries, by their forms in small letters."""
_SECURITY = {
    "type": "http",
    "scheme": "bearer",
    "description": "API key. It is required if the server has keys.",
}


def add_docs(app: FastAPI) -> None:
    """Add the entry page, the OpenAPI document, the page `/docs` and its scripts to an app."""
    for path in ("/", API_PREFIX):
        app.add_route(path, _entry, include_in_schema=False)
    app.mount(_ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))
    app.add_route("/openapi.json", _openapi, include_in_schema=False)
    app.add_route("/docs", _swagger, include_in_schema=False)


async def _entry(request: Request) -> Response:
    """Redirect browsers to `/docs`. Send other clients the version and the links of the API."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(_url(request, "/docs"), headers={"Vary": "Accept"})
    links = {name: _url(request, path) for name, path in _LINKS.items()}
    content = {"name": "mochi-server", "version": __version__, "links": links}
    return JSONResponse(content, headers={"Vary": "Accept"})


def _openapi(request: Request) -> JSONResponse:
    """Send the OpenAPI document.

    Starlette calls this function in a thread: making the document can take a second.
    """
    openapi = request.app.openapi()
    root = _url(request, "")
    if root:
        openapi = openapi | {"servers": [{"url": root}]}
    return JSONResponse(openapi)


async def _swagger(request: Request) -> HTMLResponse:
    page = files("mochi_server.web") / "docs_page.html"
    root = html.escape(_url(request, ""))
    text = Template(page.read_text("utf-8")).substitute(root=root)
    return HTMLResponse(text, headers=_HEADERS)


def _url(request: Request, path: str) -> str:
    """Return ``path`` with the path prefix of a reverse proxy (``root_path``) in front."""
    return str(request.scope.get("root_path", "")).rstrip("/") + path


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app.

    Use ``app.openapi()``, which calls this function once and stores the document.
    """
    protocols: list[Protocol] = app.state.protocols
    tags = dict(TAGS)
    for protocol in protocols:
        if protocol.description:
            tags[str(protocol.router.tags[0])] = protocol.description
    openapi = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.description,
        description=_DESCRIPTION.strip(),
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in tags.items()],
    )
    components = openapi["components"]
    components["schemas"] = _schemas(components["schemas"], protocols)
    components["securitySchemes"] = {"apiKey": _SECURITY}
    openapi["security"] = [{}, {"apiKey": []}]
    for path in openapi["paths"].values():
        for operation in path.values():
            operation["summary"] = _summary(operation["summary"])
    return openapi


def _schemas(of_routes: dict[str, Any], protocols: Sequence[Protocol]) -> dict[str, Any]:
    """Return the schemas of the document, sorted by name.

    Further schemas replace those of the routes that have the same names.
    """
    # Routes refer to these models by name.
    models = {StoredMessage, ErrorEnvelope, *(protocol.errors.envelope for protocol in protocols)}
    _, generated = models_json_schema(
        [(model, "serialization") for model in models], ref_template=REFERENCE + "{model}"
    )
    # Null defaults are omitted, as in FastAPI's own schemas.
    referenced = jsonable_encoder(generated["$defs"], exclude_none=True)
    schemas = _with_message_references(of_routes)
    schemas |= referenced
    schemas |= SessionImport.schemas()
    schemas |= COMPARE_EVENTS.schemas()
    schemas |= CHAT_EVENTS.schemas()
    return dict(sorted(schemas.items()))


def _summary(name: str) -> str:
    """Return the name of a route in sentence case, with names of products spelled correctly."""
    summary = name.capitalize()  # all other letters become small, as in `_SPELLINGS`
    for word, written in _SPELLINGS.items():
        summary = summary.replace(word, written)
    return summary


def _with_message_references(schema: Any) -> Any:
    """Return ``schema`` with each ``MESSAGE_PLACEHOLDER`` replaced by a reference to the schema
    `StoredMessage`.
    """
    if schema == MESSAGE_PLACEHOLDER:
        return {"$ref": REFERENCE + StoredMessage.__name__}
    if isinstance(schema, dict):
        return {key: _with_message_references(value) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_with_message_references(value) for value in schema]
    return schema
