"""A client of mochi-server for Python: ``MochiClient``, and ``AsyncMochiClient`` that does the same with ``await``.

    from mochi_server.client import MochiClient

    with MochiClient("http://127.0.0.1:8000") as client:
        session = client.create_session("qwen3:14b")
        with client.stream(session["session_id"], "Hello!") as events:
            for event in events:
                print(event)

Events are the classes of ``mochi_server.events``. What the server refuses is raised as ``ApiError``, a server that
cannot be reached as ``ConnectionFailed``.
"""

from mochi_server.client.client import AsyncMochiClient, MochiClient
from mochi_server.client.errors import ApiError, ClientError, ConnectionFailed
from mochi_server.client.sse_parser import StreamEvent, UnknownEvent
from mochi_server.client.streams import AsyncStream, Stream

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
