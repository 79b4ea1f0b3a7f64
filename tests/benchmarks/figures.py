"""Percentiles, medians and ratios."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

_One = TypeVar("_One")


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that the given percentage of the values does not exceed."""
    return sorted(values)[(len(values) - 1) * percent // 100]


def median(of: Iterable[_One], figure: Callable[[_One], float]) -> float:
    """Return the median of one figure of several results."""
    return statistics.median(map(figure, of))


def ratio(value: float | None, by: float | None) -> float | None:
    """Return the ratio, or None if a value is missing."""
    return None if value is None or not by else value / by
