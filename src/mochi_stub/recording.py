"""Recorded files of one request and its response each, and the conversion of these responses to
replies.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, Field

from mochi_stub.journal import STUB_ROUTES, masked_query, parsed_body
from mochi_stub.json_encoding import dumps, go_dumps
from mochi_stub.providers import RECORDED_FORMATS
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, get, line_frame
from mochi_stub.replies.chunks import planned_end
from mochi_stub.reply import Failure, Frames, Pace, Pause, Reply
from mochi_stub.yaml_file import ConfigError, Headers, WatchedFile, parse, plain

MILLISECOND = 1_000_000
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ENDINGS = (".yaml", ".yml", ".json")
PREFIX = "/ollama"
LOCAL_ROUTES = (
    "/health",
    STUB_ROUTES,
)  # requests to these routes are neither recorded nor replayed
_NOT_REPLAYED = {
    *(
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"transfer-encoding",
        b"connection",
        b"keep-alive",
    ),
    *(b"date", b"server", b"set-cookie", b"access-control-allow-origin", b"vary", b"alt-svc"),
}


@dataclass(frozen=True)
class RequestKey:
    """Parts of a request that identify its recording, without secrets.

    `body` is without the field `stream`.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    stream: bool

    @cached_property
    def digest(self) -> str:
        text = json.dumps(
            [self.method, self.path, self.query, self.body, self.stream], sort_keys=True
        )
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

    @property
    def model(self) -> str:
        in_path = re.search(r"/models/([^:/]+):\w+$", self.path)
        name = self.body.get("model", "") if isinstance(self.body, dict) else ""
        return in_path[1] if in_path else name if isinstance(name, str) else ""


def request_key(method: str, path: str, query: str, data: bytes) -> RequestKey:
    """Return the key of a request. Requests that differ only in secrets have equal keys."""
    pairs = tuple(
        sorted(parse_qsl(masked_query(query.encode("latin-1", "replace")), keep_blank_values=True))
    )
    path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
    parsed = parsed_body(data)
    body = data.decode(errors="replace") if parsed is None else parsed
    streamed = path.startswith("/api/")
    if isinstance(body, dict) and "stream" in body:
        streamed = bool(body["stream"])
        body = {key: value for key, value in body.items() if key != "stream"}
    return RequestKey(
        method, path, pairs, body, streamed or path.endswith(":streamGenerateContent")
    )


