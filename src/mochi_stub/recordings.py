"""Recorded files: one request and its response, as they went over the wire.

    timestamp: '2026-01-14T17:43:13.913Z'
    duration_ms: 4560
    request: {method: POST, url: https://api.openai.com/v1/chat/completions, headers: {...}, body: {...}}
    response: {status: 200, headers: {...}, body: [...], is_streaming: true}

The body of a stream is the list of its objects, `done: true` stands for OpenAI's `[DONE]`. `response.at_ms` may say
when each of them came, in milliseconds after the request; else they are spread over `duration_ms`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from mochi_stub import jsontext
from mochi_stub.chunks import planned_end
from mochi_stub.document import ConfigError, Item, Watched, parse
from mochi_stub.matching import Asked, asked
from mochi_stub.recorded import anthropic, gemini, ollama, openai
from mochi_stub.recorded.gathered import Gathered, get
from mochi_stub.reply import Failure, Frames, Pace, Part, Pause, Reply, joined
from mochi_stub.wire.ollama import gojson

MILLISECOND = 1_000_000
ENDINGS = (".yaml", ".yml", ".json")
_Read = Callable[[Any, Gathered], None]
_READERS: Mapping[str, tuple[str, _Read, _Read]] = {
    "/api/chat": ("ollama.chat", ollama.read, ollama.read),
    "/api/generate": ("ollama.generate", ollama.read, ollama.read),
    "/chat/completions": ("openai.chat", openai.chat, openai.chat),
    "/completions": ("openai.completions", openai.chat, openai.chat),
    "/responses": ("openai.responses", openai.response, openai.response_event),
    "/messages": ("anthropic", anthropic.message, anthropic.event),
    ":generateContent": ("gemini", gemini.read, gemini.read),
    ":streamGenerateContent": ("gemini", gemini.read, gemini.read),
}
"""The end of a path to the wire's name, and what reads a whole body and an object of a stream."""

