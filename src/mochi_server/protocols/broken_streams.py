"""Ends of streams that broke on the way from another server."""

from fastapi.routing import APIRoute

from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.protocols import load_protocols
from mochi_server.web.protocol import Protocol
from mochi_server.web.sse import closing_events


def closing_body(path: str, session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return the bytes that report ``error`` and end a broken stream, in the protocol of the route ``path``.

    ``after`` is the ID of the last event of the stream, or empty bytes if no event has an ID. If the client can resume
    the stream at another server, the result is empty.
    """
    protocol = next((protocol for protocol in load_protocols() if _has_route(protocol, path)), None)
    if isinstance(error, ShuttingDown) and (protocol is None or protocol.is_resumable):
        return b""
    return closing_events(session_id, error, after) if protocol is None else protocol.encode_error(error)


def _has_route(protocol: Protocol, path: str) -> bool:
    routes = (route for route in protocol.router.routes if isinstance(route, APIRoute))
    end = path.removeprefix(protocol.prefix)
    return end != path and any(route.path_regex.match(end) for route in routes)
