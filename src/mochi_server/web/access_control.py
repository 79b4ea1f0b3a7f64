"""Access checks for requests: Host header, origin and API key."""

import hashlib
import hmac
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from mochi_server.errors import HostForbidden, MochiError, OriginForbidden, Unauthorized
from mochi_server.util.net import is_loopback
from mochi_server.web.asgi import header, protocol_of, route_path
from mochi_server.web.request_limits import Check

LOCAL_ORIGINS = r"https?://(localhost|[\w.-]+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
"""Regular expression for origins on the local machine, such as ``http://localhost:3000``."""


def host_check(allowed_origins: Sequence[str]) -> Check:
    """Return a check against DNS rebinding: on loopback connections, reject foreign names in the Host header."""
    allowed = {urlsplit(origin).hostname for origin in allowed_origins}

    def check(scope: Scope) -> MochiError | None:
        host = header(scope, b"host")
        name = _host_name(host)
        if not name or is_loopback(name) or name in allowed:
            return None
        address = _local_address(scope)
        return HostForbidden(host) if address and address.is_loopback else None

    return check


def origin_check(allowed_origins: Sequence[str]) -> Check:
    """Return a check that rejects requests from web pages whose origin is neither local nor allowed."""

    def is_admitted(origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            is_own = parts.scheme in ("http", "https") and (is_loopback(parts.hostname or "") or parts.netloc == host)
        except ValueError:
            is_own = False
        return is_own or origin in allowed_origins

    def check(scope: Scope) -> MochiError | None:
        origin = header(scope, b"origin")
        if "*" in allowed_origins or (origin and is_admitted(origin.lower(), header(scope, b"host").lower())):
            return None
        return OriginForbidden(origin or "another site") if origin or _is_embedded(scope) else None

    return check


def key_check(keys: Sequence[str], *, insecure: bool, exempt: Collection[str] = ()) -> Check:
    """Return a check that requires an API key, except for GET and HEAD requests to the paths in ``exempt``.

    If ``keys`` is empty, the check admits requests to a loopback address, or all requests if ``insecure`` is true.
    """
    digests = [_digest(key.encode()) for key in keys]

    def check(scope: Scope) -> MochiError | None:
        if route_path(scope) in exempt and scope["method"] in ("GET", "HEAD"):
            return None
        if not digests:
            address = _local_address(scope)
            is_open = insecure or address is None or address.is_loopback
            return None if is_open else Unauthorized(keys_exist=False)
        sent = _sent_keys(scope)
        # All digests are compared, so that the response time reveals neither a key's length nor which key matched.
        matches = [hmac.compare_digest(_digest(key), known) for key in sent for known in digests]
        return None if any(matches) else Unauthorized(key_sent=bool(sent))

    return check


def _sent_keys(scope: Scope) -> list[bytes]:
    """Return the API keys in the `Authorization` header and in the header of the request's protocol."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    protocol = protocol_of(scope)
    own = header(scope, protocol.key_header.encode()) if protocol and protocol.key_header else ""
    keys = [token.strip() if scheme.lower() == "bearer" else "", own.strip()]
    return [key.encode("latin-1", "replace") for key in keys if key]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _is_embedded(scope: Scope) -> bool:
    """Return whether a page of another site embeds the resource, for example as an image.

    Browsers send no Origin header with most such requests, so the ``Sec-Fetch`` headers are checked.
    """
    return header(scope, b"sec-fetch-site") == "cross-site" and header(scope, b"sec-fetch-mode") != "navigate"


def _local_address(scope: Scope) -> IPv4Address | IPv6Address | None:
    """Return the server address of the connection, or None for a Unix domain socket."""
    try:
        return ip_address(scope["server"][0]) if scope.get("server") else None
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """Return the name or the address in a Host header, without its port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.strip().lower().rstrip(".")
