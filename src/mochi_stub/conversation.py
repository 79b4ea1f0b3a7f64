"""One request being answered: sending, pacing, watching the client, and telling the journal.

It knows neither routes nor providers: it is given an answer, or a generation and its encoder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from mochi_stub.answer import Answer, Encoder, Generation, Result, Scheduled, crashed
from mochi_stub.chunks import Piece, interrupted, pieces, planned_end
from mochi_stub.journal import Journal, Outcome, Record
from mochi_stub.pacing import Clock, paced
from mochi_stub.remembered import Memory, Said
from mochi_stub.reply import Cut, Failure
from mochi_stub.scheduler import Lease, NotLoaded
from mochi_stub.verbatim import verbatim

logger = logging.getLogger("mochi_stub")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_T = TypeVar("_T")

OPEN_CORS = ((b"access-control-allow-origin", b"*"),)
MOST_PARTS = 7
"""Of a stream that is remembered: they grow, so that these are hundreds of pieces."""
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

    def __init__(
        self, channel: Channel, record: Record, journal: Journal, playback: Playback, memory: Memory | None = None
    ) -> None:
        self.playback = playback
        self.journal = journal
        self.path: str = channel.scope["path"]
        self.query: bytes = channel.scope["query_string"]
        self.head = channel.scope["method"] == "HEAD"
        self.cors = OPEN_CORS if any(name == b"origin" for name, _ in channel.scope["headers"]) else ()
        self.receive = channel.receive
        self.send = channel.send
        self.record = record
        self.memory = memory
        self.facts: tuple[Hashable, ...] = ()
        self.parts: list[bytes] = []
        self.lease: Lease | None = None

    async def hold(self, result: Result | Said) -> None:
        """Send the result, to its end or to the client's."""
        try:
            if isinstance(result, Scheduled):
                result = await self._made(result)
            if isinstance(result, Said):
                self.journal.note(self.record, result.noted)
                self.journal.sent(self.record, chunks=result.chunks)
                return await self._answer(result.answer)
            if isinstance(result, Answer):
                return await self._answer(result)
            result = verbatim(result, self.path, self.query)
            noted = {"rule": result.reply.rule, "passed_over": result.reply.passed_over, **result.noted}
            self.journal.note(self.record, noted)
            at_once = not self.playback.speed and not interrupted(result.reply)
            if not at_once or noted.get("truncated"):
                self.memory = None
            if at_once and not result.stream:
                answer = result.encoder.whole()
                self._remember(answer, noted)
                return await self._answer(answer)
            await watched(self._play(result), self.receive)
            if self.memory and len(self.parts) < MOST_PARTS:
                answer = Answer(200, b"".join(self.parts), result.encoder.content_type, declared=False)
                self._remember(answer, noted)
        except Gone:
            pass
        finally:
            self._settle("cancelled")

    async def _made(self, scheduled: Scheduled) -> Answer | Generation | Said:
        """The result, when its model has been loaded and has a place. Raises Gone."""
        scheduler, need = scheduled.scheduler, scheduled.need
        try:
            lease = scheduler.take(need)
            if lease is None:
                lease = await watched(scheduler.acquire(need), self.receive)
            self.lease = lease
            self.journal.note(self.record, {"num_ctx": lease.context, "reload": lease.reload})
            if self.memory is None:
                return scheduled.then(lease)
            self.memory.keep(scheduled)
            self.facts = (lease.context, lease.limit, lease.load_duration)
            known = self.memory.recall(*self.facts)
            return known if isinstance(known, Said) else scheduled.then(lease)
        except NotLoaded as error:
            return scheduled.failed(error)
        except Exception as error:
            logger.exception("%s %s", self.record.method, self.record.path)
            return crashed(error)

    def _remember(self, answer: Answer, noted: Mapping[str, Any]) -> None:
        if self.memory is not None:
            self.memory.keep(Said(answer, noted, self.record.chunks), *self.facts)

    async def _play(self, generation: Generation) -> None:
        reply, playback = generation.reply, self.playback
        end = planned_end(reply) if playback.speed else 0
        async with aclosing(paced(pieces(reply), playback.clock, playback.speed, end)) as batches:
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
        end = encoder.end()
        self._part(end)
        await self._end(end, "finished")

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
            self._part(body)
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0)

    def _part(self, body: bytes) -> None:
        if self.memory is not None and len(self.parts) < MOST_PARTS:
            self.parts.append(body)

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
