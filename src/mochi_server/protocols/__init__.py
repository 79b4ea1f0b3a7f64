"""Protocols besides the native API.

Each has a folder with `request.py` (schemas and parsing), `encoder.py` and `routes.py`. A protocol
has two entries: its `routes.py`, which defines ``PROTOCOL``, and the name of the folder in
``NAMES``.

A run publishes events. ``PartReader`` converts the events to parts. The encoder of a protocol
converts the parts to bytes.
"""

from collections.abc import Iterator
from importlib import import_module

from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.web.requests import Protocol, protocol_at
from mochi_server.web.sse import closing_events

NAMES = ("ai_sdk", "ag_ui", "openai_chat", "responses", "anthropic")
"""Folders of the protocols, in the order in which their routes are matched."""


def load_protocols() -> Iterator[Protocol]:
    """Import the protocols."""
    for name in NAMES:
        protocol: Protocol = import_module(f"{__name__}.{name}.routes").PROTOCOL
        yield protocol


def closing_body(path: str, session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return the bytes that report ``error`` and end a broken stream, in the protocol of the route
    ``path``.

    ``after`` is the ID of the last event of the stream, or empty bytes if no event has an ID. The
    result is empty if this server shuts down and the client can resume the stream at another one.
    """
    protocol = protocol_at(path, load_protocols())
    resumes = protocol is None or protocol.resumes
    if resumes and isinstance(error, ShuttingDown):
        return b""
    if protocol is None:
        return closing_events(session_id, error, after)
    return protocol.encode_error(error)
