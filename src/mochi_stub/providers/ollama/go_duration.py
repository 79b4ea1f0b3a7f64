"""Parser of durations such as "1h30m", with the rules and error messages of Go."""

from __future__ import annotations

import re
from math import inf
from typing import Any

from mochi_stub.providers.ollama.go_json import quoted
from mochi_stub.reply import HttpError

_DURATION = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)(?P<unit>[^\d.]*)", re.ASCII)
_LONGEST = 2**63 / 1e9
"""Longest duration in seconds: Go counts nanoseconds as a signed 64-bit integer."""
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(value: Any) -> float:
    """Convert a number or a text such as "1h30m" to seconds. Negative durations become infinite. Raises HttpError."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        found = {bool: "bool", dict: "map[string]interface {}"}.get(type(value), "[]interface {}")
        raise HttpError(400, f"Unsupported type: '{found}'")
    seconds = _parse_duration(value) if isinstance(value, str) else float(value)
    return inf if seconds < 0 else seconds


def _parse_duration(text: str) -> float:
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    seconds = 0.0
    while True:
        found = _DURATION.match(rest)
        seconds += float(found["number"]) * _UNITS.get(found["unit"], _UNITS["ns"]) if found else inf
        if found is None or seconds > _LONGEST:
            raise HttpError(400, f"time: invalid duration {quoted(text)}")
        if not found["unit"]:
            raise HttpError(400, f"time: missing unit in duration {quoted(text)}")
        if found["unit"] not in _UNITS:
            unit = quoted(found["unit"])
            raise HttpError(400, f"time: unknown unit {unit} in duration {quoted(text)}")
        rest = rest[found.end() :]
        if not rest:
            return -seconds if text.startswith("-") else seconds
