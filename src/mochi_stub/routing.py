"""Path and method to handler, and the answers where there is none: Go's router in miniature."""

from __future__ import annotations

from collections.abc import MutableMapping
from html import escape
from typing import Any

from mochi_stub.answer import Answer, Handler, Routes

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


def route(routes: Routes, scope: MutableMapping[str, Any]) -> Handler | Answer:
    """The handler, or what to say instead: a redirect for a slash too many, 405, 404."""
    path, method = scope["path"], scope["method"]
    methods = routes.get(path, {})
    if method in methods:
        return methods[method]
    if path.endswith("/") and method in routes.get(path[:-1], {}):
        return _redirect(path[:-1], method, scope["query_string"])
    if methods:
        return Answer(405, b"405 method not allowed", PLAIN, ((b"allow", ", ".join(methods).encode()),))
    return Answer(404, b"404 page not found", PLAIN)


def preflight(scope: MutableMapping[str, Any]) -> Answer | None:
    """The permission a browser asks for before a request from another origin; anything is permitted."""
    headers = dict(scope["headers"])
    if scope["method"] != "OPTIONS" or b"origin" not in headers:
        return None
    wanted = headers.get(b"access-control-request-headers", b"*")
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
