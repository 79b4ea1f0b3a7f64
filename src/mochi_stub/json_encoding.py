"""Compact JSON, server-sent events, and the JSON, numbers, times and quoted texts of Ollama, which
is written in Go.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from time import gmtime, strftime
from typing import Any, TypeAlias

import orjson

JsonObject: TypeAlias = dict[str, Any]


def dumps(value: Any) -> str:
    """Return compact JSON.

    The standard library encodes what orjson rejects: lone surrogates, huge numbers, deep nesting,
    and other mappings and iterables. It escapes all non-ASCII characters.
    """
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, separators=(",", ":"), default=_as_dict_or_list)


def _as_dict_or_list(value: Any) -> dict[Any, Any] | list[Any]:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value)


def event(value: Any, name: str = "") -> str:
    """Return a server-sent event whose data is the value as JSON."""
    data = dumps_line(value)
    if not name:
        return f"data: {data}\n\n"
    return f"event: {name}\ndata: {data}\n\n"


def dumps_line(value: Any) -> str:
    """Return compact JSON without the Unicode separators that some clients treat as line ends."""
    return dumps(value).translate(_SEPARATORS)


_SEPARATORS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
_SURROGATE = re.compile("[\ud800-\udfff]")


def go_dumps(value: Any) -> str:
    """Return compact JSON like Go's `encoding/json`, with `<`, `>` and `&` escaped.

    Keys keep their order.
    """
    if isinstance(value, str):
        return go_text(value)
    if value is None or isinstance(value, int):
        return dumps(value)
    if isinstance(value, float):
        return number(value)
    if not isinstance(value, Mapping):
        items = ",".join(map(go_dumps, value))
        return f"[{items}]"
    fields = []
    for key, item in value.items():
        name = go_text(str(key))
        fields.append(f"{name}:{go_dumps(item)}")
    joined = ",".join(fields)
    return f"{{{joined}}}"


def go_text(value: str) -> str:
    """Encode a string as JSON. Non-ASCII characters are not escaped, except U+2028 and U+2029.

    Lone surrogates become an escaped U+FFFD, like invalid UTF-8 in Go.
    """
    escaped = encode_basestring(value)
    escaped = escaped.replace("<", "\\u003c")
    escaped = escaped.replace(">", "\\u003e")
    escaped = escaped.replace("&", "\\u0026")
    if escaped.isascii():  # fast path, because this runs for every chunk
        return escaped
    escaped = escaped.replace("\u2028", "\\u2028")
    escaped = escaped.replace("\u2029", "\\u2029")
    return _SURROGATE.sub(r"\\ufffd", escaped)


def number(value: float) -> str:
    """Encode a float with as few digits as possible, and without the fraction of a whole number."""
    return dumps(value).removesuffix(".0")


def timestamp(nanoseconds: int) -> str:
    """Return nanoseconds since 1970 as an RFC 3339 time in UTC, without trailing zeros in the
    fraction.
    """
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    whole = _whole_seconds(seconds)
    time = f"{whole}.{fraction:09d}"
    time = time.rstrip("0").removesuffix(".")
    return f"{time}Z"


@lru_cache(maxsize=256)
def _whole_seconds(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))


quoted = encode_basestring
"""Return a text in quotes, with the escapes of Go's `%q`, except for control characters."""
