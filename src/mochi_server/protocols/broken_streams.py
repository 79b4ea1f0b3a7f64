"""Ends of streams that broke on the way from another server."""

from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.protocols import load_protocols
from mochi_server.web.protocol import protocol_at
from mochi_server.web.sse import closing_events


def closing_body(path: str, session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return the bytes that report ``error`` and end a broken stream, in the protocol of the route ``path``.

    ``after`` is the ID of the last event of the stream, or empty bytes if no event has an ID. If the client can resume
    the stream at another server, the result is empty.
    """
    protocol = protocol_at(path, load_protocols())
    if isinstance(error, ShuttingDown) and (protocol is None or protocol.resumes):
        return b""
    return closing_events(session_id, error, after) if protocol is None else protocol.encode_error(error)
