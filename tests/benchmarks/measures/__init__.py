"""Measurements, one module each.

`TITLE` is the name, the module docstring describes the procedure and how to read the figures,
`Workload` has the options, and `measure` runs it. Targets are shown beside the results. If
`SHOWS_ROWS` is true, the page has all figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.benchmarks.relays import Relay

Row = dict[str, str | float]
"""Figures by name; names include the unit. The name "" has the label of the row."""


@dataclass(frozen=True)
class Aim:
    """Target for a figure. The figure is None if it could not be measured."""

    what: str
    value: float | None
    limit: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Return whether the figure is within the limit."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def missed_by(self) -> float:
        """Return by how much the figure exceeds its limit, as a fraction of the limit."""
        return 0 if self.value is None or self.met else abs(self.value - self.limit) / self.limit


@dataclass(frozen=True)
class Findings:
    """Results of a measurement."""

    rows: Sequence[Row]
    aims: Sequence[Aim]


@dataclass(frozen=True)
class Setting:
    """Options of all measurements.

    Figures are medians of `rounds`; the peer is included if there is one.
    """

    rounds: int
    peer: Relay | None = None

    def with_peer(self, *relays: Relay) -> list[Relay]:
        """Return these relays, followed by the peer."""
        return [*relays, *([self.peer] if self.peer else [])]


class Measure(Protocol):
    """Interface of a measurement module."""

    TITLE: str
    Workload: type[Any]

    def measure(self, work: Any, setting: Setting) -> Findings:
        """Run the measurement."""
