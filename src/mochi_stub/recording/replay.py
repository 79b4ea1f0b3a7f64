"""Replay of recordings: a recorded request gets its recorded response."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.config.entry_readers import model_from_fields
from mochi_stub.config.loader import Config
from mochi_stub.config.model_registry import ModelRegistry
from mochi_stub.http.http_result import Generation, HttpResponse, Request, Result, Stub
from mochi_stub.recording.files import OWN, Recording, RequestKey, recordings_below, request_key
from mochi_stub.recording.translation import wire_of
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, Frames, Pace, Part, Pause, Reply, Text
from mochi_stub.wire.routes import failure_answer, route

MAX_SHOWN = 5
_EMBEDDING = ("/embed", "/embeddings", ":embedContent", ":batchEmbedContents")


def replay(config: Config | None, stub: Stub, request: Request) -> Result | None:
    """Return the recorded response to a request, or a refusal; None if the models of the configuration answer it.

    A request in the other mode (streamed or not) gets the recorded reply, translated.
    """
    if config is None or config.recordings is None or request.path.startswith(OWN):
        return None
    wanted = request_key(request.method, request.path, request.query_string.decode("latin-1"), request.body)
    other = replace(wanted, stream=not wanted.stream)
    known, problems = recordings_below(config.recordings, config.path)
    for one in known:
        if one.request_key.stamp == wanted.stamp:
            return _played(one.frames, Reply(rule=f"recording {one.file.name}"), {})
    for one in known:
        if one.request_key.stamp == other.stamp:
            reply = replace(one.reply, rule=f"recording {one.file.name}, in the other mode")
            return _translated(stub, request, wanted, reply)
    if config.models:
        return None
    message = "; ".join([describe_nearest(wanted, known), *problems])
    return _translated(stub, request, wanted, Reply([Failure(message, 404)], rule="no recording"))


def _translated(stub: Stub, request: Request, wanted: RequestKey, reply: Reply) -> Result:
    """Return the reply in the form of the requested wire, from a model that can do everything."""
    if wire_of(request.path) is None and not request.path.endswith(_EMBEDDING):
        return failure_answer(request, next(part for part in reply.parts if isinstance(part, Failure)))
    library = ModelRegistry([model_from_fields(wanted.model or "recorded", {}, 0)])
    return route(replace(stub, registry=library, resolve=lambda _: replace(reply, unasked=True)), request)


def describe_nearest(wanted: RequestKey, known: Iterable[Recording]) -> str:
    """Describe the differences between the request and the most similar recording."""
    compared = [
        (one.request_key.path != wanted.path, len(found := _differences(one.request_key, wanted)), one.file.name, found)
        for one in known
        if one.method == wanted.method
    ]
    if not compared:
        return f"there is no recording of any {wanted.method} request"
    *_, name, found = min(compared)
    shown = "; ".join(found[:MAX_SHOWN])
    rest = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return f"no recording of this request; the nearest is {name}: {shown}{rest}"


def _differences(recorded: RequestKey, wanted: RequestKey) -> list[str]:
    before, after = _places(recorded), _places(wanted)
    return [
        f"{place}: recorded {before.get(place, 'nothing'):.100}, asked {after.get(place, 'nothing'):.100}"
        for place in before | after
        if before.get(place) != after.get(place)
    ]


def _places(request: RequestKey) -> dict[str, str]:
    query = {f"query {name}": repr(value) for name, value in request.query}
    return {"path": repr(request.path), **query, **_leaves(request.body), "stream": repr(request.stream)}


def _leaves(value: Any, place: str = "") -> dict[str, str]:
    """Return every scalar as text by its place, like `messages[0].content`."""
    if isinstance(value, Mapping) and value:
        items = [(f"{place}.{key}" if place else str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        items = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {place or "body": repr(value)}
    return {where: leaf for name, item in items for where, leaf in _leaves(item, name).items()}


def recorded_playback(generation: Generation, request: Request) -> Generation:
    """Return the generation, with its recorded bytes if they fit the request."""
    frames = generation.reply.frames
    if frames is None or frames.stream is not generation.stream or frames.wire != wire_of(request.path):
        return generation
    listed = b"alt=sse" not in request.query_string if frames.stream else frames.frames[0].startswith(b"[")
    if frames.wire == "gemini" and listed:  # a list on one side, events on the other
        return generation
    return _played(frames, generation.reply, generation.noted)


def _played(frames: Frames, reply: Reply, noted: Mapping[str, Any]) -> Generation:
    """Return a generation that sends the frames at their times."""
    parts: list[Part] = []
    before = 0
    for frame, due in zip(frames.frames, frames.due, strict=True):
        if due > before:
            parts.append(Pause((due - before) / 1e9))
            before = due
        parts.append(Text((frame.decode(errors="surrogateescape") if frames.stream else "",)))
    reply = replace(reply, parts=parts, pace=Pace(characters_per_second=math.inf))
    return Generation(reply, FrameEncoder(frames), frames.stream, noted)


class FrameEncoder:
    """Frames as they are, also frames that are no text."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.content_type = frames.content_type

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode(errors="surrogateescape")

    def end(self) -> bytes:
        return b""

    def error(self, failure: Failure) -> bytes:
        return failure.message.encode()

    def refusal(self, failure: Failure, *, stream: bool) -> HttpResponse:
        del stream
        return HttpResponse(failure.status, failure.message.encode())

    def whole(self) -> HttpResponse:
        frames = self.frames
        return HttpResponse(frames.status, b"".join(frames.frames), frames.content_type, frames.headers)
