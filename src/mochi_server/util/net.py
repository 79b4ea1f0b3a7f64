"""Addresses: URLs of Ollama and of this server, and the names of this machine."""

import re
import socket
from functools import cache
from ipaddress import ip_address

OLLAMA_PORT = 11434


def full_url(host: str) -> str:
    """An address with its scheme. One without is http, and at Ollama's own port unless it names another."""
    if "://" in host:
        return host
    address, slash, path = host.partition("/")
    port = "" if re.search(r":\d*$", address) else f":{OLLAMA_PORT}"
    return f"http://{address}{port}{slash}{path}"


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost")


def server_url(host: str, port: int) -> str:
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
