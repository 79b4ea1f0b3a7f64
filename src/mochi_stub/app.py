"""The application: a plain ASGI callable that reads a request, finds its handler and plays the result.

It knows no provider: the wires give it routes, answers, and generations with their encoders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any, TypeVar

from mochi_stub.answer import Answer, Encoder, Generation, Request, Result, Routes, Scheduled, Stub, crashed
from mochi_stub.chunks import Piece, interrupted, paced, pieces, planned_end
from mochi_stub.journal import Journal, Outcome, Record
from mochi_stub.remembered import Memory, Remembered, Said
from mochi_stub.replay import verbatim
from mochi_stub.reply import Cut, Failure
from mochi_stub.scheduler import Lease, NotLoaded
from mochi_stub.wires import preflight, route

logger = logging.getLogger("mochi_stub")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_T = TypeVar("_T")

OPEN_CORS = ((b"access-control-allow-origin", b"*"),)
MOST_PARTS = 7
"""Number of parts of a stream that is cached. Parts grow, so these are hundreds of pieces."""
DECLARED_UP_TO = 2048
"""Bytes. Go's server declares the length of bodies that fit its buffer, and sends longer ones in chunks."""


class App:
    """The server without its socket. `speed` scales the waiting; 0 removes it. `replay` goes before the routes."""

    def __init__(
        self,
        stub: Stub,
        routes: Routes,
        journal: Journal,
        *,
        replay: Callable[[Stub, Request], Result | None],
        remembered: Remembered,
        speed: float = 1.0,
    ) -> None:
        self.stub = stub
        self.routes = routes
        self.journal = journal
        self.replay = replay
        self.remembered = remembered
        self.speed = speed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        request = Request.of(scope, body)
        record = self.journal.open(request.method, request.path, body, request.query_string, request.raw_headers)
        memory = self.remembered.of(request)
        try:
            conversation = Conversation(
                scope, receive, send, record=record, journal=self.journal, speed=self.speed, memory=memory
            )
            await conversation.hold((memory and memory.recall()) or self._handle(request))
        finally:
            line = "%s %s %d %s, %d chunks"
            logger.info(line, record.method, record.path, record.status, record.outcome, record.chunks)

    def _handle(self, request: Request) -> Result:
        try:
            answer = preflight(request) or self.replay(self.stub, request)
            if answer is not None:
                return answer
            found = route(self.routes, request)
            return found if isinstance(found, Answer) else found(self.stub, request)
        except Exception as error:
            logger.exception("%s %s", request.method, request.path)
            return crashed(error)


class Gone(BaseException):
    """The client has closed the connection."""


class Conversation:
    """One request being answered. `speed` scales the waiting; 0 removes it."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        record: Record,
        journal: Journal,
        speed: float = 0.0,
        memory: Memory | None = None,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.record = record
        self.journal = journal
        self.speed = speed
        self.memory = memory
        self.facts: tuple[Hashable, ...] = ()
        self.parts: list[bytes] = []
        self.lease: Lease | None = None

    async def hold(self, result: Result | Said) -> None:
        """Send the result until it ends or the client disconnects."""
        try:
            if isinstance(result, Scheduled):
                result = await self._made(result)
            if isinstance(result, Said):
                self.journal.note(self.record, result.noted)
                self.journal.sent(self.record, chunks=result.chunks)
                result = result.answer
            if isinstance(result, Answer):
                await self._answer(result)
            else:
                await self._generate(verbatim(result, self.scope["path"], self.scope["query_string"]))
        except Gone:
            pass
        finally:
            self._settle("cancelled")

    async def _made(self, scheduled: Scheduled) -> Answer | Generation | Said:
        """Return the result when its model is loaded and has a place. Raises Gone."""
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

    async def _generate(self, generation: Generation) -> None:
        reply, encoder = generation.reply, generation.encoder
        noted = {"rule": reply.rule, "passed_over": reply.passed_over, **generation.noted}
        self.journal.note(self.record, noted)
        at_once = not self.speed and not interrupted(reply)
        if not at_once or noted.get("truncated"):
            self.memory = None
        if at_once and not generation.stream:
            answer = encoder.whole()
            self._remember(answer, noted)
            return await self._answer(answer)
        await watched(self._play(generation), self.receive)
        if len(self.parts) < MOST_PARTS:
            self._remember(Answer(200, b"".join(self.parts), encoder.content_type, declared=False), noted)
        return None

    def _remember(self, answer: Answer, noted: Mapping[str, Any]) -> None:
        if self.memory is not None:
            self.memory.keep(Said(answer, noted, self.record.chunks), *self.facts)

    async def _play(self, generation: Generation) -> None:
        """Play the reply over time; a whole reply is waited for and then sent in one piece."""
        encoder, stream = generation.encoder, generation.stream
        end = planned_end(generation.reply) if self.speed else 0
        async with aclosing(paced(pieces(generation.reply), self.speed, end)) as batches:
            async for batch in batches:
                last = batch[-1].value
                if isinstance(last, Failure) and (not stream or (len(batch) == 1 and not self.record.status)):
                    return await self._answer(encoder.refusal(last, stream=stream))
                if not stream:
                    continue
                if not self.record.status:
                    await self._start(200, encoder.content_type)
                if isinstance(last, (Failure, Cut)):
                    await self._chunks(encoder, batch[:-1])
                    return await self._end(encoder.error(last) if isinstance(last, Failure) else b"", "failed")
                await self._chunks(encoder, batch)
        if not stream:
            return await self._answer(encoder.whole())
        if not self.record.status:
            await self._start(200, encoder.content_type)
        body = encoder.end()
        self._part(body)
        return await self._end(body, "finished")

    async def _answer(self, answer: Answer) -> None:
        declared = answer.declared and len(answer.body) <= DECLARED_UP_TO
        length = ((b"content-length", b"%d" % len(answer.body)),) if declared else ()
        await self._start(answer.status, answer.content_type, *answer.headers, *length)
        body = b"" if self.record.method == "HEAD" else answer.body
        await self._end(body, "finished" if answer.status < 400 else "failed")

    async def _start(self, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
        kind = ((b"content-type", content_type),) if content_type else ()
        cors = OPEN_CORS if any(name == b"origin" for name, _ in self.scope["headers"]) else ()
        self.journal.sent(self.record, status=status)
        await self.send({"type": "http.response.start", "status": status, "headers": [*headers, *kind, *cors]})

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
        """Send the last bytes. A client that has read them finds the exchange settled."""
        self._settle(outcome)
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def _settle(self, outcome: Outcome) -> None:
        if self.record.outcome == "running":
            self.journal.close(self.record, outcome)
            if self.lease is not None:
                self.lease.release()


async def watched(playing: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """Run a coroutine to its end. Raises Gone if the client disconnects first."""
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


async def read_body(receive: Receive) -> bytes | None:
    """Return the whole request body, or None if the client disconnects before it is complete."""
    received = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        received.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(received)
