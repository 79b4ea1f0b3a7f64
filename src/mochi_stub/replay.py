"""Replay of recordings: the recorded response to a request, and its bytes or its translation to
another API.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.config import Config, model_from_properties
from mochi_stub.handlers import Generation, ModelRegistry, Result, Stub
from mochi_stub.http import Request
from mochi_stub.providers import RECORDED_FORMATS, route
from mochi_stub.recording import (
    LOCAL_ROUTES,
    Recording,
    RequestKey,
    path_ending,
    recordings_below,
    request_key,
)
from mochi_stub.reply import Failure, Frames, HttpError, Pace, Part, Pause, Reply, Text

MAX_SHOWN = 5


def replay(stub: Stub, config: Config | None, request: Request) -> Result | None:
    """Return the recorded response to `request`, or None if the models of the configuration must
    answer it.
    """
    if config is None or config.recordings is None or request.path.startswith(LOCAL_ROUTES):
        return None
    key = request_key(
        request.method, request.path, request.query_string.decode("latin-1"), request.body
    )
    other = replace(key, stream=not key.stream)
    recordings, problems = recordings_below(config.recordings, config.path)
    for recording in recordings:
        if recording.request_key.digest == key.digest:
            return _frame_playback(
                recording.frames, Reply(rule=f"recording {recording.file.name}"), {}
            )
    for recording in recordings:
        if recording.request_key.digest == other.digest:
            mode = "a stream" if other.stream else "a whole response"
            reply = replace(
                recording.reply, rule=f"recording {recording.file.name}, translated from {mode}"
            )
            return _translated(stub, request, key, reply)
    if config.models:
        return None
    message = "; ".join([describe_nearest(key, recordings), *problems])
    return _translated(stub, request, key, Reply([Failure(message, 404)], rule="no recording"))


def _translated(stub: Stub, request: Request, key: RequestKey, reply: Reply) -> Result:
    """Encode the reply in the format of the requested API, as the reply of a temporary model with
    all capabilities.
    """
    if path_ending(request.path) is None:
        failure = next(part for part in reply.parts if isinstance(part, Failure))
        raise HttpError(failure.status, failure.message, failure.headers)
    model, reply = (
        model_from_properties(key.model or "recorded", {}, 0),
        replace(reply, sends_unoffered_calls=True),
    )
    return route(
        replace(stub, registry=ModelRegistry(lambda: [model]), resolve=lambda _: reply), request
    )


def describe_nearest(key: RequestKey, recordings: Iterable[Recording]) -> str:
    """Return a message that compares the request with the most similar recording."""
    compared = [
        (
            item.request_key.path != key.path,
            len(found := _differences(item.request_key, key)),
            item.file.name,
            found,
        )
        for item in recordings
        if item.request.method == key.method
    ]
    if not compared:
        return f"there is no recording of any {key.method} request"
    *_, name, found = min(compared)
    return f"no recording of this request; the nearest is {name}: {'; '.join(found[:MAX_SHOWN])}"


def _differences(recorded: RequestKey, requested: RequestKey) -> list[str]:
    before, after = _values(recorded), _values(requested)
    return [
        f"{path}: recorded {before.get(path, 'nothing'):.100}, requested "
        f"{after.get(path, 'nothing'):.100}"
        for path in before | after
        if before.get(path) != after.get(path)
    ]


def _values(request: RequestKey) -> dict[str, str]:
    query = {f"query {name}": repr(value) for name, value in request.query}
    return {
        "path": repr(request.path),
        **query,
        **dict(_leaves(request.body)),
        "stream": repr(request.stream),
    }


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
    """Return a generation that sends the recorded bytes, or `generation` if they do not fit the API
    and mode.
    """
    frames, ending = generation.reply.frames, path_ending(request.path)
    if (
        frames is None
        or ending is None
        or (frames.path, frames.stream) != (ending, generation.stream)
    ):
        return generation
    stream_type = RECORDED_FORMATS[ending].stream_type
    if frames.stream and not generation.encoder.content_type.decode().startswith(stream_type):
        return generation  # Gemini can also stream a JSON list instead of events
    return _frame_playback(frames, generation.reply, generation.journal_fields)


def _frame_playback(frames: Frames, reply: Reply, journal_fields: Mapping[str, Any]) -> Generation:
    parts: list[Part] = []
    for text, due, before in zip(frames.texts, frames.due, (0, *frames.due), strict=False):
        parts += [Pause(max(due - before, 0) / 1e9), Text((text,))]
    reply = replace(reply, parts=parts, pace=Pace(characters_per_second=math.inf))
    return Generation(reply, frames, frames.stream, {"mode": "recorded", **journal_fields})
