"""Values as JSON text, compact and in UTF-8, as most programs write it. Ollama's wire has Go's way instead."""

from __future__ import annotations

import json
from typing import Any

import orjson


def dumps(value: Any) -> str:
    """The value; also where it holds what orjson does not take: half characters, huge numbers, deep nesting."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        # mappings and sequences of other classes than Python's own
        return json.dumps(
            value, separators=(",", ":"), default=lambda one: dict(one) if hasattr(one, "keys") else list(one)
        )


def event(value: Any, name: str = "") -> str:
    """One server-sent event."""
    return f"event: {name}\ndata: {one_line(value)}\n\n" if name else f"data: {one_line(value)}\n\n"


def one_line(value: Any) -> str:
    """The value without any separator that some client takes for the end of a line."""
    return dumps(value).translate(_SEPARATORS)


_SEPARATORS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
