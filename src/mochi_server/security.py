"""Who may ask, as plain ASGI middleware: hosts, origins, API keys, sizes. Knows no route."""

import hmac
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    HostForbidden,
    MochiError,
    OriginForbidden,
    Unauthorized,
)
from mochi_server.ollama.requests import is_loopback

LOCAL_ORIGINS = r"https?://(localhost|[\w.-]+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
"""Web pages served by this machine."""

MAX_HEADER_BYTES = 64 * 1024


_TOO_LARGE = HeadersTooLarge(MAX_HEADER_BYTES)
HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_TOO_LARGE.body()), _TOO_LARGE.body())
)
"""The whole answer, for where there is no request yet."""


class HostGuard:
    """On a loopback connection, answer only for names of this machine: a web page must not get here by DNS."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed = {host.lower() for host in allowed_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and arrived_by_loopback(scope):
            host = _header(scope, b"host")
            name = _host_name(host)
            if name and not is_loopback(name) and name not in self._allowed:
                return await _refuse(HostForbidden(host), send)
        return await self._app(scope, receive, send)


class OriginGuard:
    """Refuse web pages of foreign origins, whatever they ask for."""

    def __init__(self, app: ASGIApp, *, allowed_origins: Sequence[str]) -> None:
        self._app = app
        self._allowed = {origin.lower().rstrip("/") for origin in allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header(scope, b"origin") if scope["type"] == "http" else ""
        if origin and not self._admits(origin.lower(), _header(scope, b"host").lower()):
            return await _refuse(OriginForbidden(origin), send)
        return await self._app(scope, receive, send)

    def _admits(self, origin: str, host: str) -> bool:
        if "*" in self._allowed or origin in self._allowed:
            return True
        try:
            parts = urlsplit(origin)
            return parts.scheme in ("http", "https") and (is_loopback(parts.hostname or "") or parts.netloc == host)
        except ValueError:
            return False


class KeyGuard:
    """Ask for an API key; without keys, serve only what came over a loopback address, unless ``insecure``."""

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], insecure: bool) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._insecure = insecure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._admits(scope):
            return await _refuse(Unauthorized(keys_exist=bool(self._keys)), send)
        return await self._app(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        if not self._keys:
            return self._insecure or arrived_by_loopback(scope) or not _is_address(_local_address(scope))
        scheme, _, key = _header(scope, b"authorization").partition(" ")
        given = key.strip().encode("latin-1", "replace")
        # Every key is compared, so that the time taken tells nothing of which one matched.
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == "bearer" and any(matches)


class SizeLimits:
    """Refuse oversized headers, and bodies over ``max_body_bytes``, of a declared length or not."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        self._app = app
        self._limit = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if size + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return await _refuse(_TOO_LARGE, send)
        declared = _header(scope, b"content-length")
        if declared.isdigit() and int(declared) > self._limit:
            return await _refuse(BodyTooLarge(self._limit), send)
        if declared or not _header(scope, b"transfer-encoding"):
            return await self._app(scope, receive, send)
        body = await self._read(receive)
        if body is None:
            return await _refuse(BodyTooLarge(self._limit), send)
        return await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> list[Message] | None:
        """All of a body of unknown length; None when it is too long."""
        messages: list[Message] = []
        size = 0
        while True:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self._limit:
                return None
            if message["type"] != "http.request" or not message.get("more_body", False):
                return messages


def arrived_by_loopback(scope: Scope) -> bool:
    """Whether a request came to a loopback address of this machine."""
    address = _local_address(scope)
    return _is_address(address) and is_loopback(address)


def host_of(origin: str) -> str:
    """The host name of an origin."""
    return urlsplit(origin).hostname or ""


def _replay(messages: list[Message], receive: Receive) -> Receive:
    pending = iter(messages)

    async def replay() -> Message:
        message = next(pending, None)
        return await receive() if message is None else message

    return replay


def _local_address(scope: Scope) -> str:
    server = scope.get("server")
    return str(server[0]) if server else ""


def _is_address(value: str) -> bool:
    try:
        ip_address(value)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.strip().lower().rstrip(".")


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def _refuse(error: MochiError, send: Send) -> None:
    body = error.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": int(error.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
