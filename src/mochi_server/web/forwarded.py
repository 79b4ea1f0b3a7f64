"""Headers of reverse proxies: the client of a request, and the path prefix of the server."""

import re
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from mochi_server.web.requests import header

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def with_forwarded_prefix(app: ASGIApp, trusted: str) -> ASGIApp:
    """Wrap an app so that it reads the headers ``X-Forwarded-*`` of the addresses ``trusted``.

    The proxy has removed the prefix in ``X-Forwarded-Prefix`` from the path. The prefix replaces
    ``root_path``.
    """
    # Its types are those of uvicorn, which are stricter than those of Starlette.
    with_client: Any = ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=trusted)

    async def forward(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            prefix = header(scope, b"x-forwarded-prefix").rstrip("/")
            address = (scope.get("client") or ("",))[0]
            if _PREFIX.fullmatch(prefix) and address in with_client.trusted_hosts:
                path = scope["path"].removeprefix(scope.get("root_path", ""))
                scope = {**scope, "root_path": prefix, "path": prefix + path}
        await with_client(scope, receive, send)

    return forward
