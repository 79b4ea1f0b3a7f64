"""Recorded files of one request and its response each, the conversion of these responses to
replies, and their exact replay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field

from mochi_stub.handlers import Generation
from mochi_stub.http import Request
from mochi_stub.json_encoding import go_dumps
from mochi_stub.providers import RECORDED_FORMATS
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, get
from mochi_stub.replies.chunks import planned_end
from mochi_stub.reply import Failure, Frames, Pace, Part, Pause, Reply, Text
from mochi_stub.yaml_file import Headers, WatchedFile, parse, plain

MILLISECOND = 1_000_000
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_NOT_REPLAYED = {
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "date",
    "server",
    "set-cookie",
    "access-control-allow-origin",
    "vary",
    "alt-svc",
}


class RecordedRequest(BaseModel, defer_build=True):
    """Request of a client."""

    url: str
    body: Annotated[Any, BeforeValidator(plain)] = None


class RecordedResponse(BaseModel, defer_build=True):
    """Response to a request. If it is a stream, `body` lists the streamed objects."""

    status: Annotated[int, Field(ge=200, le=599)] = 200
    headers: Headers = Field(default_factory=dict)
    body: Annotated[Any, BeforeValidator(plain)]
    is_streaming: bool | None = None
    at_ms: list[Milliseconds] | None = None


class _Exchange(BaseModel, defer_build=True):
    duration_ms: Milliseconds = 0.0
    request: RecordedRequest
    response: RecordedResponse


@dataclass(frozen=True)
class Recording:
    """Recorded request and response, with the time of each streamed object in nanoseconds after the
    request.
    """

    file: Path
    request: RecordedRequest
    response: RecordedResponse
    stream: bool
    timestamps: tuple[int, ...]

    @property
    def path(self) -> str:
        return urlsplit(self.request.url).path

    @cached_property
    def reply(self) -> Reply:
        """Recorded response as a reply that any API can send.

        Its `frames` are only valid for the recorded API.
        """
        ending = path_ending(self.path)
        format = None
        frames = None
        if ending is not None:
            format = RECORDED_FORMATS[ending]
            frames = self._frames(ending, format)
        if self.response.status >= 400:
            failed_at = max(self.timestamps, default=0) / 1e9
            reply = Reply([Pause(failed_at), self._failure()])
        elif format is None:
            message = f"the response recorded at {self.path} is not the reply of a model"
            reply = Reply([Failure(message, 500)])
        else:
            reply = self._translated(format.read)
        return replace(reply, frames=frames)

    def _frames(self, ending: str, format: RecordedFormat) -> Frames:
        """Return the recorded response as texts.

        Only white space between JSON values can differ from the original.
        """
        body = self.response.body
        if self.stream:
            texts = tuple(map(format.frame, body))
            content_type = format.stream_type
        elif isinstance(body, str):
            texts = (body,)
            content_type = "text/plain; charset=utf-8" if body else ""
        elif body is None:
            texts = ("",)
            content_type = ""
        else:
            texts = (format.encode(body),)
            content_type = "application/json"
        content_type = self.response.headers.get("content-type") or content_type
        headers = []
        for name, text in self.response.headers.items():
            if name not in _NOT_REPLAYED:
                headers.append((name.encode(), text.encode("latin-1")))
        return Frames(
            path=ending,
            stream=self.stream,
            texts=texts,
            due=self.timestamps,
            status=self.response.status,
            content_type=content_type.encode("latin-1"),
            headers=tuple(headers),
        )

    def _translated(self, read: Callable[[Any, ReplyBuilder], None]) -> Reply:
        builder = ReplyBuilder(self.stream)
        objects = self.response.body
        if not isinstance(objects, list):  # without alt=sse, Gemini sends a list
            objects = [objects]
        for index, item in enumerate(objects):
            if self.stream:
                builder.timestamp = self.timestamps[index]
            error = get(item, "error")
            if error is None:
                read(item, builder)
            else:
                message = get(error, "message") or error
                builder.add_failure(message, error)
        reply = builder.build()
        if self.stream:
            return reply
        return _spread(reply, self.timestamps[-1])

    def _failure(self) -> Failure:
        body = self.response.body
        error = get(body, "error")
        message = get(error, "message") or error or get(body, "message")
        if not message:
            message = f"error {self.response.status}"
        elif not isinstance(message, str):
            message = go_dumps(message)
        retry = []
        for name, value in self.response.headers.items():
            if name.startswith(("retry-after", "x-ratelimit")):
                retry.append((name, value))
        return Failure(message, self.response.status, tuple(retry))


def playback(generation: Generation, request: Request) -> Generation:
    """Return a generation that sends the recorded bytes, or `generation` if they do not fit the API
    and mode.
    """
    frames = generation.reply.frames
    ending = path_ending(request.path)
    if frames is None or ending is None:
        return generation
    if frames.path != ending or frames.stream != generation.stream:
        return generation
    stream_type = RECORDED_FORMATS[ending].stream_type
    content_type = generation.encoder.content_type.decode()
    if frames.stream and not content_type.startswith(stream_type):
        return generation  # Gemini can also stream a JSON list instead of events
    parts = _timed_texts(frames)
    pace = Pace(characters_per_second=math.inf)
    reply = replace(generation.reply, parts=parts, pace=pace)
    fields = {"mode": "recorded", **generation.journal_fields}
    return Generation(reply, frames, frames.stream, fields)


def _timed_texts(frames: Frames) -> list[Part]:
    """Return each recorded text, after a pause until its time."""
    parts: list[Part] = []
    before = 0
    for text, due in zip(frames.texts, frames.due, strict=False):
        pause = max(due - before, 0) / 1e9
        parts.append(Pause(pause))
        parts.append(Text((text,)))
        before = due
    return parts


def recorded(path: Path) -> Recording:
    """Return the recording in a file.

    The file is read again only after a change. Raises ConfigError.
    """
    return _watched(path).current()


@lru_cache(maxsize=4096)
def _watched(path: Path) -> WatchedFile[Recording]:
    read = partial(read_recording, path)
    return WatchedFile(path, read)


def read_recording(path: Path, data: bytes) -> Recording:
    """Parse the bytes of a recorded file. Raises ConfigError."""
    document = parse(data, str(path))
    exchange = document.validate(_Exchange, document.data)
    request = exchange.request
    response = exchange.response
    is_list = isinstance(response.body, list)
    stream = response.is_streaming
    if stream is None:
        stream = is_list and get(request.body, "stream") is not False
    if stream and not is_list:
        raise document.error_at_value(
            "a list of objects as the body of a stream", "response", "body"
        )
    objects = 1
    if stream:
        objects = len(response.body)
    times = response.at_ms
    if not times:
        times = _evenly_spread(exchange.duration_ms, objects)
    if len(times) != objects:
        expected = f"{objects} times, one for each object of the body, found {len(times)}"
        raise document.error_at_value(expected, "response", "at_ms")
    timestamps = [round(time * MILLISECOND) for time in times]
    return Recording(path, request, response, stream, timestamps=tuple(timestamps))


def _evenly_spread(duration: float, count: int) -> list[float]:
    """Return `count` times, of which the last one is the duration."""
    times = []
    for number in range(1, count + 1):
        time = duration * number / count
        times.append(time)
    return times


def path_ending(path: str) -> str | None:
    """Return the ending that the path has in `RECORDED_FORMATS`, or None for a path of no model."""
    path = path.rstrip("/")
    for ending in RECORDED_FORMATS:
        if path.endswith(ending):
            return ending
    return None


def _spread(reply: Reply, duration: int) -> Reply:
    """Return the reply with a speed at which its texts take `duration` nanoseconds.

    A reply without text takes as long by a pause.
    """
    if not duration:
        return replace(reply, pace=None)
    one_a_second = Pace(characters_per_second=1)
    slow_duration = planned_end(replace(reply, pace=one_a_second))
    if slow_duration:
        pace = Pace(characters_per_second=slow_duration / duration)
        return replace(reply, pace=pace)
    pause = Pause(duration / 1e9)
    return replace(reply, parts=[*reply.parts, pause])
