"""Encoders, which convert the parts of a run to the bytes of a protocol, and the responses that
they fill.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.constants import PING_SECONDS
from mochi_server.protocols.parts import End, Json, Part, PartReader, Reasoning, Text
from mochi_server.web.requests import ClientDisconnected, body_message, send_error, until_disconnect
from mochi_server.web.sse import EventStream


class Encoder(ABC):
    """Encoder of a run as server-sent events, with one method for each class of parts.

    Each method returns the bytes to send, or empty bytes if the protocol has nothing for the part.
    """

    headers: ClassVar[dict[str, str]] = {}
    """Headers of the response that the protocol requires."""
    ping: ClassVar[bytes] = b": ping\n\n"
    """Bytes to send after a time without parts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._reader = PartReader(run)

    def opening(self) -> bytes:
        """Return the bytes that start the stream."""
        return b""

    def encode(self, batch: Batch) -> bytes:
        """Return the bytes for a batch of events."""
        read = self._reader.read
        return b"".join(
            [getattr(self, part.method)(part) for event in batch.events for part in read(event)]
        )

    def closing(self) -> bytes:
        """Return the bytes that end the stream. Call this after the run has ended."""
        return self.encode_parts(self._reader.end(self.run.latest))

    def encode_parts(self, parts: Iterable[Part]) -> bytes:
        return b"".join([getattr(self, part.method)(part) for part in parts])

    def complete(self, parts: Sequence[Part]) -> Json:
        """Return the whole response as a JSON object, for clients that do not stream.

        ``parts`` are all parts.
        """
        raise NotImplementedError  # the protocol has only streams

    @abstractmethod
    def text(self, part: Text) -> bytes: ...

    @abstractmethod
    def reasoning(self, part: Reasoning) -> bytes: ...

    @abstractmethod
    def end(self, part: End) -> bytes:
        """Return the bytes that end the stream: an error, or the client's tool calls and the token
        counts.
        """

    def _nothing(self, _: Any) -> bytes:
        return b""

    text_end = call = approval = result = notice = step = _nothing


class BlockEncoder(Encoder):
    """Encoder for a protocol in which text and reasoning are blocks, with a start, deltas and an
    end.

    A block ends when a part of the other class follows, or when the subclass calls ``close_block``.
    ``start_block`` and ``end_block`` receive its first part. All methods return the bytes to send.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        # First part of the open block, or None if no block is open.
        self._first: Text | Reasoning | None = None

    @abstractmethod
    def start_block(self, first: Text | Reasoning) -> bytes: ...

    @abstractmethod
    def delta(self, part: Text | Reasoning) -> bytes: ...

    @abstractmethod
    def end_block(self, first: Text | Reasoning) -> bytes: ...

    def text(self, part: Text | Reasoning) -> bytes:
        if type(self._first) is type(part):
            return self.delta(part)
        closed, self._first = self.close_block(), part
        return closed + self.start_block(part) + self.delta(part)

    reasoning = text

    def close_block(self) -> bytes:
        """Return the bytes that end the open block, or empty bytes if no block is open."""
        first, self._first = self._first, None
        return b"" if first is None else self.end_block(first)


def data_frame(data: bytes) -> bytes:
    """Return a server-sent event without a name."""
    return b"data: %s\n\n" % data


def named_frame(name: str, fields: Json) -> bytes:
    """Return a server-sent event with a name. Its data are ``fields`` as JSON."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(fields, default=str))


CHECK_SECONDS = 1
"""Interval of the check whether a stream needs a ping.

Some events, such as `status`, may have no bytes.
"""


async def respond(request: Request, encoder: Encoder, *, stream: bool | None) -> Response:
    """Return the answer of a run, as a stream or as one JSON response."""
    if stream:
        return EncodedResponse(encoder, ping_seconds=request.app.state.services.ping_seconds)
    with encoder.run.subscribed():
        parts = await until_disconnect(request, collected(encoder.run))
    if encoder.run.latest.failure is not None:
        raise encoder.run.latest.failure
    return Response(orjson.dumps(encoder.complete(parts)), media_type="application/json")


async def collected(run: Run) -> list[Part]:
    """Wait until a run has ended and return its parts."""
    reader, parts = PartReader(run), list[Part]()

    async def receive(_: Run, batch: Batch | None) -> None:
        for event in batch.events if batch is not None else ():
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
            await until_disconnect(receive, self.send_events(send))
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
        if (opening := self._opening) is not None:
            self._opening = None
            await self.send_start(send)
            data = opening + data
        await send(body_message(data, more=more))
