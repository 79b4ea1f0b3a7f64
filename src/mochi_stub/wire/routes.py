"""Route table of all provider APIs, and the responses of Ollama's Go web server for unknown paths and methods.

OpenAI, Anthropic and Gemini share paths below `/v1`. A header, or the query parameter `key`, identifies the clients of
Gemini and Anthropic. All other clients get OpenAI's responses.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from posixpath import normpath
from string import punctuation
from urllib.parse import quote

from mochi_stub.http.http_result import ANY, Handler, HttpResponse, Request, Result, Routes, Stub
from mochi_stub.replies.seeded_ids import SeededIds
from mochi_stub.reply import Failure
from mochi_stub.wire.anthropic import errors as anthropic_errors
from mochi_stub.wire.anthropic import routes as anthropic
from mochi_stub.wire.gemini import errors as gemini_errors
from mochi_stub.wire.gemini import routes as gemini
from mochi_stub.wire.ollama import errors as ollama_errors
from mochi_stub.wire.ollama.routes import ROUTES as OLLAMA
from mochi_stub.wire.openai import errors as openai_errors
from mochi_stub.wire.openai.routes import ROUTES as OPENAI
from mochi_stub.wire.stub_api import OBSERVATION

PLAIN = b"text/plain"
HTML = b"text/html; charset=utf-8"
_URL_CHARACTERS = punctuation.replace("%", "")


def health(_stub: Stub, _request: Request) -> Result:
    return HttpResponse(200, b'{"status":"ok"}', b"application/json")


def by_client(path: str, method: str) -> Handler:
    """Return a handler for a shared path, which calls the handler of the provider whose client sent the request."""
    by_provider = {"gemini": gemini.ROUTES, "anthropic": anthropic.SHARED, "openai": OPENAI}
    handlers = {name: routes[path].get(method) or routes[path][ANY] for name, routes in by_provider.items()}
    return lambda stub, request: handlers[provider(request)](stub, request)


def provider(request: Request) -> str:
    """Return the provider whose client sent the request."""
    headers = request.headers
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or "key" in request.query:
        return "gemini"
    return "anthropic" if "anthropic-version" in headers else "openai"


def failure_answer(request: Request, failure: Failure) -> HttpResponse:
    """Return the error response in the format of the provider to which the requested path belongs."""
    path, ids = request.path, SeededIds.of(0, request.body)
    if path.startswith("/v1/messages"):
        return anthropic_errors.failure_answer(failure, ids)
    if path.startswith(("/v1beta/", "/v1alpha/")) or (request.method == "POST" and path.startswith("/v1/models/")):
        return gemini_errors.failure_answer(failure, ids, request)
    return openai_errors.failure_answer(failure) if path.startswith("/v1/") else ollama_errors.failure_answer(failure)


def route(stub: Stub, request: Request) -> Result:
    """Return the result of the matching handler. If no handler matches, return a redirect, a 405 or a 404."""
    path, method = request.path, request.method
    if "//" in path or "/." in path:
        clean = _clean(path)
        if clean != path:
            return _redirect(clean, method, request.query_string, permanent=True)
    methods = ROUTES.get(path)
    if methods is None and path.endswith("/") and method in ROUTES.get(path[:-1], {}):
        return _redirect(path[:-1], method, request.query_string, permanent=method == "GET")
    if methods is None:
        methods = _wildcard_handlers(path)
    handler = methods.get(method) or methods.get(ANY)
    if handler is not None:
        return handler(stub, request)
    if methods:
        return HttpResponse(405, b"405 method not allowed", PLAIN, allowed_methods(path))
    return HttpResponse(404, b"404 page not found", PLAIN)


def allowed_methods(path: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header `Allow` for a path, or no header for an unknown path or a path that allows all methods."""
    methods = ROUTES.get(path) or _wildcard_handlers(path)
    return ((b"allow", ", ".join(methods).encode()),) if methods and ANY not in methods else ()


def _wildcard_handlers(path: str) -> Mapping[str, Handler]:
    while path:
        path = path.rpartition("/")[0]
        if f"{path}/*" in ROUTES:
            return ROUTES[f"{path}/*"]
    return {}


def _clean(path: str) -> str:
    """Return the path without empty, `.` and `..` segments. A slash at the end is kept."""
    clean = normpath(f"/{path.lstrip('/')}")
    return f"{clean}/" if path.endswith("/") and clean != "/" else clean


def _redirect(path: str, method: str, query: bytes, *, permanent: bool) -> HttpResponse:
    target = path + (f"?{query.decode('latin-1')}" if query else "")
    location = ((b"location", quote(target, safe=_URL_CHARACTERS).encode()),)
    status = 301 if permanent else 307
    if method != "GET":
        return HttpResponse(status, b"", HTML if method == "HEAD" else b"", location)
    return HttpResponse(status, f'<a href="{escape(target)}">Moved Permanently</a>.\n\n'.encode(), HTML, location)


HEALTH: Routes = {"/health": {"HEAD": health, "GET": health}}
SHARED: Routes = {
    "/models": {"GET": by_client("/models", "GET"), ANY: by_client("/models", ANY)},
    "/models/*": {"GET": by_client("/models/*", "GET"), "POST": gemini.verb, ANY: by_client("/models/*", ANY)},
    "/*": {ANY: by_client("/*", ANY)},
}
_MOUNTS = (
    *(("", HEALTH), ("", OBSERVATION), ("", OLLAMA), ("/ollama", OLLAMA)),
    *(("/v1", OPENAI), ("/v1", anthropic.ROUTES), ("/v1", SHARED)),
    *(("/v1beta", gemini.ROUTES), ("/v1alpha", gemini.ROUTES)),
)
ROUTES: Routes = {
    f"{prefix}{path}".rstrip("/") or "/": methods for prefix, routes in _MOUNTS for path, methods in routes.items()
}
