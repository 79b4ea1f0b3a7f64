"""Application of the stub: it routes each request to a handler or a recording, and sends the result."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from mochi_stub.config import model_from_properties
from mochi_stub.handlers import Encoder, Generation, ModelRegistry, Result, ScheduledResult, Stub
from mochi_stub.http import Access, HttpResponse, Request, ResponseWriter
from mochi_stub.journal import JournalEntry, Outcome
from mochi_stub.models.scheduler import Lease
from mochi_stub.providers import refusal, response_headers, route
from mochi_stub.recording import LOCAL_ROUTES, Recording, RequestKey, api_of, recordings_below, request_key
from mochi_stub.replies.chunks import Piece, paced, pieces, planned_end
from mochi_stub.reply import Cut, Failure, Frames, Gate, HttpError, Pace, Part, Pause, Reply, Text

logger = logging.getLogger("mochi_stub")

MAX_SHOWN = 5
_EMBEDDING = ("/embed", "/embeddings", ":embedContent", ":batchEmbedContents")
MAX_DECLARED_BYTES = 2048  # Go's server sends longer bodies in chunks, without content-length


def log_request(record: JournalEntry) -> None:
    """Log one line about a request and its response."""
    request, mode = record.request, record.fields.get("mode", "-")
    line = "%s %s status=%d outcome=%s chunks=%d mode=%s"
    logger.info(line, request.method, request.path, record.status, record.outcome, record.chunks, mode)


@dataclass(frozen=True)
class App:
    """Request handler of the stub. All delays are divided by `speed`. If `speed` is 0, there are no delays."""

    stub: Stub
    speed: float
    access: Access

    async def __call__(self, writer: ResponseWriter) -> None:
        record = self.stub.journal.open(writer.request)
        self.stub.registry.refresh()
        try:
            await ExchangeHandler(self, writer, record).send()
        finally:
            log_request(record)

    def handle(self, request: Request) -> Result:
        return self.access.response(request) or replay(self.stub, request) or route(self.stub, request)


@dataclass
class ExchangeHandler:
    """Sender of the response to one request."""

    app: App
    writer: ResponseWriter
    record: JournalEntry
    lease: Lease | None = None

    async def send(self, result: Result | None = None) -> None:
        """Send a result to the client, then close the journal entry of the request and release the loaded model.

        Without `result`, the application handles the request.
        """
        request = self.writer.request
        try:
            result = result or self.app.handle(request)
            if isinstance(result, ScheduledResult):
                self.lease = lease = await self.app.stub.scheduler.acquire(result.load_request)
                self.record.update(num_ctx=lease.context, reload=lease.reload)
                result = result.build(lease)
            if isinstance(result, HttpResponse):
                await self._answer(result)
            else:
                await self._generate(recorded_playback(result, request))
        except HttpError as error:
            answer = refusal(self.app.stub, request, error)
            if isinstance(result, Generation) and result.error_content_type:
                answer = answer._replace(content_type=result.error_content_type, has_length=not result.stream)
            await self._answer(answer)
        except Exception as error:
            if self.record.status:  # the response has started
                raise
            logger.exception("request failed: method=%s path=%s", request.method, request.path)
            text = f"the stub failed: {error!r}".encode(errors="replace")
            await self._answer(HttpResponse(500, text, b"text/plain; charset=utf-8"))
        finally:
            self._close("cancelled")

    async def _generate(self, generation: Generation) -> None:
        reply = generation.reply
        fields = {"rule": reply.rule, "mode": reply.mode, "passed_over": reply.passed_over, **generation.journal_fields}
        self.record.update(**fields)
        if self.app.speed and generation.prompt_seconds:
            await asyncio.sleep(generation.prompt_seconds / self.app.speed)
        if self.app.speed or generation.stream or any(isinstance(part, (Failure, Cut, Gate)) for part in reply.parts):
            await self._play(generation)
        else:
            await self._answer(generation.encoder.complete_response())

    async def _play(self, generation: Generation) -> None:
        """Stream the pieces of the reply at their planned times. Without streaming, send the whole body at the end."""
        encoder, stream, speed = generation.encoder, generation.stream, self.app.speed
        end = planned_end(generation.reply) if speed else 0
        async with aclosing(paced(pieces(generation.reply), speed, end)) as batches:
            async for batch in batches:
                last = batch[-1].value
                if isinstance(last, Failure) and (not stream or (len(batch) == 1 and not self.record.status)):
                    raise HttpError(last.status, last.message, last.headers)
                if stream and isinstance(last, (Failure, Cut)):
                    await self._chunks(encoder, batch[:-1])
                    return await self._end(encoder.error(last) if isinstance(last, Failure) else b"", "failed")
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
        named = dict((*response_headers(self.app.stub, request), *headers))  # a recording can have the same header
        self.writer.start(status, [*named.items(), *kind, *cors])

    async def _chunks(self, encoder: Encoder, contents: list[Piece]) -> None:
        body = encoder.chunk(contents)
        if not self.record.status:
            self._start(200, encoder.content_type)
        self.record.update(chunks=len(contents))
        await self.writer.write(body)
        await asyncio.sleep(0)  # lets other requests run between the chunks of an undelayed reply

    async def _end(self, body: bytes, outcome: Outcome) -> None:
        self._close(outcome)  # before the write: a client with the whole body must find a closed exchange
        await self.writer.write(body, last=True)

    def _close(self, outcome: Outcome) -> None:
        if self.record.outcome == "running":
            self.record.close(outcome)
            if self.lease is not None:
                self.lease.release()


def replay(stub: Stub, request: Request) -> Result | None:
    """Return the recorded response to `request`, or None if the models of the configuration must answer it."""
    config = stub.registry.config
    if config is None or config.recordings is None or request.path.startswith(LOCAL_ROUTES):
        return None
    key = request_key(request.method, request.path, request.query_string.decode("latin-1"), request.body)
    other = replace(key, stream=not key.stream)
    recordings, problems = recordings_below(config.recordings, config.path)
    for recording in recordings:
        if recording.request_key.digest == key.digest:
            return _frame_playback(recording.frames, Reply(rule=f"recording {recording.file.name}"), {})
    for recording in recordings:
        if recording.request_key.digest == other.digest:
            mode = "a stream" if other.stream else "a whole response"
            reply = replace(recording.reply, rule=f"recording {recording.file.name}, translated from {mode}")
            return _translated(stub, request, key, reply)
    if config.models:
        return None
    message = "; ".join([describe_nearest(key, recordings), *problems])
    return _translated(stub, request, key, Reply([Failure(message, 404)], rule="no recording"))


def _translated(stub: Stub, request: Request, key: RequestKey, reply: Reply) -> Result:
    """Encode the reply in the format of the requested API, as the reply of a temporary model with all capabilities."""
    if api_of(request.path) is None and not request.path.endswith(_EMBEDDING):
        failure = next(part for part in reply.parts if isinstance(part, Failure))
        raise HttpError(failure.status, failure.message, failure.headers)
    registry = ModelRegistry([model_from_properties(key.model or "recorded", {}, 0)])
    return route(
        replace(stub, registry=registry, resolve=lambda _: replace(reply, sends_unoffered_calls=True)), request
    )


def describe_nearest(key: RequestKey, recordings: Iterable[Recording]) -> str:
    """Return a message that compares the request with the most similar recording."""
    compared = [
        (item.request_key.path != key.path, len(found := _differences(item.request_key, key)), item.file.name, found)
        for item in recordings
        if item.method == key.method
    ]
    if not compared:
        return f"there is no recording of any {key.method} request"
    *_, name, found = min(compared)
    return f"no recording of this request; the nearest is {name}: {'; '.join(found[:MAX_SHOWN])}"


def _differences(recorded: RequestKey, requested: RequestKey) -> list[str]:
    before, after = _values(recorded), _values(requested)
    return [
        f"{path}: recorded {before.get(path, 'nothing'):.100}, requested {after.get(path, 'nothing'):.100}"
        for path in before | after
        if before.get(path) != after.get(path)
    ]


def _values(request: RequestKey) -> dict[str, str]:
    query = {f"query {name}": repr(value) for name, value in request.query}
    return {"path": repr(request.path), **query, **dict(_leaves(request.body)), "stream": repr(request.stream)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path or "body", repr(value)


def recorded_playback(generation: Generation, request: Request) -> Generation:
    """Return a generation that sends the recorded bytes, or `generation` if they do not fit the API and mode."""
    frames = generation.reply.frames
    if frames is None or frames.stream is not generation.stream or frames.api != api_of(request.path):
        return generation
    listed = b"alt=sse" not in request.query_string if frames.stream else frames.frames[0].startswith(b"[")
    if frames.api == "gemini" and listed:  # either the request or the recording has a JSON list instead of events
        return generation
    return _frame_playback(frames, generation.reply, generation.journal_fields)


def _frame_playback(frames: Frames, reply: Reply, journal_fields: Mapping[str, Any]) -> Generation:
    parts: list[Part] = []
    for frame, due, before in zip(frames.frames, frames.due, (0, *frames.due), strict=False):
        parts.append(Pause(max(due - before, 0) / 1e9))
        parts.append(Text((frame.decode(errors="surrogateescape") if frames.stream else "",)))
    reply = replace(reply, parts=parts, pace=Pace(characters_per_second=math.inf))
    return Generation(reply, frames, frames.stream, {"mode": "recorded", **journal_fields})
