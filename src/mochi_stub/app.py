"""The application: a plain ASGI callable that routes, sends, paces, watches the client and keeps the journal.

It knows no provider: a wire gives it routes, and answers or generations to send.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any

import orjson

from mochi_stub.answer import Answer, Generation, Result, Routes, Stub
from mochi_stub.chunks import interrupted, pieces
from mochi_stub.journal import Exchange, Journal, Outcome
from mochi_stub.pacing import Clock, RealClock, paced
from mochi_stub.reply import Cut, Failure
from mochi_stub.routing import preflight, route

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

logger = logging.getLogger("mochi_stub")

OPEN_CORS = ((b"access-control-allow-origin", b"*"),)
DECLARED_UP_TO = 2048
"""Bytes. Go's server declares the length of what fits its buffer, and sends longer bodies in chunks."""


class App:
    """The server without its socket. `speed` scales the waiting; 0 removes it."""

    def __init__(
        self, stub: Stub, routes: Routes, journal: Journal, *, speed: float = 1.0, clock: Clock | None = None
    ) -> None:
        self.stub = stub
        self.routes = routes
        self.journal = journal
        self.speed = speed
        self.clock = clock or RealClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        exchange = self.journal.open(scope["method"], scope["path"], _parsed(body), len(body))
        conversation = _Conversation(self, scope, receive, send, exchange)
        outcome: Outcome = "cancelled"
        try:
            outcome = await conversation.hold(self._handle(scope, body))
        finally:
            self.journal.close(exchange, outcome)
            _log(exchange)

    def _handle(self, scope: Scope, body: bytes) -> Result:
        found = preflight(scope) or route(self.routes, scope)
        if isinstance(found, Answer):
            return found
        try:
            return found(self.stub, body)
        except Exception as error:
            logger.exception("%s %s", scope["method"], scope["path"])
            return Answer(500, f"the stub failed: {error!r}".encode(errors="replace"), b"text/plain; charset=utf-8")


class _Conversation:
    """One request being answered."""

    def __init__(self, app: App, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        self.app = app
        self.head = scope["method"] == "HEAD"
        self.cors = OPEN_CORS if any(name == b"origin" for name, _ in scope["headers"]) else ()
        self.receive = receive
        self.send = send
        self.exchange = exchange

    async def hold(self, result: Result) -> Outcome:
        """Send the result, to its end or to the client's."""
        if isinstance(result, Answer):
            return await self._answer(result)
        try:
            if not result.stream and not self.app.speed and not interrupted(result.reply):
                return await self._answer(result.encoder.whole())
            return await self._watched(self._play(result))
        finally:
            result.done()

    async def _watched(self, playing: Awaitable[Outcome]) -> Outcome:
        """Play until the end, or until the client goes, whichever is first."""
        play = asyncio.ensure_future(playing)
        gone = asyncio.ensure_future(_disconnected(self.receive))
        try:
            await asyncio.wait({play, gone}, return_when=asyncio.FIRST_COMPLETED)
            return play.result() if play.done() else "cancelled"
        finally:
            play.cancel()
            gone.cancel()
            await asyncio.gather(play, gone, return_exceptions=True)

    async def _play(self, generation: Generation) -> Outcome:
        encoder, started = generation.encoder, False
        async with aclosing(paced(pieces(generation.reply), self.app.clock, self.app.speed)) as batches:
            async for batch in batches:
                last = batch[-1].value
                contents = batch[:-1] if isinstance(last, (Failure, Cut)) else batch
                if (isinstance(last, Failure) and not generation.stream) or (not started and batch[0].kind is Failure):
                    return await self._answer(encoder.refusal(last, stream=generation.stream))
                if not generation.stream:
                    continue
                if not started:
                    await self._start(200, encoder.content_type)
                    started = True
                await self._body(encoder.chunk(contents))
                self.app.journal.sent(self.exchange, chunks=len(contents))
                if isinstance(last, (Failure, Cut)):
                    await self._body(encoder.error(last) if isinstance(last, Failure) else b"", more=False)
                    return "failed"
                await asyncio.sleep(0)
        if not generation.stream:
            return await self._answer(encoder.whole())
        if not started:
            await self._start(200, encoder.content_type)
        await self._body(encoder.end(), more=False)
        return "finished"

    async def _answer(self, answer: Answer) -> Outcome:
        declared = answer.declared and len(answer.body) <= DECLARED_UP_TO
        length = ((b"content-length", b"%d" % len(answer.body)),) if declared else ()
        await self._start(answer.status, answer.content_type, *answer.headers, *length)
        await self._body(b"" if self.head else answer.body, more=False)
        return "finished" if answer.status < 400 else "failed"

    async def _start(self, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
        kind = ((b"content-type", content_type),) if content_type else ()
        self.app.journal.sent(self.exchange, status=status)
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *kind, *self.cors]})

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        if body or not more:
            await self.send({"type": "http.response.body", "body": body, "more_body": more})


def _log(exchange: Exchange) -> None:
    if logger.isEnabledFor(logging.INFO):
        line = "%s %s %d %s, %d chunks"
        logger.info(line, exchange.method, exchange.path, exchange.status, exchange.outcome, exchange.chunks)


async def _body(receive: Receive) -> bytes | None:
    """The whole request body; None where the client went before it was complete."""
    received = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        received.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(received)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return None
