"""Recorded files. Each file has one request and its response. `docs/stub/configuration.md` describes the format."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, Field

from mochi_stub.journal import STUB_ROUTES, masked_query, parsed_body
from mochi_stub.json_encoding import compact_json, dumps, go_dumps
from mochi_stub.recording.translation import api_of, get, translate
from mochi_stub.reply import Failure, Frames, Pause, Reply
from mochi_stub.yaml_file import ConfigError, Headers, WatchedFile, parse, plain

MILLISECOND = 1_000_000
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ENDINGS = (".yaml", ".yml", ".json")
PREFIX = "/ollama"
_WITH_CHOICES = ("openai.chat", "openai.completions")
LOCAL_ROUTES = ("/health", STUB_ROUTES)  # requests to these routes are neither recorded nor replayed
_STREAMED = re.compile(r"/(chat|generate|completions|responses|messages)$")
_NOT_REPLAYED = {
    *(b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"connection", b"keep-alive"),
    *(b"date", b"server", b"set-cookie", b"access-control-allow-origin", b"vary", b"alt-svc"),
}


@dataclass(frozen=True)
class RequestKey:
    """Parts of a request that identify its recording, without secrets. `body` is without the field `stream`."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    stream: bool

    @cached_property
    def digest(self) -> str:
        text = json.dumps([self.method, self.path, self.query, self.body, self.stream], sort_keys=True)
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

    @property
    def model(self) -> str:
        in_path = re.search(r"/models/([^:/]+):\w+$", self.path)
        name = self.body.get("model", "") if isinstance(self.body, dict) else ""
        return in_path[1] if in_path else name if isinstance(name, str) else ""


def request_key(method: str, path: str, query: str, data: bytes) -> RequestKey:
    """Return the key of a request. Requests that differ only in secrets have equal keys."""
    pairs = tuple(sorted(parse_qsl(masked_query(query.encode("latin-1", "replace")), keep_blank_values=True)))
    path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
    parsed = parsed_body(data)
    body = data.decode(errors="replace") if parsed is None else parsed
    streamed = path.startswith("/api/")
    if _STREAMED.search(path) and isinstance(body, dict):
        streamed = bool(body.get("stream", streamed))
        body = {key: value for key, value in body.items() if key != "stream"}
    return RequestKey(method, path, pairs, body, streamed or path.endswith(":streamGenerateContent"))


@dataclass(frozen=True)
class Recording:
    """Recorded request and response.

    If the response is a stream, `body` lists the streamed objects. `timestamps` has the time of each object, in
    nanoseconds after the request. `request_path` is the path of the client's request if it differs from that in `url`.
    """

    file: Path
    method: str
    url: str
    request: Any
    status: int
    headers: Mapping[str, str]
    body: Any
    stream: bool
    timestamps: tuple[int, ...]
    request_path: str | None = None

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @cached_property
    def request_key(self) -> RequestKey:
        body = self.request
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return request_key(self.method, unquote(self.request_path or self.path), urlsplit(self.url).query, data)

    @cached_property
    def reply(self) -> Reply:
        """Recorded response as a reply that any API can send. Its `frames` are only valid for the recorded API."""
        if self.status >= 400:
            reply = Reply([Pause(max(self.timestamps, default=0) / 1e9), self._failure()])
        elif api_of(self.path) is None:
            reply = Reply([Failure(f"the response recorded at {self.path} is not the reply of a model", 500)])
        else:
            reply = translate(self.path.rstrip("/"), self.body, self.timestamps, stream=self.stream)
        return replace(reply, frames=self.frames)

    @cached_property
    def frames(self) -> Frames:
        """Recorded response as bytes. Only white space between JSON values can differ from the original."""
        api = api_of(self.path) or self.request_path or self.path
        complete = _with_index if api in _WITH_CHOICES else lambda value: value
        values, encode = (self.body, _frame) if self.stream else ([self.body], _body)
        frames = tuple(encode(api, complete(value)) for value in values)
        kind = self.headers.get("content-type") or self._content_type(api)
        encoded = [(name.encode(), text.encode("latin-1")) for name, text in self.headers.items()]
        headers = tuple(header for header in encoded if header[0] not in _NOT_REPLAYED)
        return Frames(api, self.stream, frames, self.timestamps, self.status, kind.encode("latin-1"), headers)

    def _failure(self) -> Failure:
        error = get(self.body, "error")
        message = get(error, "message") or error or get(self.body, "message") or f"error {self.status}"
        retry = [item for item in self.headers.items() if item[0].startswith(("retry-after", "x-ratelimit"))]
        return Failure(message if isinstance(message, str) else go_dumps(message), self.status, tuple(retry))

    def _content_type(self, api: str) -> str:
        if self.stream:
            return "application/x-ndjson" if api.startswith(("ollama", "/")) else "text/event-stream"
        if self.body is None:
            return ""
        return "text/plain; charset=utf-8" if isinstance(self.body, str) else "application/json"


