"""The pages `/docs` and `/redoc`, which load nothing from elsewhere: their scripts come with a package."""

from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

_ASSETS = "/docs/assets"
_LOOKS = {"docExpansion": "list", "defaultModelsExpandDepth": 0, "displayRequestDuration": True, "filter": True}
_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff"}


def add_docs(app: FastAPI) -> None:
    """Serve both pages. The package of the scripts is not imported, only read."""
    app.mount(_ASSETS, StaticFiles(directory=str(files("fastapi_offline") / "static")))
    app.add_route("/docs", _swagger, include_in_schema=False)
    app.add_route("/redoc", _redoc, include_in_schema=False)


async def _swagger(request: Request) -> HTMLResponse:
    return _protected(
        get_swagger_ui_html(
            openapi_url=_at(request, "/openapi.json"),
            title="mochi-server",
            swagger_js_url=_at(request, f"{_ASSETS}/swagger-ui-bundle.js"),
            swagger_css_url=_at(request, f"{_ASSETS}/swagger-ui.css"),
            swagger_favicon_url=_at(request, f"{_ASSETS}/favicon.png"),
            swagger_ui_parameters=_LOOKS,
        )
    )


async def _redoc(request: Request) -> HTMLResponse:
    return _protected(
        get_redoc_html(
            openapi_url=_at(request, "/openapi.json"),
            title="mochi-server",
            redoc_js_url=_at(request, f"{_ASSETS}/redoc.standalone.js"),
            redoc_favicon_url=_at(request, f"{_ASSETS}/favicon.png"),
            with_google_fonts=False,
        )
    )


def _protected(page: HTMLResponse) -> HTMLResponse:
    """Forbid other sites to frame the page, and browsers to guess its type."""
    page.headers.update(_HEADERS)
    return page


def _at(request: Request, path: str) -> str:
    """The path behind a proxy that adds one before it."""
    return f"{request.scope.get('root_path', '').rstrip('/')}{path}"
