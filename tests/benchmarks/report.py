"""Results as text for a terminal."""

from collections.abc import Sequence

from tests.benchmarks.measures import Aim, Findings, Row
from tests.benchmarks.profiling import Profile


def text(title: str, findings: Findings) -> str:
    aims = [
        ["aim", "found", "limit", ""],
        *([aim.what, *target_cells(aim)] for aim in findings.aims),
    ]
    return f"{title}\n{_aligned(transposed(findings.rows))}\n\n{_aligned(aims)}\n"


def profile_text(profile: Profile) -> str:
    """Return the shares of each package and of the largest functions."""
    lines = [[name, f"{share} %"] for shares in profile.values() for name, share in shares.items()]
    return _aligned([["where the time goes", ""], *lines])


def transposed(rows: Sequence[Row]) -> list[list[str]]:
    """Return a table with one line per figure and one column per row, because there are more
    figures than rows.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return [[name, *(number(row.get(name, "")) for row in rows)] for name in names]


def target_cells(aim: Aim) -> list[str]:
    """Return figure, limit, and whether the limit is met or by how much it is missed."""
    limit = f"{'>=' if aim.at_least else '<='} {number(aim.limit)} {aim.unit}".rstrip()
    if aim.value is None:
        return ["", limit, "not measured"]
    return [
        f"{number(aim.value)} {aim.unit}".rstrip(),
        limit,
        "met" if aim.met else _missed(aim.missed_by),
    ]


def _missed(part: float) -> str:
    return (
        f"missed by {100 * part:.0f} %"
        if part <= 1
        else f"missed, {number(part + 1)} times the limit"
    )


def number(value: str | float) -> str:
    """Format a number with about three significant digits."""
    return (
        value
        if isinstance(value, str)
        else f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:.3g}"
    )


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [
                name.ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)),
            ]
        )
        for name, *cells in lines
    )
