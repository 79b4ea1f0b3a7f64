"""Streams of frontend protocols: the AI SDK and AG-UI."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.types import Send

from mochi_server.chat.event_log import Batch
from mochi_server.constants import OPENAI_PREFIX
from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.frontends import ai_sdk_encoder
from mochi_server.frontends.encoder import FrontendEncoder
from mochi_server.protocols.errors import openai_body
from mochi_server.protocols.frontends import FrontendRun
from mochi_server.web.asgi import body_message
from mochi_server.web.sse import PING, PING_SECONDS, RunResponse, closing_events

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

_PROTOCOL = re.compile(r"/chat/[^/]+/(ai-sdk|ag-ui)\b")


class _StreamEnded(Exception):
    """Signal that the stream ends, although the run continues."""


class FrontendResponse(RunResponse):
    """Stream of a run in the protocol of a frontend. The stream also ends when a tool call needs approval."""

    def __init__(self, encoder: FrontendEncoder) -> None:
        super().__init__(encoder.run)
        self.headers.update(encoder.headers)
        self._encoder = encoder

    async def send_events(self, send: Send) -> None:
        encoder = self._encoder
        await send(body_message(_frames(encoder.opening())))

        async def receive(batch: Batch | None) -> None:
            if body := PING if batch is None else _frames(encoder.encode(batch)):
                await send(body_message(body))
            if encoder.is_suspended:
                raise _StreamEnded

        try:
            with suppress(_StreamEnded):
                await self._run.forward(receive, idle=PING_SECONDS)
        finally:
            self._run.suspended = encoder.is_suspended or bool(encoder.pending())
        await send(body_message(_frames(encoder.closing()), more=False))


def ag_ui_response(started: FrontendRun, request: "RunAgentInput", timeout: float) -> FrontendResponse:
    """Return a response that streams a run in the AG-UI protocol. ``timeout`` is the approval timeout."""
    from mochi_server.frontends.ag_ui_encoder import AgUiEncoder  # noqa: PLC0415 - its package takes time to import

    return FrontendResponse(AgUiEncoder(started, request, timeout))


def closing_body(path: str, session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return the bytes that report ``error`` and end a broken stream, in the protocol of the route ``path``.

    ``after`` is the ID of the last event of the stream, or empty bytes if no event has an ID. If the client can resume
    the stream at another server, the result is empty.
    """
    if path.startswith(f"{OPENAI_PREFIX}/"):
        return _frames([openai_body(error), b"[DONE]"])
    if isinstance(error, ShuttingDown):
        return b""
    protocol = _PROTOCOL.search(path)
    if protocol is None:
        return closing_events(session_id, error, after)
    if protocol[1] == "ai-sdk":
        return _frames(ai_sdk_encoder.error_messages(error))
    from mochi_server.frontends import ag_ui_encoder  # noqa: PLC0415 - its package takes time to import

    return _frames(ag_ui_encoder.error_messages(error))


def _frames(messages: Iterable[bytes]) -> bytes:
    return b"".join([b"data: %s\n\n" % message for message in messages])
