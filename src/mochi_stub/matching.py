"""What makes two requests the same: the one place that says so, for what is recorded and for what is replayed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from mochi_stub.journal import masked_query, parsed_body

MAX_SHOWN = 5
PREFIX = "/ollama"
OWN = ("/health", "/stub/")
"""What is asked of the stub itself is neither recorded nor replayed."""
_STREAMED = re.compile(r"/(chat|generate|completions|responses|messages)$")


@dataclass(frozen=True)
class Asked:
    """A request as far as it counts: no headers, nothing secret, `stream` taken out of the body."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    stream: bool

    @cached_property
    def stamp(self) -> str:
        """The same for requests that are the same, and for no others."""
        told = json.dumps([self.method, self.path, self.query, self.body, self.stream], sort_keys=True)
        return hashlib.sha256(told.encode(errors="replace")).hexdigest()[:16]

    @property
    def in_other_mode(self) -> Asked:
        return replace(self, stream=not self.stream)

    @property
    def model(self) -> str:
        """The name of the model, "" where there is none."""
        named = re.search(r"/models/([^:/]+):\w+$", self.path)
        name = self.body.get("model", "") if isinstance(self.body, dict) else ""
        return named[1] if named else name if isinstance(name, str) else ""


def asked(method: str, path: str, query: str, data: bytes) -> Asked:
    """What was asked, from the request as it came."""
    pairs = tuple(sorted(parse_qsl(masked_query(query.encode("latin-1", "replace")), keep_blank_values=True)))
    path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
    parsed = parsed_body(data)
    body = data.decode(errors="replace") if parsed is None else parsed
    streamed = path.startswith("/api/")
    if _STREAMED.search(path) and isinstance(body, dict):
        streamed = bool(body.get("stream", streamed))
        body = {key: value for key, value in body.items() if key != "stream"}
    return Asked(method, path, pairs, body, streamed or path.endswith(":streamGenerateContent"))


def nearest(wanted: Asked, known: Iterable[tuple[str, Asked]]) -> str:
    """Describe the differences between the request and the most similar recording."""
    compared = [
        (one.path != wanted.path, len(found := _differences(one, wanted)), name, found)
        for name, one in known
        if one.method == wanted.method
    ]
    if not compared:
        return f"there is no recording of any {wanted.method} request"
    *_, name, found = min(compared)
    shown = "; ".join(found[:MAX_SHOWN])
    rest = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return f"no recording of this request; the nearest is {name}: {shown}{rest}"


def _differences(recorded: Asked, wanted: Asked) -> list[str]:
    before, after = _places(recorded), _places(wanted)
    return [
        f"{place}: recorded {_shown(place, before)}, asked {_shown(place, after)}"
        for place in before | after
        if place not in before or place not in after or before[place] != after[place]
    ]


def _places(request: Asked) -> dict[str, Any]:
    query = {f"query {name}": value for name, value in request.query}
    return {"path": request.path, **query, **_leaves(request.body), "stream": request.stream}


def _leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Return every scalar by its place, like `messages[0].content`."""
    if isinstance(value, Mapping) and value:
        items = [(f"{place}.{key}" if place else str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        items = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {place or "body": value}
    return {where: leaf for name, item in items for where, leaf in _leaves(item, name).items()}


def _shown(place: str, places: Mapping[str, Any]) -> str:
    text = repr(places[place]) if place in places else "nothing"
    return text if len(text) <= 100 else f"{text[:97]}..."
