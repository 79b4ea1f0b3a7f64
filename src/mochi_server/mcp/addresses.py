"""Check of the URLs that a remote MCP server names in its OAuth metadata.

Without it, a server could make this server send requests into the private network.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from mochi_server.mcp.session import UnsafeAddress

_Address = IPv4Address | IPv6Address


async def check_named_url(server_url: str, named_url: str) -> None:
    """Raise ``UnsafeAddress`` if the server at ``server_url`` must not name ``named_url``.

    A server can always name its own origin, and an unknown host with TLS. A public server can name
    only public addresses. No server can name a link-local address, where clouds offer credentials.
    Only servers without TLS can name private addresses without TLS.
    """
    server = urlsplit(server_url)
    named = urlsplit(named_url)
    if server.netloc == named.netloc and server.scheme == named.scheme:
        return
    shown = f"{named.scheme}://{named.netloc.rpartition('@')[2]}"
    addresses = await _addresses(named.hostname or "")
    # Without TLS, the name could lead to another address after this check.
    is_private = bool(addresses) and not any(map(_is_public, addresses))
    if named.scheme != "https" and (server.scheme == "https" or not is_private):
        raise UnsafeAddress(f"it names {shown} for the authorization, which does not use https")
    if any(address.is_link_local for address in addresses):
        raise UnsafeAddress(f"it names the link-local address {shown} for the authorization")
    if all(map(_is_public, addresses)):
        return
    own = await _addresses(server.hostname or "")
    if not own or any(map(_is_public, own)):
        raise UnsafeAddress(
            f"it names the private address {shown} for the authorization, but is a public server"
        )


def _is_public(address: _Address) -> bool:
    return address.is_global and not address.is_multicast


async def _addresses(host: str) -> list[_Address]:
    """Return the addresses of a host name, or an empty list for an unknown name."""
    try:
        return [_plain(ip_address(host))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = []
    for *_, address in found:
        text = str(address[0]).partition("%")[0]  # without the interface
        addresses.append(_plain(ip_address(text)))
    return addresses


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address contains, or the address."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address.sixtofour or address
    return address
