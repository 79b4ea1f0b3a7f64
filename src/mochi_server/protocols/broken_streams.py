"""Ends of streams that broke on the way from another server."""

import re
from collections.abc import Callable

from mochi_server.constants import OPENAI_PREFIX
from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.protocols.ai_sdk import encoder as ai_sdk
from mochi_server.protocols.openai_chat import encoder as openai_chat
from mochi_server.web.sse import closing_events


def closing_body(path: str, session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return the bytes that report ``error`` and end a broken stream, in the protocol of the route ``path``.

    ``after`` is the ID of the last event of the stream, or empty bytes if no event has an ID. If the client can resume
    the stream at another server, the result is empty.
    """
    if isinstance(error, ShuttingDown) and not path.startswith(f"{OPENAI_PREFIX}/"):
        return b""
    for pattern, encode_error in _PROTOCOLS.items():
        if re.search(pattern, path):
            return encode_error(error)
    return closing_events(session_id, error, after)


def _ag_ui(error: MochiError) -> bytes:
    from mochi_server.protocols.ag_ui.encoder import encode_error  # noqa: PLC0415 - its package takes time to import

    return encode_error(error)


_PROTOCOLS: dict[str, Callable[[MochiError], bytes]] = {
    f"^{OPENAI_PREFIX}/": openai_chat.encode_error,
    r"/chat/[^/]+/ai-sdk\b": ai_sdk.encode_error,
    r"/chat/[^/]+/ag-ui\b": _ag_ui,
}
"""Functions that end a stream, by a pattern of the route's path."""
