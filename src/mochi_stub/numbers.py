"""A number within the bounds of a JSON schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_STEP = 1e-6


def number_between(schema: Mapping[str, Any], wish: int, *, whole: bool) -> int | float:
    """A number that the bounds and `multipleOf` allow, near `wish` above the lower bound, or above nought."""
    step = _number(schema.get("multipleOf")) or 0
    low, high = _low(schema, whole), _high(schema, whole)
    start = low if low is not None else min(0, high if high is not None else 0)
    value = start + wish if high is None else start + (high - start) * (wish / 100)
    if step > 0:
        return _multiple(value, step, low, high, whole)
    if whole:
        value = min(math.floor(value), high) if high is not None else math.floor(value)
        return int(max(value, low) if low is not None else value)
    return _rounded(value, low, high)


def _low(schema: Mapping[str, Any], whole: bool) -> float | None:
    """The least value allowed."""
    low, above = _number(schema.get("minimum")), _number(schema.get("exclusiveMinimum"))
    if above is None and schema.get("exclusiveMinimum") is True:
        low, above = None, low
    if whole:
        least = [math.ceil(low)] if low is not None else []
        return max([*least, math.floor(above) + 1] if above is not None else least, default=None)
    return max([one for one in (low, None if above is None else _beyond(above, 1)) if one is not None], default=None)


def _high(schema: Mapping[str, Any], whole: bool) -> float | None:
    """The greatest value allowed: the least of the mirror image."""
    low = _low(
        {
            "minimum": _negative(schema.get("maximum")),
            "exclusiveMinimum": _negative(schema.get("exclusiveMaximum")),
        },
        whole,
    )
    return None if low is None else -low


def _negative(bound: Any) -> Any:
    number = _number(bound)
    return bound if number is None else -number


def _beyond(bound: float, direction: int) -> float:
    return bound + direction * max(abs(bound), 1) * _STEP


def _rounded(value: float, low: float | None, high: float | None) -> float:
    short = round(value, 2)
    fits = (low is None or short >= low) and (high is None or short <= high)
    return short if fits else value


def _multiple(value: float, step: float, low: float | None, high: float | None, whole: bool) -> int | float:
    times = math.floor(value / step)
    if low is not None and times * step < low:
        times = math.ceil(low / step)
    if high is not None and times * step > high:
        times = math.floor(high / step)
    found = times * step
    return int(found) if whole or isinstance(step, int) else round(found, 10)


def _number(value: Any) -> int | float | None:
    """The bound as a number; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None
