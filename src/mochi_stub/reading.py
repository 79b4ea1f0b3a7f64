"""Entries of a configuration to responses. Whatever is not as it should be is a `ConfigError` with its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mochi_stub.document import Item
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Content, Failure, Finish, Usage
from mochi_stub.responses import (
    CHARACTERS,
    NOTHING,
    Echo,
    Error,
    File,
    Lorem,
    Manner,
    Message,
    Mirror,
    Response,
    Task,
    Vector,
)

MANNER = ("profile", "tokens_per_second", "jitter", "pause", "fail", "cut_after")
_SAID = ("type", "reasoning", "tool_calls", "usage", "finish", "think_tags", *MANNER)
_MADE: Mapping[str, type[Message]] = {"echo": Echo, "mirror": Mirror, "lorem": Lorem, "task": Task}
TYPES = ("message", *_MADE, "embedding", "error", "file")
MAX_SECONDS = 24 * 3600
FRAMING = ("connection", "content-length", "content-type", "transfer-encoding")
"""Headers that tell how the body is sent, which only the server knows."""


def response(item: Item, folder: Path) -> Response:
    """What stands behind a trigger: a text, or a mapping with a type. Recorded files are counted from `folder`.

    Raises ConfigError.
    """
    if not isinstance(item.value, dict):
        return Message(item.string("a text or a mapping with a type"))
    if "type" not in item.value:
        raise item.error(f"a type: {', '.join(TYPES)}")
    kind = item.value["type"].string()
    if kind == "error":
        return Error(failure(item))
    if kind == "embedding":
        return Vector(_vector(item.known(("type", "vector"), "an embedding")))
    if kind == "file":
        return _file(item.known(("type", "path", *MANNER), "a file"), item, folder)
    if kind not in ("message", *_MADE):
        raise item.value["type"].error(f"a type: {', '.join(TYPES)}; found {kind!r}")
    return _message(item, kind)


def _message(item: Item, kind: str) -> Message:
    entries = item.known((*_SAID, *(("content",) if kind == "message" else ())), f"a response of type {kind}")
    made = _MADE.get(kind, Message)(
        content=_content(entries.get("content")),
        reasoning=_content(entries.get("reasoning")),
        tool_calls=tuple(map(_call, entries["tool_calls"].items("a list of calls"))) if "tool_calls" in entries else (),
        usage=_usage(entries["usage"]) if "usage" in entries else Usage(),
        think_tags="think_tags" in entries and entries["think_tags"].flag(),
        manner=manner(entries),
    )
    return replace(made, finish=_finish(entries["finish"])) if "finish" in entries else made


def _file(entries: Mapping[str, Item], item: Item, folder: Path) -> File:
    if "path" not in entries:
        raise item.error("a path to a recorded file")
    path = entries["path"].string("a path to a recorded file")
    return File(folder / path, manner(entries), entries["path"])


def _finish(item: Item) -> Finish:
    finishes: dict[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "content_filter"}
    return finishes[item.choice(*finishes)]


def _content(item: Item | None) -> Content:
    """A text, or a list of the pieces in which it is sent."""
    if item is None or item.value is None:
        return ""
    return item.strings("a list of texts") if isinstance(item.value, list) else item.string("a text or a list of texts")


def _call(item: Item) -> ToolCall:
    entries = item.known(("name", "arguments", "id"), "a tool call")
    if "name" not in entries:
        raise item.error("a name in a tool call")
    arguments = entries["arguments"].json_object("arguments as a mapping") if "arguments" in entries else {}
    return ToolCall(entries["name"].string(), arguments, entries["id"].string() if "id" in entries else None)


def _usage(item: Item) -> Usage:
    entries = item.known(("input", "output", "reasoning", "cache_read", "cache_creation"), "usage")
    return Usage(**{name: count.whole(0) for name, count in entries.items()})


def manner(entries: Mapping[str, Item]) -> Manner:
    """How a reply streams, as far as the entries say so. Raises ConfigError."""
    readers: dict[str, Callable[[Item], Any]] = {
        "profile": lambda item: item.choice(*CHARACTERS),
        "tokens_per_second": lambda item: item.number(0, above=True),
        "jitter": lambda item: item.number(0, 1),
        "pause": _pause,
        "fail": lambda item: (_after(item), failure(item, "after")),
        "cut_after": lambda item: item.whole(0),
    }
    said = {name: read(entries[name]) for name, read in readers.items() if name in entries}
    return Manner(**said) if said else NOTHING


def _pause(item: Item) -> tuple[int, float]:
    entries = item.known(("after", "seconds"), "a pause")
    if "seconds" not in entries:
        raise item.error("a pause of so many seconds")
    return _after(item), entries["seconds"].number(0, MAX_SECONDS)


def _after(item: Item) -> int:
    """Behind how many chunks; 0 where it is not said."""
    entries = item.mapping("a mapping")
    return entries["after"].whole(0) if "after" in entries else 0


def failure(item: Item, *others: str) -> Failure:
    """An HTTP error; `others` are keys that do not belong to it. Raises ConfigError."""
    entries = item.known(("type", "status", "message", "headers", *others), "an error")
    status = entries["status"].whole(400, 599) if "status" in entries else 500
    message = entries["message"].string() if "message" in entries else f"error {status}"
    headers = [] if "headers" not in entries else [*entries["headers"].mapping("a mapping of headers").items()]
    return Failure(message, status, tuple((name.lower(), _header(name.lower(), value)) for name, value in headers))


def _header(name: str, item: Item) -> str:
    if name in FRAMING:
        raise item.misnamed(f"the name of a header that is not the server's own, found {name!r}")
    return item.header(name)


def _vector(entries: Mapping[str, Item]) -> tuple[float, ...] | None:
    vector = entries.get("vector")
    if vector is None or vector.value == "zero":
        return None
    numbers = tuple(number.number(float("-inf")) for number in vector.items("zero or a list of numbers"))
    if not numbers:
        raise vector.error("zero or a list of numbers, found none")
    return numbers
