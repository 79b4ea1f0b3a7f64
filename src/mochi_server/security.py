"""Who may ask, as plain ASGI middleware: hosts, origins, API keys. Knows no route."""

import hashlib
import hmac
from collections.abc import Awaitable, Collection, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from mochi_server.asgi import header, refuse
from mochi_server.errors import HostForbidden, OriginForbidden, Unauthorized
from mochi_server.ollama.requests import is_loopback

LOCAL_ORIGINS = r"https?://(localhost|[\w.-]+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
"""Web pages served by this machine."""


class HostGuard:
    """On a loopback connection, answer only for names of this machine: a web page must not get here by DNS."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._allowed = {host.lower() for host in allowed_hosts}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and arrived_by_loopback(scope):
            host = header(scope, b"host")
            name = _host_name(host)
            if name and not is_loopback(name) and name not in self._allowed:
                return refuse(HostForbidden(host), scope, send)
        return self._app(scope, receive, send)


class OriginGuard:
    """Refuse web pages of foreign origins, whatever they ask for."""

    def __init__(self, app: ASGIApp, *, allowed_origins: Sequence[str]) -> None:
        self._app = app
        self._allowed = {origin.lower().rstrip("/") for origin in allowed_origins}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            origin = header(scope, b"origin")
            if origin and not self._admits(origin.lower(), header(scope, b"host").lower()):
                return refuse(OriginForbidden(origin), scope, send)
            if not origin and "*" not in self._allowed and _is_embedded(scope):
                return refuse(OriginForbidden("another site"), scope, send)
        return self._app(scope, receive, send)

    def _admits(self, origin: str, host: str) -> bool:
        if "*" in self._allowed or origin in self._allowed:
            return True
        try:
            parts = urlsplit(origin)
            return parts.scheme in ("http", "https") and (is_loopback(parts.hostname or "") or parts.netloc == host)
        except ValueError:
            return False


class KeyGuard:
    """Ask for an API key; without keys, serve only what came over a loopback address, unless ``insecure``.

    Whoever reads one of the paths in ``free`` needs none.
    """

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], insecure: bool, free: Collection[str] = ()) -> None:
        self._app = app
        self._keys = [_digest(key.encode()) for key in keys]
        self._insecure = insecure
        self._free = free

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not self._admits(scope):
            return refuse(Unauthorized(keys_exist=bool(self._keys)), scope, send)
        return self._app(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        if scope["path"] in self._free and scope["method"] == "GET":
            return True
        if not self._keys:
            return self._insecure or arrived_by_loopback(scope) or not _is_address(_local_address(scope))
        scheme, _, key = header(scope, b"authorization").partition(" ")
        given = _digest(key.strip().encode("latin-1", "replace"))
        # Digests, and each of them: the time taken tells neither a key's length nor which one matched.
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        return scheme.lower() == "bearer" and any(matches)


def arrived_by_loopback(scope: Scope) -> bool:
    """Whether a request came to a loopback address of this machine."""
    address = _local_address(scope)
    return _is_address(address) and is_loopback(address)


def host_of(origin: str) -> str:
    """The host name of an origin."""
    return urlsplit(origin).hostname or ""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _is_embedded(scope: Scope) -> bool:
    """Whether a page of another site has this as an image, a script or the like, for which browsers name no origin."""
    return header(scope, b"sec-fetch-site") == "cross-site" and header(scope, b"sec-fetch-mode") != "navigate"


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