def recorded(path: Path) -> Recording:
    """Return the recording in a file. The file is read again only after a change. Raises ConfigError."""
    return _watched(path).current()


def recordings_below(folder: Path, excluded: Path) -> tuple[list[Recording], list[str]]:
    """Return all recordings below a folder, except files named like `excluded`, and the errors of invalid files."""
    found: list[Recording] = []
    problems: list[str] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        for file in (Path(place, name) for name in sorted(names) if name.endswith(ENDINGS) and name != excluded.name):
            try:
                found.append(recorded(file))
            except ConfigError as error:
                problems.append(str(error))
    return found, problems


@lru_cache(maxsize=4096)
def _watched(path: Path) -> WatchedFile[Recording]:
    return WatchedFile(path, partial(read_recording, path))


class _Request(BaseModel, defer_build=True):
    method: str = "POST"
    url: str
    path: str | None = None
    body: Annotated[Any, BeforeValidator(plain)] = None


class _Response(BaseModel, defer_build=True):
    status: Annotated[int, Field(ge=200, le=599)] = 200
    headers: Headers = Field(default_factory=dict)
    body: Annotated[Any, BeforeValidator(plain)]
    is_streaming: bool | None = None
    at_ms: list[Milliseconds] | None = None


class _Exchange(BaseModel, defer_build=True):
    duration_ms: Milliseconds = 0.0
    request: _Request
    response: _Response


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
    times = response.at_ms or [exchange.duration_ms * (index + 1) / objects for index in range(objects)]
    if len(times) != objects:
        expected = f"{objects} times, one for each object of the body, found {len(times)}"
        raise document.error(expected, "response", "at_ms")
    timestamps = tuple(round(time * MILLISECOND) for time in times)
    received = (response.status, response.headers, response.body, stream, timestamps)
    return Recording(path, request.method, request.url, request.body, *received, request.path)


def _body(api: str, body: Any) -> bytes:
    if body is None or isinstance(body, str):
        return (body or "").encode()
    encode = go_dumps if api.startswith(("ollama", "/api", "/ollama")) else dumps
    return encode(body).encode()


def _with_index(value: Any) -> Any:
    """Add the position of each choice of OpenAI's APIs as its index if it has none, because clients require it."""
    choices = get(value, "choices")
    if not isinstance(choices, list) or all("index" in choice for choice in choices if isinstance(choice, dict)):
        return value
    numbered = enumerate(choices)
    return {**value, "choices": [{"index": index, **one} if isinstance(one, dict) else one for index, one in numbered]}


def _frame(api: str, value: Any) -> bytes:
    if api.startswith(("ollama", "/")):
        return _body(api, "null" if value is None else value) + b"\n"
    text = value.replace("\n", "\ndata: ") if isinstance(value, str) else compact_json(value)
    if value == {"done": True}:
        return b"data: [DONE]\n\n" if api in _WITH_CHOICES else b""
    if api == "gemini":
        return f"data: {text}\r\n\r\n".encode()
    kind = None if api in _WITH_CHOICES else get(value, "type")
    return f"event: {kind}\ndata: {text}\n\n".encode() if kind else f"data: {text}\n\n".encode()
