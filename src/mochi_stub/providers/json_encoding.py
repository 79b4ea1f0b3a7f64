"""Compact JSON and server-sent events. The code for Ollama's API uses `go_json` instead."""

from __future__ import annotations

import json
from typing import Any

import orjson


def dumps(value: Any) -> str:
    """Return compact JSON. Lone surrogates, huge numbers and deep nesting, which orjson rejects, are supported."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, orjson.JSONEncodeError):
        # `default` converts mappings and sequences other than dict, list and tuple
        return json.dumps(
            value, separators=(",", ":"), default=lambda item: dict(item) if hasattr(item, "keys") else list(item)
        )


def event(value: Any, name: str = "") -> str:
    """Return a server-sent event whose data is the value as JSON."""
    return f"event: {name}\ndata: {one_line(value)}\n\n" if name else f"data: {one_line(value)}\n\n"


def one_line(value: Any) -> str:
    """Return compact JSON on one line. Unicode separators that some clients treat as line ends are escaped."""
    return dumps(value).translate(_SEPARATORS)


_SEPARATORS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
