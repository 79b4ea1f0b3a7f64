"""Findings as a person reads them in a terminal."""

from collections.abc import Sequence

from tests.benchmarks.measures import Aim, Findings, Row
from tests.benchmarks.profiling import Profile


def text(title: str, findings: Findings) -> str:
    """The tables of a measure."""
    aims = [["aim", "found", "limit", ""], *([aim.what, *judged(aim)] for aim in findings.aims)]
    return f"{title}\n{_aligned(turned(findings.rows))}\n\n{_aligned(aims)}\n"


def profile_text(profile: Profile) -> str:
    """The shares of each room, and of the functions that take most."""
    lines = [[name, f"{share} %"] for shares in profile.values() for name, share in shares.items()]
    return _aligned([["where the time goes", ""], *lines])


def turned(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each figure and a column for each row: there are more figures than things measured."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [[name, *(number(row.get(name, "")) for row in rows)] for name in names]


def judged(aim: Aim) -> list[str]:
    """Figure, limit, and whether it is met or by how much it is missed."""
    limit = f"{'>=' if aim.at_least else '<='} {number(aim.limit)} {aim.unit}".rstrip()
    if aim.value is None:
        return ["", limit, "not measured"]
    return [f"{number(aim.value)} {aim.unit}".rstrip(), limit, "met" if aim.met else _missed(aim.missed_by)]


def _missed(part: float) -> str:
    return f"missed by {100 * part:.0f} %" if part <= 1 else f"missed, {number(part + 1)} times the limit"


def number(value: str | float) -> str:
    """Three digits or so."""
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))])
        for name, *cells in lines
    )
