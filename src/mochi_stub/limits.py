"""What ends a reply early: `num_predict` and `stop` sequences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mochi_stub.reply import Content, Finish, Part, Reasoning, Reply, Text, joined


def limited(reply: Reply, options: Mapping[str, Any], chars_per_token: float) -> Reply:
    """The reply as far as `stop` and `num_predict` let it come; what they cut off is gone, calls behind it too."""
    stop = options.get("stop") or ()
    stops = [stop] if isinstance(stop, str) else [one for one in stop if one]
    budget = options.get("num_predict")
    if stops:
        reply = _stopped(reply, stops)
    if budget is not None and budget >= 0:
        reply = _shortened(reply, int(budget * chars_per_token))
    return reply


def _stopped(reply: Reply, stops: Sequence[str]) -> Reply:
    for index, part in enumerate(reply.parts):
        if isinstance(part, (Reasoning, Text)):
            text = joined(part.content)
            found = [(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
            if found:
                at, stop = min(found)
                return replace(_ended(reply, index, part, at, "stop"), stop_sequence=stop)
    return reply


def _shortened(reply: Reply, characters: int) -> Reply:
    for index, part in enumerate(reply.parts):
        if isinstance(part, (Reasoning, Text)):
            length = len(joined(part.content))
            if length > characters:
                return _ended(reply, index, part, characters, "length")
            characters -= length
    return reply


def _ended(reply: Reply, index: int, part: Reasoning | Text, length: int, finish: Finish) -> Reply:
    parts: list[Part] = [*reply.parts[:index], replace(part, content=_cut(part.content, length))]
    return replace(reply, parts=parts, finish=finish, frames=None)


def _cut(content: Content, length: int) -> Content:
    if isinstance(content, str):
        return content[:length]
    pieces: list[str] = []
    for piece in content:
        pieces.append(piece[:length])
        length -= len(piece)
        if length <= 0:
            break
    return pieces
