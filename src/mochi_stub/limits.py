"""The end of a reply by `num_predict` and `stop` sequences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from mochi_stub.reply import Content, Reasoning, Reply, Text, joined


def limited(reply: Reply, options: Mapping[str, Any], chars_per_token: float) -> Reply:
    """Return the reply up to the first stop sequence or the limit, without anything behind it."""
    stop, tokens = options.get("stop") or (), options.get("num_predict")
    stops = [stop] if isinstance(stop, str) else [one for one in stop if one]
    left = inf if tokens is None or tokens < 0 else int(tokens * chars_per_token)
    if not stops and left == inf:
        return reply
    for index, part in enumerate(reply.parts):
        if not isinstance(part, (Reasoning, Text)):
            continue
        text = joined(part.content)
        at, found = min(((at, one) for one in stops if (at := text.find(one)) >= 0), default=(len(text), None))
        if found is None and at <= left:
            left -= at
            continue
        shortened = replace(part, content=_cut(part.content, int(min(at, left))))
        ended = replace(reply, parts=[*reply.parts[:index], shortened], frames=None)
        return replace(ended, finish="stop", stop_sequence=found) if at <= left else replace(ended, finish="length")
    return reply


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
