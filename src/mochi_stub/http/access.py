"""Access control for requests of web pages, with the rules of Ollama.

The stub refuses requests if the header `Origin` contains an origin that is not allowed (CORS). If the stub listens on a
loopback address, it also refuses requests whose header `Host` is not a local name or address. This check prevents DNS
rebinding.
"""

from __future__ import annotations

import socket
from functools import lru_cache
from ipaddress import ip_address, ip_network

from mochi_stub.http import Headers, HttpResponse, Request

DEFAULT_ORIGINS = (
    *(
        f"{scheme}://{host}{port}"
        for host in ("localhost", "127.0.0.1", "0.0.0.0")  # noqa: S104 - only compared
        for scheme in ("http", "https")
        for port in ("", ":*")
    ),
    *("app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*"),
)
METHODS = b"GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
REQUEST_HEADERS = (
    b"Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,X-Stainless-Arch,X-Stainless-Async,"
    b"X-Stainless-Custom-Poll-Interval,X-Stainless-Helper-Method,X-Stainless-Lang,X-Stainless-Os,"
    b"X-Stainless-Package-Version,X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime,"
    b"X-Stainless-Runtime-Version,X-Stainless-Timeout"
)
PREFLIGHT_VARY = (b"Origin", b"Access-Control-Request-Method", b"Access-Control-Request-Headers")
PROVIDER_PATHS = "/v1"  # clients of other providers send headers that Ollama does not list
_LOCAL_DOMAINS = (".localhost", ".local", ".internal")
_LOCAL_NETWORKS = (
    *map(ip_network, ("127.0.0.0/8", "::1/128", "0.0.0.0/32", "::/128")),
    *map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
)


class Access:
    """Rules for the origins and host names of requests.

    Args:
        origins: Comma-separated origins that are allowed in addition to `DEFAULT_ORIGINS`. One `*` in an origin
            matches any text. The origin `*` allows all origins and host names.
        host: Address that the server listens on.

    Raises ValueError for an invalid origin.
    """

    def __init__(self, origins: str = "", host: str = "127.0.0.1") -> None:
        added = tuple(origin.strip().lower() for origin in origins.split(",") if origin.strip())
        for origin in added:
            if origin != "*" and ("://" not in origin or origin.count("*") > 1):
                raise ValueError(f"invalid origin {origin!r}: use an origin such as https://example.com, or * for all")
        self.open = "*" in added
        self._patterns = tuple(origin.partition("*") for origin in (*DEFAULT_ORIGINS, *added))
        self._checks_host = not self.open and _is_loopback(host)

    def response(self, request: Request) -> HttpResponse | None:
        """Return the response to a preflight request or to a refused request, or None for other requests."""
        host = request.headers.get("host", "")
        if origin := _foreign_origin(request):
            if not self._allows(origin):
                return HttpResponse(403)
            if request.method == "OPTIONS":
                return self._preflight(request)
        if self._checks_host and not (_is_local_address(host) or _is_local_name(host)):
            return HttpResponse(403)
        return HttpResponse(204, has_length=False) if request.method == "OPTIONS" and _is_local_name(host) else None

    def headers(self, request: Request) -> Headers:
        """Return the CORS headers of a response."""
        origin = _foreign_origin(request)
        if not origin or not self._allows(origin):
            return ()
        if self.open:
            return ((b"access-control-allow-origin", b"*"),)
        varies = PREFLIGHT_VARY if request.method == "OPTIONS" else PREFLIGHT_VARY[:1]
        return ((b"access-control-allow-origin", origin.encode("latin-1")), *((b"vary", name) for name in varies))

    def _allows(self, origin: str) -> bool:
        return self.open or any(
            (origin.startswith(start) and origin.endswith(end)) if star else origin == start
            for start, star, end in self._patterns
        )

    def _preflight(self, request: Request) -> HttpResponse:
        names = REQUEST_HEADERS
        if self.open or request.path.startswith(PROVIDER_PATHS):
            names = request.headers.get("access-control-request-headers", "*").encode("latin-1")
        allowed = ((b"access-control-allow-methods", METHODS), (b"access-control-allow-headers", names))
        return HttpResponse(204, headers=(*allowed, (b"access-control-max-age", b"43200")), has_length=False)


def _foreign_origin(request: Request) -> str:
    """Return the header `Origin` of a request, or "" if the header is missing or is the origin of the stub itself."""
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    return "" if origin in (f"http://{host}", f"https://{host}") else origin


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host: str) -> str:
    """Return the value of a `Host` header without its port."""
    name, colon, port = host.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")) or not (port.isdigit() or not port):
        return host
    return name.removeprefix("[").removesuffix("]")


@lru_cache(maxsize=256)
def _is_local_address(host: str) -> bool:
    try:
        address = ip_address(_name(host))
    except ValueError:
        return False
    return any(address in network for network in _LOCAL_NETWORKS)


@lru_cache(maxsize=256)
def _is_local_name(host: str) -> bool:
    name = _name(host).lower()
    return name in ("", "localhost", socket.gethostname().lower()) or name.endswith(_LOCAL_DOMAINS)
