"""Which requests are admitted: checks of hosts, origins and API keys, for `Guard`. Knows no route."""

import hashlib
import hmac
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from mochi_server.errors import HostForbidden, MochiError, OriginForbidden, Unauthorized
from mochi_server.util.net import is_loopback
from mochi_server.web.asgi import header
from mochi_server.web.request_limits import Check

LOCAL_ORIGINS = r"https?://(localhost|[\w.-]+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
"""Web pages served by this machine."""


def host_check(allowed_origins: Sequence[str]) -> Check:
    """Admit only names of this machine on loopback connections, so that DNS cannot lead a web page here."""
    allowed = {urlsplit(origin).hostname for origin in allowed_origins}

    def check(scope: Scope) -> MochiError | None:
        host = header(scope, b"host")
        name = _host_name(host)
        is_foreign = name and not is_loopback(name) and name not in allowed
        address = _local_address(scope)
        return HostForbidden(host) if is_foreign and address and address.is_loopback else None

    return check


def origin_check(allowed_origins: Sequence[str]) -> Check:
    """Refuse web pages of foreign origins, whatever they request."""
    allowed = {origin.lower().rstrip("/") for origin in allowed_origins}

    def is_admitted(origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            is_ours = parts.scheme in ("http", "https") and (is_loopback(parts.hostname or "") or parts.netloc == host)
        except ValueError:
            is_ours = False
        return is_ours or origin in allowed

    def check(scope: Scope) -> MochiError | None:
        origin = header(scope, b"origin")
        if "*" in allowed or (origin and is_admitted(origin.lower(), header(scope, b"host").lower())):
            return None
        return OriginForbidden(origin or "another site") if origin or _is_embedded(scope) else None

    return check


def key_check(keys: Sequence[str], *, insecure: bool, exempt: Collection[str] = ()) -> Check:
    """Require an API key; without keys, admit only requests to a loopback address, unless ``insecure``.

    GET of the paths in ``exempt`` needs none.
    """
    digests = [_digest(key.encode()) for key in keys]

    def is_admitted(scope: Scope) -> bool:
        if scope["path"] in exempt and scope["method"] == "GET":
            return True
        if not digests:
            address = _local_address(scope)
            return insecure or address is None or address.is_loopback
        scheme, _, key = header(scope, b"authorization").partition(" ")
        given = _digest(key.strip().encode("latin-1", "replace"))
        # Each digest is compared: the time taken shows neither the length of a key nor which one matched.
        matches = [hmac.compare_digest(given, known) for known in digests]
        return scheme.lower() == "bearer" and any(matches)

    def check(scope: Scope) -> MochiError | None:
        return None if is_admitted(scope) else Unauthorized(keys_exist=bool(digests))

    return check


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _is_embedded(scope: Scope) -> bool:
    """Return whether a page of another site embeds this, as an image or a script: browsers send no origin then."""
    return header(scope, b"sec-fetch-site") == "cross-site" and header(scope, b"sec-fetch-mode") != "navigate"


def _local_address(scope: Scope) -> IPv4Address | IPv6Address | None:
    """Return the address that a request arrived at; None for sockets that are files."""
    try:
        return ip_address(scope["server"][0]) if scope.get("server") else None
    except ValueError:
        return None


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.strip().lower().rstrip(".")
