"""Figures of many values."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

_One = TypeVar("_One")


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many per cent do not exceed."""
    return sorted(values)[(len(values) - 1) * percent // 100]


def median(of: Iterable[_One], figure: Callable[[_One], float]) -> float:
    """The median of a figure of each, such as of each round."""
    return statistics.median(map(figure, of))


def ratio(value: float | None, by: float | None) -> float | None:
    """None where one of them is missing."""
    return None if value is None or not by else value / by
