"""Responses that answer a request with the encoder of a protocol."""

import time
from contextlib import suppress
from functools import partial

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.protocols.encoder import Encoder
from mochi_server.protocols.interactive import InteractiveEncoder
from mochi_server.protocols.part_reader import PartReader
from mochi_server.protocols.parts import Part
from mochi_server.web.asgi import body_message, send_error
from mochi_server.web.disconnect import ClientDisconnected, until_disconnect
from mochi_server.web.sse import PING_SECONDS, EventStream, RunResponse

_CHECK_SECONDS = 1
"""Interval of the check whether a stream needs a ping. Some events, such as `status`, may have no bytes."""


async def respond(request: Request, encoder: Encoder, *, stream: bool | None) -> Response:
    """Return the answer of a run, as a stream or as one JSON response."""
    if stream:
        return EncodedResponse(encoder)
    with encoder.run.subscribed():
        parts = await until_disconnect(request, collect(encoder.run))
    return Response(orjson.dumps(encoder.complete(parts)), media_type="application/json")


async def collect(run: Run) -> list[Part]:
    """Wait until a run has ended and return its parts. If an error ended the run, raise that error."""
    reader, parts = PartReader(run), list[Part]()

    async def receive(batch: Batch | None) -> None:
        for event in batch.events if batch is not None else ():
            parts.extend(reader.read(event))

    await run.forward(receive)
    if run.failure is not None:
        raise run.failure
    return [*parts, *reader.end(run)]


class EncodedResponse(EventStream):
    """Stream of a run in the protocol of an encoder.

    The response starts with the first bytes of an event, or after ``ping_seconds`` without bytes. If the run fails
    before the response starts, the client receives an error response with the HTTP status of the error, and can retry.
    """

    def __init__(self, encoder: Encoder, *, ping_seconds: float = PING_SECONDS) -> None:
        super().__init__()
        self.headers.update(encoder.headers)
        self._run = encoder.run
        self._encoder = encoder
        self._opening: bytes | None = encoder.opening()
        """First bytes of the stream. None after they have been sent."""
        self._ping_seconds = ping_seconds
        self._last_sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        forwarding = self._run.forward(partial(self._receive, send), idle=min(self._ping_seconds, _CHECK_SECONDS))
        with self._run.subscribed(), suppress(ClientDisconnected):
            await until_disconnect(receive, forwarding)
            if self._opening is not None and self._run.failure is not None:
                await send_error(self._run.failure, scope, send)
            else:
                await self._send(send, self._encoder.closing(), more=False)

    async def _receive(self, send: Send, batch: Batch | None) -> None:
        data = b"" if batch is None else self._encoder.encode(batch)
        if not data and time.monotonic() - self._last_sent >= self._ping_seconds:
            data = self._encoder.ping
        if data:
            await self._send(send, data)

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        self._last_sent = time.monotonic()
        if (opening := self._opening) is not None:
            self._opening = None
            await self.send_start(send)
            data = opening + data
        await send(body_message(data, more=more))


class _StreamEnded(Exception):
    """Signal that the stream ends, although the run continues."""


class InteractiveResponse(RunResponse):
    """Stream of a run for a frontend. The stream also ends when a tool call needs approval."""

    def __init__(self, encoder: InteractiveEncoder) -> None:
        super().__init__(encoder.run)
        self.headers.update(encoder.headers)
        self._encoder = encoder

    async def send_events(self, send: Send) -> None:
        encoder = self._encoder
        await send(body_message(encoder.opening()))

        async def receive(batch: Batch | None) -> None:
            if data := encoder.ping if batch is None else encoder.encode(batch):
                await send(body_message(data))
            if encoder.is_suspended:
                raise _StreamEnded

        try:
            with suppress(_StreamEnded):
                await self._run.forward(receive, idle=PING_SECONDS)
        finally:
            self._run.suspended = encoder.is_suspended or bool(encoder.pending())
        await send(body_message(encoder.closing(), more=False))
