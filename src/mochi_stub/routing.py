"""Path and method to handler, and the answers where there is none: Go's router in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from mochi_stub.answer import ANY, Answer, Handler, Request, Routes

PLAIN = b"text/plain"
HTML = b"text/html; charset=utf-8"
METHODS = b"GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
DAY = b"43200"


def mounted(*mounts: tuple[str, Routes]) -> Routes:
    """The routes of several wires under their prefixes, as one table."""
    table = {}
    for prefix, routes in mounts:
        for path, methods in routes.items():
            table[f"{prefix}{path}".rstrip("/") or "/"] = methods
    return table


def route(routes: Routes, request: Request) -> Handler | Answer:
    """The handler, or what to say instead: a redirect for a slash too many, 405, 404."""
    path, method = request.path, request.method
    methods = routes.get(path)
    if methods is None and path.endswith("/") and method in routes.get(path[:-1], {}):
        return _redirect(path[:-1], method, request.query_string)
    if methods is None:
        methods = _below(routes, path)
    handler = methods.get(method) or methods.get(ANY)
    if handler is not None:
        return handler
    if methods:
        return Answer(405, b"405 method not allowed", PLAIN, ((b"allow", ", ".join(methods).encode()),))
    return Answer(404, b"404 page not found", PLAIN)


def _below(routes: Routes, path: str) -> Mapping[str, Handler]:
    """The methods of the nearest path above that stands for all below it."""
    while path:
        path = path.rpartition("/")[0]
        if f"{path}/*" in routes:
            return routes[f"{path}/*"]
    return {}


def preflight(request: Request) -> Answer | None:
    """The permission a browser asks for before a request from another origin; anything is permitted."""
    if request.method != "OPTIONS" or "origin" not in request.headers:
        return None
    wanted = request.headers.get("access-control-request-headers", "*").encode("latin-1")
    return Answer(
        204,
        headers=(
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", DAY),
        ),
        declared=False,
    )


def _redirect(path: str, method: str, query: bytes) -> Answer:
    target = path + (f"?{query.decode('latin-1')}" if query else "")
    location = ((b"location", target.encode("latin-1", "replace")),)
    if method != "GET":
        return Answer(307, b"", HTML if method == "HEAD" else b"", location)
    return Answer(301, f'<a href="{escape(target)}">Moved Permanently</a>.\n\n'.encode(), HTML, location)