class RecordedRequest(BaseModel, defer_build=True):
    """Request of a client.

    `path` is the path of the client's request if it differs from that in `url`.
    """

    method: str = "POST"
    url: str
    path: str | None = None
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
    def request_key(self) -> RequestKey:
        body = self.request.body
        data = (
            b""
            if body is None
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        return request_key(
            self.request.method,
            unquote(self.request.path or self.path),
            urlsplit(self.request.url).query,
            data,
        )

    @cached_property
    def reply(self) -> Reply:
        """Recorded response as a reply that any API can send.

        Its `frames` are only valid for the recorded API.
        """
        ending = path_ending(self.path)
        if self.response.status >= 400:
            reply = Reply([Pause(max(self.timestamps, default=0) / 1e9), self._failure()])
        elif ending is None:
            reply = Reply(
                [Failure(f"the response recorded at {self.path} is not the reply of a model", 500)]
            )
        else:
            reply = self._translated(RECORDED_FORMATS[ending].read)
        return replace(reply, frames=self.frames)

    @cached_property
    def frames(self) -> Frames:
        """Recorded response as texts.

        Only white space between JSON values can differ from the original.
        """
        ending = path_ending(self.path)
        path = ending or self.request.path or self.path
        format = RECORDED_FORMATS[ending] if ending else _format_of_other_responses(path)
        if self.stream:
            texts, content_type = tuple(map(format.frame, self.response.body)), format.stream_type
        elif self.response.body is None or isinstance(self.response.body, str):
            texts, content_type = (
                (self.response.body or "",),
                "text/plain; charset=utf-8" if self.response.body else "",
            )
        else:
            texts, content_type = (format.encode(self.response.body),), "application/json"
        content_type = self.response.headers.get("content-type") or content_type
        encoded = [
            (name.encode(), text.encode("latin-1")) for name, text in self.response.headers.items()
        ]
        headers = tuple(header for header in encoded if header[0] not in _NOT_REPLAYED)
        return Frames(
            path,
            self.stream,
            texts,
            self.timestamps,
            self.response.status,
            content_type.encode("latin-1"),
            headers,
        )

    def _translated(self, read: Callable[[Any, ReplyBuilder], None]) -> Reply:
        builder = ReplyBuilder(self.stream)
        objects = (
            self.response.body if isinstance(self.response.body, list) else [self.response.body]
        )  # without alt=sse, Gemini sends a list
        for time, item in zip(
            self.timestamps if self.stream else [0] * len(objects), objects, strict=True
        ):
            builder.timestamp = time
            error = get(item, "error")
            if error is None:
                read(item, builder)
            else:
                builder.fail(get(error, "message") or error, error)
        return builder.reply() if self.stream else _spread(builder.reply(), self.timestamps[-1])

    def _failure(self) -> Failure:
        error = get(self.response.body, "error")
        message = (
            get(error, "message")
            or error
            or get(self.response.body, "message")
            or f"error {self.response.status}"
        )
        retry = [
            item
            for item in self.response.headers.items()
            if item[0].startswith(("retry-after", "x-ratelimit"))
        ]
        return Failure(
            message if isinstance(message, str) else go_dumps(message),
            self.response.status,
            tuple(retry),
        )


def recorded(path: Path) -> Recording:
    """Return the recording in a file.

    The file is read again only after a change. Raises ConfigError.
    """
    return _watched(path).current()


def recordings_below(folder: Path, excluded: Path) -> tuple[list[Recording], list[str]]:
    """Return all recordings below a folder, except files named like `excluded`, and the errors of
    invalid files.
    """
    found: list[Recording] = []
    problems: list[str] = []
    for file in sorted(folder.rglob("*")):
        if file.suffix in ENDINGS and file.name != excluded.name:
            try:
                found.append(recorded(file))
            except ConfigError as error:
                problems.append(str(error))
    return found, problems


@lru_cache(maxsize=4096)
def _watched(path: Path) -> WatchedFile[Recording]:
    return WatchedFile(path, partial(read_recording, path))


def read_recording(path: Path, data: bytes) -> Recording:
    """Parse the bytes of a recorded file. Raises ConfigError."""
    document = parse(data, str(path))
    exchange = document.validate(_Exchange, document.data)
    request, response = exchange.request, exchange.response
    streams = get(request.body, "stream") is not False and isinstance(response.body, list)
    stream = streams if response.is_streaming is None else response.is_streaming
    if stream and not isinstance(response.body, list):
        raise document.error("a list of objects as the body of a stream", "response", "body")
    objects = len(response.body) if stream else 1
    times = response.at_ms or [
        exchange.duration_ms * (index + 1) / objects for index in range(objects)
    ]
    if len(times) != objects:
        expected = f"{objects} times, one for each object of the body, found {len(times)}"
        raise document.error(expected, "response", "at_ms")
    timestamps = tuple(round(time * MILLISECOND) for time in times)
    return Recording(path, request, response, stream, timestamps)


def path_ending(path: str) -> str | None:
    """Return the ending that the path has in `RECORDED_FORMATS`, or None for a path of no model."""
    return next((ending for ending in RECORDED_FORMATS if path.rstrip("/").endswith(ending)), None)


def _format_of_other_responses(path: str) -> RecordedFormat:
    encode = go_dumps if path.startswith(("/api", PREFIX)) else dumps
    return RecordedFormat(lambda *_: None, line_frame, "application/x-ndjson", encode)


def _spread(reply: Reply, duration: int) -> Reply:
    length = planned_end(replace(reply, pace=Pace(characters_per_second=1)))
    if duration and not length:
        return replace(reply, parts=[*reply.parts, Pause(duration / 1e9)])
    return replace(reply, pace=Pace(characters_per_second=length / duration) if duration else None)
