"""Functions that read configuration entries. They raise `ConfigError` for invalid entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_args

from mochi_stub.config.response_types import CHUNK_SIZES, Match, ReplySettings, Response
from mochi_stub.config.yaml_source import Item, Readers
from mochi_stub.models.catalogue import MIN_CONTEXT, Model
from mochi_stub.prompt import ToolCall
from mochi_stub.recording.files import recorded
from mochi_stub.recording.translation import api_of
from mochi_stub.reply import Content, Failure, Usage

CAPABILITIES = ("completion", "tools", "thinking", "vision", "insert", "embedding", "audio", "image")
MIN_EMBEDDING_LENGTH = 256
LATEST_CHANGE = datetime(2026, 1, 15, tzinfo=timezone.utc)
MAX_SECONDS = 24 * 3600
SERVER_HEADERS = ("connection", "content-length", "content-type", "transfer-encoding")
_UNDECLARED = Model("", CAPABILITIES[:6], context_length=131072, embedding_length=768)


def response(item: Item, **others: Callable[[Item], Any]) -> Response:
    """Read a response: a text, or a mapping with a type. `others` read additional fields. Raises ConfigError."""
    if not isinstance(item.value, dict):
        return Response(content=item.string("a text or a mapping with a type"))
    if "type" not in item.value:
        raise item.error(f"a type: {', '.join(RESPONSES)}")
    kind = item.value["type"].string()
    if kind not in RESPONSES:
        raise item.value["type"].error(f"a type: {', '.join(RESPONSES)}; found {kind!r}")
    required = {"path": "a path to a recorded file"} if kind == "file" else {}
    fields = item.fields({"type": Item.string, **RESPONSES[kind], **others}, f"a response of type {kind}", **required)
    if kind == "error":
        fields["failure"] = _pop_failure(fields)
    return Response(fields.pop("type"), pop_settings(fields), **fields)


def triggered_response(trigger: str, item: Item) -> Response:
    """Read the response of a trigger, which can have the additional key `match`. Raises ConfigError."""
    found = response(item, match=lambda value: value.choice(*get_args(Match)))
    if found.match == "regex":
        try:
            re.compile(trigger)
        except (re.error, OverflowError) as error:
            raise item.key_error(f"a regular expression, found {trigger!r} ({error})") from None
    return found


def model_from_fields(name: str, fields: Mapping[str, Any], position: int) -> Model:
    """Return a model. The first model of the file (`position` 0) has the latest default modification time."""
    modified_at = (LATEST_CHANGE - timedelta(minutes=position)).strftime("%Y-%m-%dT%H:%M:%SZ")
    least_context = None if "capabilities" in fields else MIN_CONTEXT  # default vision does not raise the minimum
    default = {"name": name, "modified_at": modified_at, "least_context": least_context}
    styled = {"template_style" if key == "habit" else key: value for key, value in fields.items()}
    return replace(_UNDECLARED, **{**default, **styled})


def pop_settings(fields: dict[str, Any]) -> ReplySettings:
    """Remove the stream settings from `fields` and return them."""
    return ReplySettings(**{name: fields.pop(name) for name in STREAM if name in fields})


def _content(item: Item) -> Content:
    if item.value is None:
        return ""
    return item.strings("a list of texts") if isinstance(item.value, list) else item.string("a text or a list of texts")


def _arguments(item: Item) -> Any:
    item.mapping("arguments as a mapping")
    return item.plain()


def _pause(item: Item) -> tuple[int, float]:
    fields = item.fields(_PAUSE, "a pause", seconds="seconds in a pause")
    return fields.get("after", 0), fields["seconds"]


def _fail(item: Item) -> tuple[int, Failure]:
    fields = item.fields({"after": _count, **_ERROR}, "an error")
    return fields.pop("after", 0), _pop_failure(fields)


def _pop_failure(fields: dict[str, Any]) -> Failure:
    status = fields.pop("status", 500)
    return Failure(fields.pop("message", f"error {status}"), status, fields.pop("headers", ()))


def _headers(item: Item) -> tuple[tuple[str, str], ...]:
    entries = [(name.lower(), value) for name, value in item.mapping("a mapping of headers").items()]
    for name, value in entries:
        if name in SERVER_HEADERS:
            raise value.key_error(f"a header other than {', '.join(SERVER_HEADERS)}, found {name!r}")
    return tuple((name, value.header(name)) for name, value in entries)


def _vector(item: Item) -> tuple[float, ...] | None:
    if item.value in ("zero", None):
        return None
    if not item.items("zero or a list of numbers"):
        raise item.error("zero or a list of numbers, found an empty list")
    return tuple(number.number() for number in item.value)


def _recorded_file(item: Item) -> Path:
    path = item.path("a path to a recorded file")
    if not path.exists():
        raise item.error(f"a recorded file, found none at {path}")
    recording = recorded(path)
    if recording.status < 400 and not api_of(recording.path):
        raise item.error(f"a recorded reply of a model, found a response from {recording.url}")
    return path


def _time(item: Item) -> str:
    text = item.string("a time like 2026-01-15T09:00:00Z")
    try:
        datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        raise item.error(f"a time like 2026-01-15T09:00:00Z, found {text!r}") from None
    return text


def _parameter_size(item: Item) -> str:
    text = item.string("a size like 8.0B")
    if not re.fullmatch(r"\d+(\.\d*)?[KMB]?", text):
        raise item.error(f"a size like 8.0B, found {text!r}")
    return text


def _parameter(name: str, item: Item) -> Any:
    if name == "stop":
        return list(item.strings("a list of texts")) if isinstance(item.value, list) else item.string()
    if name in ("num_ctx", "num_predict", "seed", "top_k"):
        return item.whole(-(2**31))
    item.string("a number, a text, true or false")
    return item.value


def _count(item: Item) -> int:
    return item.whole(0)


_CALL: Readers = {"name": Item.string, "arguments": _arguments, "id": Item.string}
_PAUSE: Readers = {"after": _count, "seconds": lambda item: item.number(0, MAX_SECONDS)}
_USAGE: Readers = dict.fromkeys(("input", "output", "reasoning", "cache_read", "cache_creation"), _count)
_ERROR: Readers = {
    "type": Item.string,
    "status": lambda item: item.whole(400, 599),
    "message": Item.string,
    "headers": _headers,
}
MESSAGE: Readers = {
    "content": _content,
    "reasoning": _content,
    "tool_calls": lambda item: tuple(
        ToolCall(**call.fields(_CALL, "a tool call", name="a name in a tool call"))
        for call in item.items("a list of tool calls")
    ),
    "usage": lambda item: Usage(**item.fields(_USAGE, "usage")),
    "finish": lambda item: item.choice("stop", "length", "content_filter"),
    "think_tags": Item.flag,
}
STREAM: Readers = {  # the fields of ReplySettings
    "profile": lambda item: item.choice(*CHUNK_SIZES),
    "tokens_per_second": lambda item: item.number(0, above=True),
    "jitter": lambda item: item.number(0, 1),
    "delay": lambda item: item.number(0, MAX_SECONDS),
    "pause": _pause,
    "fail": _fail,
    "cut_after": _count,
}
_GENERATED: Readers = {**{name: reader for name, reader in MESSAGE.items() if name != "content"}, **STREAM}
RESPONSES: Mapping[str, Readers] = {  # the fields of each type of response
    "message": {**MESSAGE, **STREAM},
    **dict.fromkeys(("echo", "mirror", "lorem", "task", "demo"), _GENERATED),
    "embedding": {"vector": _vector},
    "error": _ERROR,
    "file": {"path": _recorded_file, **STREAM},
}
MODEL: Readers = {  # the fields of Model that a configuration can declare
    "capabilities": lambda item: tuple(name.choice(*CAPABILITIES) for name in item.items("a list of capabilities")),
    "context_length": lambda item: item.whole(4),
    "embedding_length": lambda item: item.whole(MIN_EMBEDDING_LENGTH, 65536),
    "chars_per_token": lambda item: item.number(0, 1000, above=True),
    **dict.fromkeys(("template_style", "habit"), lambda item: item.choice("native", "template", "builtin")),
    "family": Item.string,
    "parameter_size": _parameter_size,
    "quantization": Item.string,
    "size": _count,
    "modified_at": _time,
    "parameters": lambda item: {
        name: _parameter(name, value) for name, value in item.mapping("a mapping of options").items()
    },
    "system": Item.string,
    "template": Item.string,
    "license": Item.string,
    "load_time": lambda item: item.number(0, 3600),
    "out_of_memory_above": lambda item: item.whole(1),
}
