"""Responses with the answer of a run in the protocol of an encoder."""

import time
from contextlib import suppress
from functools import partial

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.constants import PING_SECONDS
from mochi_server.protocols.encoder import Encoder
from mochi_server.protocols.part_reader import PartReader
from mochi_server.protocols.parts import Part
from mochi_server.web.requests import ClientDisconnected, body_message, send_error, until_disconnect
from mochi_server.web.sse import EventStream

CHECK_SECONDS = 1
"""Interval of the check whether a stream needs a ping.

Some events, such as `status`, may have no bytes.
"""


async def respond(request: Request, encoder: Encoder, *, stream: bool | None) -> Response:
    """Return the answer of a run, as a stream or as one JSON response.

    Without ``stream``, wait for the end of the run. Raises its failure, or ``ClientDisconnected``.
    """
    if stream:
        return EncodedResponse(encoder, ping_seconds=request.app.state.services.ping_seconds)
    with encoder.run.subscribed():
        parts = await until_disconnect(request, collected(encoder.run))
    failure = encoder.run.latest.failure
    if failure is not None:
        raise failure
    return Response(orjson.dumps(encoder.complete(parts)), media_type="application/json")


async def collected(run: Run) -> list[Part]:
    """Wait until a run and the runs that continue it have ended, and return their parts."""
    reader = PartReader(run, collects=True)
    parts: list[Part] = []

    async def receive(_: Run, batch: Batch | None) -> None:
        if batch is not None:
            for event in batch.events:
                parts.extend(reader.read(event))

    await run.forward(receive)
    return [*parts, *reader.end(run.latest)]


class EncodedResponse(EventStream):
    """Stream of a run in the protocol of an encoder.

    The response starts with the first bytes of an event, or after ``ping_seconds`` without bytes.
    If the run fails before the response starts, the client receives an error response with the HTTP
    status of the error, and can retry.
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
        with self._run.subscribed(), suppress(ClientDisconnected):
            try:
                await until_disconnect(receive, self.send_events(send))
            except ClientDisconnected:
                self._encoder.abort()
                raise
            if self._opening is not None and self._run.latest.failure is not None:
                await send_error(self._run.latest.failure, scope, send)
            else:
                await self._send(send, self._encoder.closing(), more=False)

    async def send_events(self, send: Send) -> None:
        """Send the events, and the start of the response before them, until the run has ended."""
        await self._run.forward(
            partial(self._receive, send), idle=min(self._ping_seconds, CHECK_SECONDS)
        )

    async def _receive(self, send: Send, _: Run, batch: Batch | None) -> None:
        data = b"" if batch is None else self._encoder.encode(batch)
        if not data and time.monotonic() - self._last_sent >= self._ping_seconds:
            data = self._encoder.ping
        if data:
            await self._send(send, data)

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        self._last_sent = time.monotonic()
        opening = self._opening
        if opening is not None:
            self._opening = None
            await self.send_start(send)
            data = opening + data
        await send(body_message(data, more=more))
