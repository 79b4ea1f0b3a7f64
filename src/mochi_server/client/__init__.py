"""Python client of mochi-server: ``MochiClient``, and ``AsyncMochiClient`` for asynchronous code.

    from mochi_server.client import MochiClient

    with MochiClient("http://127.0.0.1:8000") as client:
        session = client.create_session("qwen3:14b")
        with client.stream(session["session_id"], "Hello!") as events:
            for event in events:
                print(event)

Events are the classes of ``mochi_server.events``. The errors are ``ApiError`` and
``ConnectionFailed``.
"""

from mochi_server.client.client import AsyncMochiClient, MochiClient
from mochi_server.client.streams import (
    ApiError,
    AsyncStream,
    ClientError,
    ConnectionFailed,
    Stream,
    StreamEvent,
    UnknownEvent,
)

__all__ = [
    "ApiError",
    "AsyncMochiClient",
    "AsyncStream",
    "ClientError",
    "ConnectionFailed",
    "MochiClient",
    "Stream",
    "StreamEvent",
    "UnknownEvent",
]
