"""Application of the stub: it routes each request to a handler and sends the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from aiohttp import HttpVersion11, web

from mochi_stub.cross_origin import is_cross_origin, preflight_response
from mochi_stub.handlers import Encoder, Generation, Result, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.journal import JournalEntry, Outcome
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Prompt
from mochi_stub.providers import refusal, response_headers, route
from mochi_stub.recording import playback
from mochi_stub.replies.chunks import Piece, paced, pieces, planned_end
from mochi_stub.reply import Cut, Failure, Gate, HttpError, Reply

logger = logging.getLogger("mochi_stub")

MAX_DECLARED_BYTES = 2048  # Go's server sends longer bodies in chunks, without content-length


def log_request(entry: JournalEntry) -> None:
    """Log one line about a request and its response."""
    logger.info(
        "%s %s status=%d outcome=%s chunks=%d mode=%s",
        entry.request.method,
        entry.request.path,
        entry.status,
        entry.outcome,
        entry.chunks,
        entry.fields.get("mode", "-"),
    )


@dataclass(frozen=True)
class App:
    """Request handler of the stub.

    All delays are divided by `speed`. If `speed` is 0, there are no delays.
    """

    stub: Stub
    speed: float

    async def respond(self, client: web.Request) -> web.StreamResponse:
        request = await _received(client)
        entry = self.stub.journal.open(request)
        self.stub.registry.refresh()
        exchange = ExchangeHandler(self, client, request, entry)
        try:
            return await exchange.send()
        finally:
            log_request(entry)


@dataclass
class ExchangeHandler:
    """Sender of the response to one request."""

    app: App
    client: web.Request
    request: Request
    entry: JournalEntry
    lease: Lease | None = None
    response: web.StreamResponse = field(default_factory=web.StreamResponse)

    async def send(self) -> web.StreamResponse:
        """Send the response, then close the journal entry of the request and release the loaded
        model.
        """
        path = self.request.path
        try:
            await self._respond()
        except ConnectionError:
            logger.debug("client disconnected: path=%s", path)
        except Exception as error:
            if self.entry.status:  # the response has started
                raise
            logger.exception("request failed: method=%s path=%s", self.request.method, path)
            text = f"the stub failed: {error!r}".encode(errors="replace")
            answer = HttpResponse(500, text, b"text/plain; charset=utf-8")
            await self._answer(answer)
        finally:
            self._close("cancelled")  # no effect after a complete response
        return self.response

    async def _respond(self) -> None:
        stub = replace(self.app.stub, load=self._load, resolve=self._resolve)
        result: Result | None = None
        try:
            result = preflight_response(self.request) or route(stub, self.request)
            if isinstance(result, Awaitable):
                result = await result
            if isinstance(result, HttpResponse):
                await self._answer(result)
            else:
                generation = playback(result, self.request)
                await self._generate(generation)
        except HttpError as error:
            answer = refusal(stub, self.request, error)
            if isinstance(result, Generation) and result.error_content_type:
                answer = answer._replace(
                    content_type=result.error_content_type,
                    has_length=not result.stream,
                )
            await self._answer(answer)

    async def _load(self, request: LoadRequest) -> Lease:
        self.lease = lease = await self.app.stub.scheduler.acquire(request)
        self.entry.update(num_ctx=lease.context, reload=lease.reload)
        return lease

    def _resolve(self, prompt: Prompt, model: Model) -> Reply:
        """Return the reply to a prompt, and store the rule of an embedding in the journal.

        `_generate` stores the rule of other replies.
        """
        reply = self.app.stub.resolve(prompt, model)
        if prompt.operation != "embed":
            return reply
        mode = reply.mode
        if mode == "empty":
            mode = "embedding"
        self.entry.update(
            model=prompt.model, rule=reply.rule, mode=mode, passed_over=reply.passed_over
        )
        return reply

    async def _generate(self, generation: Generation) -> None:
        """Send a reply. Raises HttpError for a failure of which nothing can be streamed."""
        reply = generation.reply
        fields: dict[str, Any] = {
            "rule": reply.rule,
            "mode": reply.mode,
            "passed_over": reply.passed_over,
            **generation.journal_fields,
        }
        self.entry.update(**fields)
        speed = self.app.speed
        if speed and generation.prompt_seconds:
            await asyncio.sleep(generation.prompt_seconds / speed)
        may_end_early = any(isinstance(part, (Failure, Cut, Gate)) for part in reply.parts)
        if speed or generation.stream or may_end_early:
            await self._play(generation)
            return
        answer = generation.encoder.complete_response()
        await self._answer(answer)

    async def _play(self, generation: Generation) -> None:
        """Stream the pieces of the reply at their planned times.

        Without streaming, wait as long and send the whole body at the end. Raises HttpError for a
        failure without streaming, or before the first chunk.
        """
        encoder = generation.encoder
        stream = generation.stream
        speed = self.app.speed
        end = 0
        if speed:
            end = planned_end(generation.reply)
        batches = paced(pieces(generation.reply), speed, end)
        async with aclosing(batches):
            async for batch in batches:
                last = batch[-1].value
                has_begun = stream and (len(batch) > 1 or self.entry.status)
                if isinstance(last, Failure) and not has_begun:
                    raise HttpError(last.status, last.message, last.headers)
                if not stream:
                    continue
                if isinstance(last, (Failure, Cut)):
                    await self._chunks(encoder, batch[:-1])
                    ending = b""
                    if isinstance(last, Failure):
                        ending = encoder.error(last)
                    return await self._end(ending, "failed")
                await self._chunks(encoder, batch)
        if not stream:
            answer = encoder.complete_response()
            return await self._answer(answer)
        end_of_stream = encoder.end()
        if not self.entry.status:
            await self._start_stream(encoder.content_type)
        return await self._end(end_of_stream, "finished")

    async def _answer(self, answer: HttpResponse) -> None:
        length = len(answer.body)
        headers = self._headers(answer.content_type, answer.headers)
        response = web.Response(status=answer.status, headers=headers, body=answer.body)
        if answer.has_length and length <= MAX_DECLARED_BYTES:
            response.headers["content-length"] = str(length)
        elif self.client.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await self._start(response)
        outcome: Outcome = "finished"
        if answer.status >= 400:
            outcome = "failed"
        self._close(outcome)  # a client with the whole body must find a closed exchange
        await response.write_eof()

    async def _start_stream(self, content_type: bytes) -> None:
        """Send the headers of a stream.

        The body is sent in chunks or, in HTTP/1.0, ends with the connection.
        """
        headers = self._headers(content_type, ())
        response = web.StreamResponse(status=200, headers=headers)
        await self._start(response)

    async def _start(self, response: web.StreamResponse) -> None:
        self.response = response
        if self.client.version < HttpVersion11:
            response.force_close()
        self.entry.update(status=response.status)
        await response.prepare(self.client)

    def _headers(self, content_type: bytes, own: Headers) -> dict[str, str]:
        headers = dict(response_headers(self.app.stub, self.request))
        headers.update(own)  # a recorded response can have a header of its API
        if content_type:
            headers[b"content-type"] = content_type
        if is_cross_origin(self.request):
            headers[b"access-control-allow-origin"] = b"*"
        decoded = {}
        for name, value in headers.items():
            decoded[name.decode("latin-1")] = value.decode("latin-1")
        return decoded

    async def _chunks(self, encoder: Encoder, contents: list[Piece]) -> None:
        body = encoder.chunk(contents)
        if not self.entry.status:
            await self._start_stream(encoder.content_type)
        self.entry.update(chunks=len(contents))
        await self.response.write(body)
        await asyncio.sleep(0)  # lets other requests run between the chunks of an undelayed reply

    async def _end(self, body: bytes, outcome: Outcome) -> None:
        self._close(outcome)
        await self.response.write_eof(body)

    def _close(self, outcome: Outcome) -> None:
        """Close the journal entry and release the loaded model, unless this is done."""
        if self.entry.outcome != "running":
            return
        self.entry.close(outcome)
        if self.lease is not None:
            self.lease.release()


async def _received(client: web.Request) -> Request:
    """Return a request whose body has arrived. The path is not normalised, as in Ollama."""
    target, _, query = client.raw_path.partition("?")
    if not target.startswith("/"):  # an absolute URL
        target = urlsplit(target).path
    headers = []
    for name, value in client.raw_headers:
        headers.append((name.lower(), value))
    return Request(
        method=client.method,
        path=unquote(target),
        body=await client.read(),
        query_string=query.encode(errors="surrogateescape"),
        raw_headers=tuple(headers),
        raw_path=target.encode(errors="surrogateescape"),
    )


async def omit_default_headers(_client: web.Request, response: web.StreamResponse) -> None:
    """Remove headers that aiohttp adds and Ollama does not send."""
    response.headers.popall("Server", None)
    if response.headers.get("Content-Type") == "application/octet-stream":
        del response.headers["Content-Type"]
