"""The figures, their bounds, and the table that shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

HEALTH_MS = 100
"""Aim for the duration of `/health` at the 99th percentile."""
GROWTH = 0.03
GROWTH_MIB = 5
"""Allowed growth of memory in MiB from one round of the load to the next, unless the relative limit
is larger.

The smallest growth counts: memory that is lost grows in every round, and the allocator takes more
from the system in some rounds. By default a round has 1500 turns. If the server did not release the
events of ended runs, memory would grow by more in every round.
"""
PACE = 0.9
"""Part of the planned turns that must take place; otherwise the load was less than the options say.
"""


@dataclass(frozen=True)
class Measured:
    """The figures.

    Memory has a value in MiB for each round; the pace is the part of the planned turns.
    """

    streams: int
    turns: int
    events: int
    broken: int
    pace: float
    memory: Sequence[float]
    descriptors_before: int
    descriptors_after: int
    health_p50: float
    health_p99: float
    health_worst: float
    late_p99: float
    """Milliseconds by which the machine wakes a sleeping process too late, 99th percentile."""
    cpu: dict[str, float]


def grows(memory: Sequence[float]) -> bool:
    """Return whether the memory of the rounds grows by more than is allowed."""
    growth, allowed = _growth(memory)
    return growth > allowed


def _growth(memory: Sequence[float]) -> tuple[float, float]:
    """Return the smallest growth from one round to the next, and the allowed growth."""
    growth = min(later - earlier for earlier, later in pairwise(memory))
    return growth, max(GROWTH * memory[0], GROWTH_MIB)


def problems(measured: Measured) -> list[str]:
    """Return one line for each broken bound."""
    growth, allowed = _growth(measured.memory)
    held = {
        f"{measured.broken} of {measured.streams} streams did not end well": not measured.broken,
        "no turn was completed": measured.turns > 0,
        f"memory grew by {growth:.1f} MiB or more in each round; {allowed:.1f} are allowed": not grows(
            measured.memory
        ),
        f"{measured.descriptors_after - measured.descriptors_before} descriptors were not closed": (
            measured.descriptors_after <= measured.descriptors_before
        ),
    }
    return [line for line, holds in held.items() if not holds]


def missed(measured: Measured) -> list[str]:
    """Return one line for each missed aim. Aims are about speed, which depends on the machine."""
    met = {
        f"only {measured.pace:.0%} of the planned turns took place": measured.pace >= PACE,
        f"/health took {measured.health_p99:.0f} ms at the 99th percentile; the aim is "
        f"{HEALTH_MS}": (measured.health_p99 < HEALTH_MS),
    }
    return [line for line, holds in met.items() if not holds]


def table(measured: Measured) -> str:
    rows: Sequence[tuple[str, str]] = [
        ("streams at the same time", f"{measured.streams:,}"),
        ("turns completed, whole and in order", f"{measured.turns:,}"),
        ("streams broken", f"{measured.broken:,}"),
        ("events", f"{measured.events:,}"),
        ("turns, of those planned", f"{measured.pace:.1%}"),
        ("memory in each round", f"{', '.join(f'{memory:.1f}' for memory in measured.memory)} MiB"),
        (
            "descriptors, before and after",
            f"{measured.descriptors_before} and {measured.descriptors_after}",
        ),
        (
            "/health p50, p99, worst",
            f"{measured.health_p50:.1f}, {measured.health_p99:.1f}, {measured.health_worst:.1f} ms",
        ),
        ("the machine itself late, p99", f"{measured.late_p99:.1f} ms"),
        *(
            (f"CPU of the {name}, of one core", f"{part:.0%}")
            for name, part in measured.cpu.items()
        ),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
