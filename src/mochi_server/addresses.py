"""URLs of servers: of Ollama as users write them, and of this server."""

import re
import socket
from functools import cache

OLLAMA_PORT = 11434


def full_url(host: str) -> str:
    """An address with its scheme. One without is http, and at Ollama's own port unless it names another."""
    if "://" in host:
        return host
    address, slash, path = host.partition("/")
    port = "" if re.search(r":\d*$", address) else f":{OLLAMA_PORT}"
    return f"http://{address}{port}{slash}{path}"


def url_of(host: str, port: int) -> str:
    """Return the URL of a server on this machine by the address that it is bound to, for other machines as well."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = _host_name()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@cache
def _host_name() -> str:
    """Return the name of this machine, or a loopback address if the machine itself cannot resolve its name."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return "127.0.0.1"
    return name