_NOT_REPLAYED = {
    *("content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "keep-alive", "date"),
    *("server", "set-cookie", "access-control-allow-origin", "vary", "alt-svc"),
}


@dataclass(frozen=True)
class Recording:
    """One exchange. `at` is when each object of the body was there, in nanoseconds; `body` of a stream is a list.

    `asked_path` is what the client asked where that is not the path of the URL.
    """

    method: str
    url: str
    request: Any
    status: int
    headers: Mapping[str, str]
    body: Any
    stream: bool
    at: tuple[int, ...]
    asked_path: str | None = None

    @property
    def path(self) -> str:
        return urlsplit(self.url).path


def asked_by(recording: Recording) -> Asked:
    """The request of a recording, as requests are compared."""
    parts = urlsplit(recording.url)
    body = recording.request
    data = b"" if body is None else body.encode() if isinstance(body, str) else orjson.dumps(body)
    return asked(recording.method, unquote(recording.asked_path or parts.path), parts.query, data)


def wire_of(path: str) -> str | None:
    """The wire that a path belongs to; None where what it answers is no reply of a model."""
    return next((wire for end, (wire, *_) in _READERS.items() if path.rstrip("/").endswith(end)), None)


@dataclass(frozen=True)
class Recorded:
    """What is in a recorded file, the reply that it holds, and the request as requests are compared."""

    file: Path
    recording: Recording
    reply: Reply
    asked: Asked


def reply_of(path: Path) -> Reply:
    """The reply that was recorded in a file, read again when the file has changed. Raises ConfigError."""
    return recorded(path).reply


def recorded(path: Path) -> Recorded:
    """What was recorded in a file. Raises ConfigError."""
    return _watched(path).current()


def recordings_below(folder: Path, besides: Path) -> tuple[list[Recorded], list[str]]:
    """The recordings below a folder, and what is wrong with those that cannot be read; `besides` is none of them."""
    found: list[Recorded] = []
    problems: list[str] = []
    for place, folders, names in os.walk(folder):
        folders.sort()
        for file in (Path(place, name) for name in sorted(names) if name.endswith(ENDINGS) and name != besides.name):
            try:
                found.append(recorded(file))
            except ConfigError as error:
                problems.append(str(error))
    return found, problems


@lru_cache(maxsize=4096)
def _watched(path: Path) -> Watched[Recorded]:
    return Watched(path, lambda data: _made(path, read_recording(parse(data, str(path)))))


def _made(path: Path, recording: Recording) -> Recorded:
    return Recorded(path, recording, to_reply(recording), asked_by(recording))


def read_recording(item: Item) -> Recording:
    """Raises ConfigError."""
    entries = item.mapping("a recorded exchange: a mapping with request and response")
    request = _section(entries, item, "request")
    response = _section(entries, item, "response")
    if "url" not in request:
        raise entries["request"].error("a url in request")
    if "body" not in response:
        raise entries["response"].error("a body in response")
    stream = _is_streaming(request, response)
    objects = len(response["body"].items("a list, for it is a stream")) if stream else 1
    headers = response["headers"].mapping("headers as a mapping") if "headers" in response else {}
    return Recording(
        method=request["method"].string() if "method" in request else "POST",
        url=_url(request["url"]),
        request=request["body"].plain() if "body" in request else None,
        status=response["status"].whole(200, 599) if "status" in response else 200,
        headers={name.lower(): value.header(name) for name, value in headers.items()},
        body=response["body"].plain(),
        stream=stream,
        at=_times(entries, response, objects),
        asked_path=request["path"].string() if "path" in request else None,
    )


def _url(item: Item) -> str:
    url = item.string("a url")
    try:
        urlsplit(url)
    except ValueError as error:
        raise item.error(f"a url, found {item.found} ({error})") from None
    return url


def _section(entries: Mapping[str, Item], item: Item, name: str) -> Mapping[str, Item]:
    if name not in entries:
        raise item.error(f"a {name} in the recorded exchange")
    return entries[name].mapping(f"{name} as a mapping")


def _is_streaming(request: Mapping[str, Item], response: Mapping[str, Item]) -> bool:
    """As it says; where it does not, as the request says, if the body is a list."""
    if "is_streaming" in response:
        return response["is_streaming"].flag()
    asked = get(request["body"].plain(), "stream") if "body" in request else None
    return asked is not False and isinstance(response["body"].value, list)


def _times(entries: Mapping[str, Item], response: Mapping[str, Item], objects: int) -> tuple[int, ...]:
    duration = entries["duration_ms"].number(0) if "duration_ms" in entries else 0.0
    if "at_ms" not in response:
        return tuple(round(duration * (index + 1) / objects * MILLISECOND) for index in range(objects))
    given = response["at_ms"].items("a list of milliseconds")
    if len(given) != objects:
        raise response["at_ms"].error(f"{objects} moments, one for each object of the body, found {len(given)}")
    return tuple(round(one.number(0) * MILLISECOND) for one in given)


def to_reply(recording: Recording) -> Reply:
    """What the model said, for any wire, and the frames for the wire that it was recorded on."""
    wire = wire_of(recording.path)
    if recording.status >= 400:
        reply = Reply([*_wait(recording), _failure(recording)])
    elif wire is None:
        reply = Reply([Failure(f"what was recorded at {recording.path} is not the reply of a model", 500)])
    else:
        reply = _translated(recording)
    return replace(reply, frames=frames(recording, wire or recording.path))


def _translated(recording: Recording) -> Reply:
    _, whole, chunk = next(entry for end, entry in _READERS.items() if recording.path.rstrip("/").endswith(end))
    into = Gathered()
    if recording.stream:
        for into.at, one in zip(recording.at, recording.body, strict=True):
            chunk(one, into)
        return into.reply()
    for one in recording.body if isinstance(recording.body, list) else [recording.body]:  # Gemini streams a list
        whole(one, into)
    return _spread(into.reply(), recording.at[-1])


def _spread(reply: Reply, duration: int) -> Reply:
    """The reply over that many nanoseconds, cut as usual."""
    parts: list[Part] = [_whole(part) for part in reply.parts]
    if not duration:
        return replace(reply, parts=parts, pace=None)
    characters = planned_end(replace(reply, parts=parts, pace=Pace(characters_per_second=1))) / 1e9
    if not characters:
        return replace(reply, parts=[*parts, Pause(duration / 1e9)])
    return replace(reply, parts=parts, pace=Pace(characters_per_second=characters / (duration / 1e9)))


def _whole(part: Part) -> Part:
    """Text in one piece, to be cut as usual."""
    content = getattr(part, "content", None)
    return part if content is None else replace(part, content=joined(content))  # type: ignore[type-var]


def _failure(recording: Recording) -> Failure:
    error = get(recording.body, "error")
    message = get(error, "message") or error or get(recording.body, "message") or f"error {recording.status}"
    retry = [
        (name, value) for name, value in recording.headers.items() if name.startswith(("retry-after", "x-ratelimit"))
    ]
    return Failure(message if isinstance(message, str) else gojson.dumps(message), recording.status, tuple(retry))


def _wait(recording: Recording) -> list[Part]:
    return [Pause(recording.at[-1] / 1e9)] if recording.at and recording.at[-1] else []


def frames(recording: Recording, wire: str) -> Frames:
    """The bytes as they were, but for blanks between the values of a JSON text."""
    kind = recording.headers.get("content-type") or _content_type(recording, wire)
    kept = {name: value for name, value in recording.headers.items() if name not in _NOT_REPLAYED}
    bodies = tuple(_frame(wire, one) for one in recording.body) if recording.stream else (_body(wire, recording.body),)
    return Frames(
        wire,
        recording.stream,
        bodies,
        recording.at,
        recording.status,
        kind.encode("latin-1", "replace"),
        tuple((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in kept.items()),
    )


def _content_type(recording: Recording, wire: str) -> str:
    if recording.body is None:
        return ""
    if not recording.stream:
        return "application/json" if not isinstance(recording.body, str) else "text/plain; charset=utf-8"
    return "application/x-ndjson" if wire.startswith(("ollama", "/")) else "text/event-stream"


def _dumps(wire: str, value: Any) -> str:
    return gojson.dumps(value) if wire.startswith(("ollama", "/api", "/ollama")) else jsontext.dumps(value)


def _body(wire: str, body: Any) -> bytes:
    return b"" if body is None else (body if isinstance(body, str) else _dumps(wire, body)).encode()


def _frame(wire: str, one: Any) -> bytes:
    if wire.startswith(("ollama", "/")):
        return f"{one if isinstance(one, str) else _dumps(wire, one)}\n".encode()
    text = one.replace("\n", "\ndata: ") if isinstance(one, str) else jsontext.one_line(one)
    if wire in ("openai.chat", "openai.completions"):
        return b"data: [DONE]\n\n" if one == {"done": True} else f"data: {text}\n\n".encode()
    if one == {"done": True}:  # no end that this provider sends
        return b""
    if wire == "gemini":
        return f"data: {text}\r\n\r\n".encode()
    kind = get(one, "type")
    return f"event: {kind}\ndata: {text}\n\n".encode() if kind else f"data: {text}\n\n".encode()
