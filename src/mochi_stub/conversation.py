"""One request being answered: sending, pacing, watching the client, and telling the journal.

It knows neither routes nor providers: it is given an answer, or a generation and its encoder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from mochi_stub.answer import Answer, Encoder, Generation, Result, Scheduled, crashed
from mochi_stub.chunks import Piece, interrupted, pieces
from mochi_stub.journal import Journal, Outcome, Record
from mochi_stub.pacing import Clock, paced
from mochi_stub.reply import Cut, Failure
from mochi_stub.scheduler import Lease, NotLoaded
from mochi_stub.verbatim import verbatim

logger = logging.getLogger("mochi_stub")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_T = TypeVar("_T")

OPEN_CORS = ((b"access-control-allow-origin", b"*"),)
DECLARED_UP_TO = 2048
"""Bytes. Go's server declares the length of what fits its buffer, and sends longer bodies in chunks."""


@dataclass(frozen=True)
class Playback:
    """How time passes. `speed` scales the waiting; 0 removes it."""

    clock: Clock
    speed: float


@dataclass(frozen=True)
class Channel:
    """The two directions of one ASGI request."""

    scope: Scope
    receive: Receive
    send: Send


class Gone(BaseException):
    """The client has closed the connection."""


class Conversation:
    """One request being answered."""

    def __init__(self, channel: Channel, record: Record, journal: Journal, playback: Playback) -> None:
        self.playback = playback
        self.journal = journal
        self.path: str = channel.scope["path"]
        self.query: bytes = channel.scope["query_string"]
        self.head = channel.scope["method"] == "HEAD"
        self.cors = OPEN_CORS if any(name == b"origin" for name, _ in channel.scope["headers"]) else ()
        self.receive = channel.receive
        self.send = channel.send
        self.record = record
        self.lease: Lease | None = None

    async def hold(self, result: Result) -> None:
        """Send the result, to its end or to the client's."""
        try:
            if isinstance(result, Scheduled):
                result = await self._made(result)
            if isinstance(result, Answer):
                return await self._answer(result)
            result = verbatim(result, self.path, self.query)
            rule = {"rule": result.reply.rule, "passed_over": result.reply.passed_over}
            self.journal.note(self.record, {**rule, **result.noted})
            if not result.stream and not self.playback.speed and not interrupted(result.reply):
                return await self._answer(result.encoder.whole())
            await watched(self._play(result), self.receive)
        except Gone:
            pass
        finally:
            self._settle("cancelled")

    async def _made(self, scheduled: Scheduled) -> Answer | Generation:
        """The result, when its model has been loaded and has a place. Raises Gone."""
        scheduler, need = scheduled.scheduler, scheduled.need
        try:
            lease = scheduler.take(need)
            if lease is None:
                lease = await watched(scheduler.acquire(need), self.receive)
            self.lease = lease
            self.journal.note(self.record, {"num_ctx": lease.context, "reload": lease.reload})
            return scheduled.then(lease)
        except NotLoaded as error:
            return scheduled.failed(error)
        except Exception as error:
            logger.exception("%s %s", self.record.method, self.record.path)
            return crashed(error)

    async def _play(self, generation: Generation) -> None:
        async with aclosing(paced(pieces(generation.reply), self.playback.clock, self.playback.speed)) as batches:
            await (self._streamed if generation.stream else self._drained)(generation.encoder, batches)

    async def _drained(self, encoder: Encoder, batches: AsyncIterator[list[Piece]]) -> None:
        """A whole reply is a stream that is waited for."""
        async for batch in batches:
            last = batch[-1].value
            if isinstance(last, Failure):
                await self._answer(encoder.refusal(last, stream=False))
                return
        await self._answer(encoder.whole())

    async def _streamed(self, encoder: Encoder, batches: AsyncIterator[list[Piece]]) -> None:
        started = False
        async for batch in batches:
            last = batch[-1].value
            if isinstance(last, Failure) and len(batch) == 1 and not started:
                await self._answer(encoder.refusal(last, stream=True))
                return
            if not started:
                started = await self._start(200, encoder.content_type)
            if isinstance(last, (Failure, Cut)):
                await self._chunks(encoder, batch[:-1])
                await self._end(encoder.error(last) if isinstance(last, Failure) else b"", "failed")
                return
            await self._chunks(encoder, batch)
        if not started:
            await self._start(200, encoder.content_type)
        await self._end(encoder.end(), "finished")

    async def _answer(self, answer: Answer) -> None:
        declared = answer.declared and len(answer.body) <= DECLARED_UP_TO
        length = ((b"content-length", b"%d" % len(answer.body)),) if declared else ()
        await self._start(answer.status, answer.content_type, *answer.headers, *length)
        await self._end(b"" if self.head else answer.body, "finished" if answer.status < 400 else "failed")

    async def _start(self, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> bool:
        kind = ((b"content-type", content_type),) if content_type else ()
        self.journal.sent(self.record, status=status)
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *kind, *self.cors]})
        return True

    async def _chunks(self, encoder: Encoder, contents: list[Piece]) -> None:
        body = encoder.chunk(contents)
        self.journal.sent(self.record, chunks=len(contents))
        if body:
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0)

    async def _end(self, body: bytes, outcome: Outcome) -> None:
        """The last bytes. Whoever has read them finds the exchange settled."""
        self._settle(outcome)
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def _settle(self, outcome: Outcome) -> None:
        if self.record.outcome == "running":
            self.journal.close(self.record, outcome)
            if self.lease is not None:
                self.lease.release()


async def watched(playing: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """Play until the end. Raises Gone where the client goes first."""
    play = asyncio.ensure_future(playing)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({play, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not play.done():
            raise Gone
        return play.result()
    finally:
        play.cancel()
        gone.cancel()
        await asyncio.gather(play, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
