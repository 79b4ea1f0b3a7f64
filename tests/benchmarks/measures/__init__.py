"""One file for each thing that is measured.

``TITLE`` names it, the docstring says what is done and how to read it, ``Workload`` is what can be adjusted, and
``measure`` does it. What is aimed at stands beside what was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.benchmarks.relays import Relay

Row = dict[str, str | float]
"""What was found of one thing: figures by their names, which carry the units. The name "" has what it is of."""


@dataclass(frozen=True)
class Aim:
    """A figure and the limit it shall keep to. The figure is None where it could not be measured."""

    what: str
    value: float | None
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the limit is kept."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def missed_by(self) -> float:
        """How far beyond its limit the figure is, as a part of the limit."""
        return 0 if self.value is None or self.met else abs(self.value - self.limit) / self.limit


@dataclass(frozen=True)
class Findings:
    """What a measure has found."""

    rows: Sequence[Row]
    aims: Sequence[Aim]


@dataclass(frozen=True)
class Setting:
    """What all measures share: figures are medians of so many rounds, the peer takes part if there is one."""

    rounds: int
    peer: Relay | None = None

    def with_peer(self, *relays: Relay) -> list[Relay]:
        """These relays, and the peer behind them."""
        return [*relays, *([self.peer] if self.peer else [])]


class Measure(Protocol):
    """A module of this package."""

    TITLE: str
    Workload: type[Any]

    def measure(self, work: Any, setting: Setting) -> Findings:
        """Measure it."""
