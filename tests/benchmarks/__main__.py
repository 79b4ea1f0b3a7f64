"""The command: measures what it is asked to, prints a table for each, and saves the figures where it is told to."""

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.measures import Row, streaming
from tests.benchmarks.processes import CpuClock

_MEASURES = {"streaming": streaming}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended on the way out
    tables: dict[str, list[Row]] = {}
    for name, measure in _MEASURES.items():
        if name in (arguments.only or _MEASURES):
            tables[name] = measure.measure(arguments)
            sys.stdout.write(f"{name}\n{_table(tables[name])}\n\n")
    machine = _machine()
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in machine.items()))
    if arguments.save:
        arguments.save.write_text(json.dumps({**machine, **tables}, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=_MEASURES, help="measure only this; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="figures are medians of so many rounds (default: 3)")
    parser.add_argument("--save", type=Path, metavar="PATH", help="write the figures as JSON, too")
    for measure in _MEASURES.values():
        measure.add_arguments(parser)
    return parser


def _machine() -> dict[str, str]:
    """What the figures depend on."""
    resolution = CpuClock(os.getpid()).resolution() * 1e9
    return {
        "python": platform.python_version(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "CPU clock": f"user and system time of the process, in steps of {resolution:.0f} ns",
    }


def _table(rows: Sequence[Row]) -> str:
    """A line for each figure and a column for each row: there are more figures than things measured."""
    lines = [[name, *(_text(row[name]) for row in rows)] for name in rows[0]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(texts, widths[1:], strict=True))])
        for name, *texts in lines
    )


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()
