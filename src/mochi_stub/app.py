"""Application of the stub: it routes each request to a handler or a recording, and sends the
result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from mochi_stub.config import Config
from mochi_stub.handlers import Encoder, Generation, Result, Stub
from mochi_stub.http import Access, HttpResponse, ResponseWriter
from mochi_stub.journal import JournalEntry, Outcome
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.providers import refusal, response_headers, route
from mochi_stub.replay import recorded_playback, replay
from mochi_stub.replies.chunks import Piece, paced, pieces, planned_end
from mochi_stub.reply import Cut, Failure, Gate, HttpError

logger = logging.getLogger("mochi_stub")

MAX_DECLARED_BYTES = 2048  # Go's server sends longer bodies in chunks, without content-length


def log_request(record: JournalEntry) -> None:
    """Log one line about a request and its response."""
    request, mode = record.request, record.fields.get("mode", "-")
    line = "%s %s status=%d outcome=%s chunks=%d mode=%s"
    logger.info(
        line, request.method, request.path, record.status, record.outcome, record.chunks, mode
    )


@dataclass(frozen=True)
class App:
    """Request handler of the stub.

    All delays are divided by `speed`. If `speed` is 0, there are no delays.
    """

    stub: Stub
    speed: float
    access: Access
    config: Callable[[], Config | None]

    async def __call__(self, writer: ResponseWriter) -> None:
        record = self.stub.journal.open(writer.request)
        self.stub.registry.refresh()
        try:
            await ExchangeHandler(self, writer, record).send()
        finally:
            log_request(record)


@dataclass
class ExchangeHandler:
    """Sender of the response to one request."""

    app: App
    writer: ResponseWriter
    record: JournalEntry
    lease: Lease | None = None

    async def send(self, result: Result | None = None) -> None:
        """Send a result to the client, then close the journal entry of the request and release the
        loaded model.

        Without `result`, the application handles the request.
        """
        app, request = self.app, self.writer.request
        stub = replace(app.stub, load=self._load)
        try:
            result = (
                result
                or app.access.response(request)
                or replay(stub, app.config(), request)
                or route(stub, request)
            )
            if isinstance(result, Awaitable):
                result = await result
            if isinstance(result, HttpResponse):
                await self._answer(result)
            else:
                await self._generate(recorded_playback(result, request))
        except HttpError as error:
            answer = refusal(stub, request, error)
            if isinstance(result, Generation) and result.error_content_type:
                answer = answer._replace(
                    content_type=result.error_content_type, has_length=not result.stream
                )
            await self._answer(answer)
        except Exception as error:
            if self.record.status:  # the response has started
                raise
            logger.exception("request failed: method=%s path=%s", request.method, request.path)
            text = f"the stub failed: {error!r}".encode(errors="replace")
            await self._answer(HttpResponse(500, text, b"text/plain; charset=utf-8"))
        finally:
            self._close("cancelled")

    async def _load(self, request: LoadRequest) -> Lease:
        self.lease = lease = await self.app.stub.scheduler.acquire(request)
        self.record.update(num_ctx=lease.context, reload=lease.reload)
        return lease

    async def _generate(self, generation: Generation) -> None:
        reply = generation.reply
        fields = {
            "rule": reply.rule,
            "mode": reply.mode,
            "passed_over": reply.passed_over,
            **generation.journal_fields,
        }
        self.record.update(**fields)
        if self.app.speed and generation.prompt_seconds:
            await asyncio.sleep(generation.prompt_seconds / self.app.speed)
        if (
            self.app.speed
            or generation.stream
            or any(isinstance(part, (Failure, Cut, Gate)) for part in reply.parts)
        ):
            await self._play(generation)
        else:
            await self._answer(generation.encoder.complete_response())

    async def _play(self, generation: Generation) -> None:
        """Stream the pieces of the reply at their planned times.

        Without streaming, send the whole body at the end.
        """
        encoder, stream, speed = generation.encoder, generation.stream, self.app.speed
        end = planned_end(generation.reply) if speed else 0
        async with aclosing(paced(pieces(generation.reply), speed, end)) as batches:
            async for batch in batches:
                last = batch[-1].value
                if isinstance(last, Failure) and (
                    not stream or (len(batch) == 1 and not self.record.status)
                ):
                    raise HttpError(last.status, last.message, last.headers)
                if stream and isinstance(last, (Failure, Cut)):
                    await self._chunks(encoder, batch[:-1])
                    return await self._end(
                        encoder.error(last) if isinstance(last, Failure) else b"", "failed"
                    )
                if stream:
                    await self._chunks(encoder, batch)
        if not stream:
            return await self._answer(encoder.complete_response())
        end_of_stream = encoder.end()
        if not self.record.status:
            self._start(200, encoder.content_type)
        return await self._end(end_of_stream, "finished")

    async def _answer(self, answer: HttpResponse) -> None:
        declared = answer.has_length and len(answer.body) <= MAX_DECLARED_BYTES
        length = ((b"content-length", b"%d" % len(answer.body)),) if declared else ()
        self._start(answer.status, answer.content_type, *answer.headers, *length)
        await self._end(answer.body, "finished" if answer.status < 400 else "failed")

    def _start(self, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
        kind = ((b"content-type", content_type),) if content_type else ()
        request = self.writer.request
        cors = self.app.access.headers(request) if b"origin" in dict(request.raw_headers) else ()
        self.record.update(status=status)
        named = dict(
            (*response_headers(self.app.stub, request), *headers)
        )  # a recording can have the same header
        self.writer.start(status, [*named.items(), *kind, *cors])

    async def _chunks(self, encoder: Encoder, contents: list[Piece]) -> None:
        body = encoder.chunk(contents)
        if not self.record.status:
            self._start(200, encoder.content_type)
        self.record.update(chunks=len(contents))
        await self.writer.write(body)
        await asyncio.sleep(0)  # lets other requests run between the chunks of an undelayed reply

    async def _end(self, body: bytes, outcome: Outcome) -> None:
        self._close(
            outcome
        )  # before the write: a client with the whole body must find a closed exchange
        await self.writer.write(body, last=True)

    def _close(self, outcome: Outcome) -> None:
        if self.record.outcome == "running":
            self.record.close(outcome)
            if self.lease is not None:
                self.lease.release()
