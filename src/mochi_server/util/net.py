"""URLs of Ollama and of this server, origins, and the host name of this machine."""

import re
import socket
from functools import cache, lru_cache
from ipaddress import ip_address

OLLAMA_PORT = 11434
DEFAULT_PORTS = {"http": 80, "https": 443}


def _is_ipv6(address: str) -> bool:
    try:
        return ip_address(address).version == 6
    except ValueError:
        return False


def full_url(host: str) -> str:
    """Return the URL of Ollama at ``host``.

    If ``host`` has no scheme, add http and, if missing, port 11434.
    """
    if "://" in host:
        return host
    address, slash, path = host.partition("/")
    if _is_ipv6(address):
        address = f"[{address}]"
    port = "" if re.search(r":\d*$", address) else f":{OLLAMA_PORT}"
    return f"http://{address}{port}{slash}{path}"


def reachable_host(host: str) -> str:
    """Replace a wildcard or missing address in ``host`` by the loopback address, as clients of
    Ollama do.

    ``host`` can have a scheme, a port and a path. An address is missing if a port comes first.
    """
    wildcard = r"^(.*://|)(0\.0\.0\.0|\[?::\]?|(?=:\d))(?=[:/]|$)"
    return re.sub(
        wildcard, lambda found: found[1] + ("[::1]" if "::" in found[2] else "127.0.0.1"), host
    )


@lru_cache(maxsize=16)
def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost")


def without_default_port(origin: str) -> str:
    """Return an origin without the default port of its scheme, as browsers send it."""
    scheme = origin.partition("://")[0]
    port = DEFAULT_PORTS.get(scheme)
    if port is None:
        return origin
    return origin.removesuffix(f":{port}")


def server_url(host: str, port: int) -> str:
    """Return the URL of a server on this machine.

    The host name of the machine replaces a wildcard address.
    """
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = _host_name()
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


@cache
def _host_name() -> str:
    """Return the host name of this machine, or the loopback address if it does not resolve."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return "127.0.0.1"
    return name
