"""The command: measures what it is asked to, prints tables, and saves the findings where it is told to."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import workload
from tests.benchmarks.measures import (
    Measure,
    Setting,
    crowd,
    first_token,
    health,
    idle,
    listing,
    sessions,
    start,
    streaming,
)
from tests.benchmarks.relays import peer
from tests.benchmarks.report import text
from tests.benchmarks.results import machine, saved, write

MEASURES: dict[str, Measure] = {
    "streaming": streaming,
    "first-token": first_token,
    "crowd": crowd,
    "health": health,
    "sessions": sessions,
    "list": listing,
    "idle": idle,
    "start": start,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended on the way out
    if arguments.peer:
        peer.install()
    setting = Setting(arguments.rounds, peer.PEER if arguments.peer else None)
    found = {}
    for name in arguments.only or MEASURES:
        measure = MEASURES[name]
        work = workload.read(arguments, name, measure.Workload)
        begun = time.monotonic()
        findings = measure.measure(work, setting)
        sys.stdout.write(f"{text(measure.TITLE, findings)}\n{time.monotonic() - begun:.0f} s\n\n")
        sys.stdout.flush()
        found[name] = saved(findings, workload.described(work))
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in machine().items()))
    if not arguments.peer:
        sys.stdout.write("The peer was not measured; --peer installs and runs it.\n")
    if arguments.save:
        write(arguments.save, arguments.rounds, found.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=MEASURES, help="measure only this; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="figures are medians of so many rounds (default: 3)")
    parser.add_argument("--peer", action="store_true", help=f"install {peer.PEER.name}, and measure it as well")
    parser.add_argument("--save", type=Path, metavar="PATH", help="write the findings as JSON, too")
    for name, measure in MEASURES.items():
        workload.add_arguments(parser, name, measure.Workload)
    return parser


if __name__ == "__main__":
    main()
