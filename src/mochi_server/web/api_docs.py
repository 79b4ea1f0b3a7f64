"""The pages `/docs` and `/redoc`. They load nothing from other sites: a package contains their scripts."""

from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

_ASSETS = "/docs/assets"
_LOOKS = {"docExpansion": "list", "defaultModelsExpandDepth": 0, "displayRequestDuration": True, "filter": True}
_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff"}
"""Other sites must not frame the pages, and browsers must not guess their type."""


def add_docs(app: FastAPI) -> None:
    """Serve both pages. The package of the scripts is read, not imported."""
    app.mount(_ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))
    app.add_route("/docs", _swagger, include_in_schema=False)
    app.add_route("/redoc", _redoc, include_in_schema=False)


async def _swagger(request: Request) -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url=_url(request, "/openapi.json"),
        title="mochi-server",
        swagger_js_url=_url(request, f"{_ASSETS}/swagger-ui-bundle.js"),
        swagger_css_url=_url(request, f"{_ASSETS}/swagger-ui.css"),
        swagger_favicon_url=_url(request, f"{_ASSETS}/favicon.png"),
        swagger_ui_parameters=_LOOKS,
    )
    page.headers.update(_HEADERS)
    return page


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
    """Return a path of this server below the path that a proxy adds before it."""
    return str(request.scope.get("root_path", "")).rstrip("/") + path
