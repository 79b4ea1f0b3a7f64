"""Ends of streams that broke on the way from another server."""

import re

from mochi_server.constants import OPENAI_PREFIX
from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.protocols.ai_sdk import encoder as ai_sdk
from mochi_server.protocols.openai_chat import encoder as openai_chat
from mochi_server.web.sse import closing_events

_PROTOCOL = re.compile(r"/chat/[^/]+/(ai-sdk|ag-ui)\b")


def closing_body(path: str, session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return the bytes that report ``error`` and end a broken stream, in the protocol of the route ``path``.

    ``after`` is the ID of the last event of the stream, or empty bytes if no event has an ID. If the client can resume
    the stream at another server, the result is empty.
    """
    if path.startswith(f"{OPENAI_PREFIX}/"):
        return openai_chat.encode_error(error)
    if isinstance(error, ShuttingDown):
        return b""
    protocol = _PROTOCOL.search(path)
    if protocol is None:
        return closing_events(session_id, error, after)
    if protocol[1] == "ai-sdk":
        return ai_sdk.encode_error(error)
    from mochi_server.protocols.ag_ui import encoder as ag_ui  # noqa: PLC0415 - its package takes time to import

    return ag_ui.encode_error(error)
