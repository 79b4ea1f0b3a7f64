"""Ends of streams that broke on the way from another server, in the protocol of each route."""

from mochi_server.cluster.middleware import target_of
from mochi_server.errors import ServerLost, ShuttingDown
from mochi_server.protocols import closing_body
from tests.support.cases import cases

CHAT = "/api/v1/chat/0123456789"


@cases(
    ("path", "start"),
    [
        (f"{CHAT}/stream", b"event: error\n"),
        (f"{CHAT}/ai-sdk", b'data: {"type":"error"'),
        (f"{CHAT}/ai-sdk/some-chat/stream", b'data: {"type":"error"'),
        (f"{CHAT}/ag-ui", b'data: {"type":"RUN_ERROR"'),
        ("/v1/chat/completions", b'data: {"error": {'),
        ("/v1/responses", b'data: {"error": {'),
        ("/v1/messages", b'event: error\ndata: {"type": "error"'),
    ],
)
def test_broken_stream_ends_in_its_protocol(path: str, start: bytes) -> None:
    assert closing_body(path, "0123456789", ServerLost("0123456789"), b"").startswith(start)


@cases("path", ["/stream", "/ai-sdk", "/ag-ui"])
def test_stream_that_can_be_resumed_has_no_end_at_a_shutdown(path: str) -> None:
    assert closing_body(CHAT + path, "0123456789", ShuttingDown(), b"") == b""


def test_completion_cannot_be_resumed_after_a_shutdown() -> None:
    assert closing_body("/v1/messages", "0123456789", ShuttingDown(), b"").startswith(
        b"event: error"
    )
    assert closing_body("/v1/completions", "0123456789", ShuttingDown(), b"").endswith(
        b"data: [DONE]\n\n"
    )


@cases(
    ("root", "sent", "path", "target"),
    [
        ("", b"/api/v1/a%20b", "/api/v1/a b", b"/api/v1/a%20b"),
        ("/mochi", b"/mochi/v1/models", "/mochi/v1/models", b"/v1/models"),
        ("/mochi", b"/v1/models", "/mochi/v1/models", b"/v1/models"),
        ("/api", b"/api/v1/a", "/api/api/v1/a", b"/api/v1/a"),
        ("/api", b"/api/api/v1/a", "/api/api/v1/a", b"/api/v1/a"),
    ],
)
def test_forwarded_path_has_no_prefix(root: str, sent: bytes, path: str, target: bytes) -> None:
    """A proxy may have removed the prefix, with which the path of a route can begin, too."""
    assert target_of({"root_path": root, "raw_path": sent, "path": path}) == target
