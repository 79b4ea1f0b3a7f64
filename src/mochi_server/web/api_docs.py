"""Pages `/docs` and `/redoc`. Their scripts come from an installed package, not from another site."""

from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

_ASSETS = "/docs/assets"
_SWAGGER = {"docExpansion": "list", "defaultModelsExpandDepth": 0, "displayRequestDuration": True, "filter": True}
_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff"}
"""Headers that prevent other sites from framing the pages, and browsers from guessing the content type."""


def add_docs(app: FastAPI) -> None:
    """Add the pages `/docs` and `/redoc` and their scripts to an app."""
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
        swagger_ui_parameters=_SWAGGER,
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
    """Return ``path`` with the path prefix of a reverse proxy (``root_path``) in front."""
    return str(request.scope.get("root_path", "")).rstrip("/") + path
