"""Entry page `/` (also at the prefix of the API), and the API documentation at `/docs` and `/redoc`.

The server itself serves the scripts of the documentation, so that browsers need no other site.
"""

import html
from importlib.resources import files
from string import Template

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_redoc_html
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from mochi_server import __version__
from mochi_server.constants import API_PREFIX

_ASSETS = "/docs/assets"
_LINKS = {"docs": "/docs", "openapi": "/openapi.json", "api": API_PREFIX, "health": f"{API_PREFIX}/health"}
_PUBLIC_ASSETS = (f"{_ASSETS}/{name}" for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"))
PUBLIC_PAGES = frozenset(("/", "/docs", *_PUBLIC_ASSETS))
"""Paths that require no API key. The page `/docs` asks for a key before it shows the API."""

_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff"}
"""Headers that prevent other sites from framing the pages, and browsers from guessing the content type."""


def add_docs(app: FastAPI) -> None:
    """Add the entry page, the pages `/docs` and `/redoc`, and the scripts of these pages to an app."""
    for path in ("/", API_PREFIX):
        app.add_route(path, _entry, include_in_schema=False)
    app.mount(_ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))
    app.add_route("/docs", _swagger, include_in_schema=False)
    app.add_route("/redoc", _redoc, include_in_schema=False)


async def _entry(request: Request) -> Response:
    """Redirect browsers to `/docs`. Send other clients the version and the links of the API."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(_url(request, "/docs"), headers={"Vary": "Accept"})
    links = {name: _url(request, path) for name, path in _LINKS.items()}
    content = {"name": "mochi-server", "version": __version__, "links": links}
    return JSONResponse(content, headers={"Vary": "Accept"})


async def _swagger(request: Request) -> HTMLResponse:
    template = Template((files("mochi_server.web") / "docs_page.html").read_text("utf-8"))
    return HTMLResponse(template.substitute(root=html.escape(_url(request, ""))), headers=_HEADERS)


async def _redoc(request: Request) -> HTMLResponse:
    page = get_redoc_html(
        openapi_url=_url(request, "/openapi.json"),
        title="mochi-server",
        redoc_js_url=_url(request, f"{_ASSETS}/redoc.standalone.js"),
        redoc_favicon_url=_url(request, f"{_ASSETS}/favicon.png"),
        with_google_fonts=False,
    )
    page.headers.update(_HEADERS)
    return page


def _url(request: Request, path: str) -> str:
    """Return ``path`` with the path prefix of a reverse proxy (``root_path``) in front."""
    return str(request.scope.get("root_path", "")).rstrip("/") + path
