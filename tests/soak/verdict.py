"""What was measured, what must hold of it, and the table that shows both."""

from collections.abc import Sequence
from dataclasses import dataclass

HEALTH_MS = 100
"""Within which `/health` should answer, at the 99th percentile."""
GROWTH = 0.05
GROWTH_MIB = 8
"""What memory may grow from the first stretch to the last, the larger of the two: what the allocator does with the same
load is not quite the same every minute. One kilobyte lost for every turn would be more than that."""
PACE = 0.9
"""Of the turns that were planned for the time, so many should have been: else the load was not what was asked for."""


@dataclass(frozen=True)
class Measured:
    """The figures. Memory is in MiB, health in milliseconds; the pace is the part of the planned turns."""

    streams: int
    turns: int
    events: int
    broken: int
    pace: float
    memory_first: float
    memory_last: float
    descriptors_before: int
    descriptors_after: int
    health_p50: float
    health_p99: float
    health_worst: float
    late_p99: float
    """By how many milliseconds the machine, with all that runs on it, wakes a process up too late."""
    cpu: dict[str, float]


def problems(measured: Measured) -> list[str]:
    """The bounds that are broken, each in a line."""
    growth = measured.memory_last - measured.memory_first
    allowed = max(GROWTH * measured.memory_first, GROWTH_MIB)
    held = {
        f"{measured.broken} of {measured.streams} streams did not end well": not measured.broken,
        "no turn was completed": measured.turns > 0,
        f"memory grew by {growth:.1f} MiB; {allowed:.1f} are allowed": growth <= allowed,
        f"{measured.descriptors_after - measured.descriptors_before} descriptors were not closed": (
            measured.descriptors_after <= measured.descriptors_before
        ),
    }
    return [line for line, holds in held.items() if not holds]


def missed(measured: Measured) -> list[str]:
    """The aims that are missed, each in a line: how fast it went, which the machine has its part in."""
    met = {
        f"only {measured.pace:.0%} of the planned turns took place": measured.pace >= PACE,
        f"/health took {measured.health_p99:.0f} ms at the 99th percentile; the aim is {HEALTH_MS}": (
            measured.health_p99 < HEALTH_MS
        ),
    }
    return [line for line, holds in met.items() if not holds]


def table(measured: Measured) -> str:
    """The figures for a person."""
    rows: Sequence[tuple[str, str]] = [
        ("streams at the same time", f"{measured.streams:,}"),
        ("turns completed, whole and in order", f"{measured.turns:,}"),
        ("streams broken", f"{measured.broken:,}"),
        ("events", f"{measured.events:,}"),
        ("turns, of those planned", f"{measured.pace:.1%}"),
        ("memory, first stretch to last", f"{measured.memory_first:.1f} to {measured.memory_last:.1f} MiB"),
        ("descriptors, before and after", f"{measured.descriptors_before} and {measured.descriptors_after}"),
        (
            "/health p50, p99, worst",
            f"{measured.health_p50:.1f}, {measured.health_p99:.1f}, {measured.health_worst:.1f} ms",
        ),
        ("the machine itself late, p99", f"{measured.late_p99:.1f} ms"),
        *((f"CPU of the {name}, of one core", f"{part:.0%}") for name, part in measured.cpu.items()),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
