"""Headers of reverse proxies: the client of a request, and the path prefix of the server."""

import re
from typing import Any, cast

from fastapi import FastAPI
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from mochi_server.web.requests import header

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def with_forwarded_prefix(app: FastAPI, trusted: str) -> ASGIApp:
    """Wrap an app so that it reads the headers ``X-Forwarded-*`` of the addresses ``trusted``.

    The prefix in ``X-Forwarded-Prefix`` replaces ``root_path``. The proxy has removed it from the
    path, or kept it.
    """
    # Its types are those of uvicorn, which are stricter than those of Starlette.
    with_client: Any = ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=trusted)

    async def forward(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            prefix = header(scope, b"x-forwarded-prefix").rstrip("/")
            address = (scope.get("client") or ("",))[0]
            is_trusted = address in with_client.trusted_hosts
            root = scope.get("root_path", "")
            new_root = prefix if is_trusted and _PREFIX.fullmatch(prefix) else root
            path = scope["path"].removeprefix(root)  # uvicorn has added it
            scope = _below(app, scope, new_root, path)
        await with_client(scope, receive, send)

    return forward


def _below(app: FastAPI, scope: Scope, root: str, path: str) -> Scope:
    """Return the scope of a request for a path below the prefix ``root``, which it may contain."""
    below = {**scope, "root_path": root, "path": root + path}
    if not root:
        return below
    if path != root and not path.startswith(f"{root}/"):
        return below
    if _has_route(app, below):  # its path only looks like the prefix
        return below
    below["path"] = path
    if path == root:
        below["path"] = f"{root}/"
    return below


def _has_route(app: FastAPI, scope: Scope) -> bool:
    return any(route.matches(scope)[0] != Match.NONE for route in app.routes)
