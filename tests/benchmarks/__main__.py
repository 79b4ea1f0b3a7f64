"""Benchmark command: run the selected measurements, print tables and save the findings."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks import profiling, workload
from tests.benchmarks.measures import (
    Findings,
    Measure,
    Setting,
    crowd,
    first_token,
    health,
    hosts,
    idle,
    listing,
    middleware,
    prompts,
    protocols,
    sessions,
    short_turns,
    start,
    streaming,
)
from tests.benchmarks.relays import peer
from tests.benchmarks.report import profile_text, text
from tests.benchmarks.results import machine, to_json, write

MEASURES: dict[str, Measure] = {
    "streaming": streaming,
    "protocols": protocols,
    "first-token": first_token,
    "short-turns": short_turns,
    "middleware": middleware,
    "crowd": crowd,
    "health": health,
    "sessions": sessions,
    "list": listing,
    "idle": idle,
    "start": start,
    "prompts": prompts,
    "hosts": hosts,
}
_SAVED = Path("benchmarks.json")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended on exit
    if arguments.profile and not profiling.available():
        sys.exit("py-spy cannot be run here: uv fetches it from the package index.")
    with_peer = arguments.peer and peer.installed()
    setting = Setting(arguments.rounds, peer.PEER if with_peer else None)
    for name in arguments.only or MEASURES:
        work = workload.read(arguments, name, MEASURES[name].Workload)
        findings = _measured(MEASURES[name], work, setting)
        profile = _profile(MEASURES[name], work) if arguments.profile else {}
        version = f"{peer.PEER.name} {peer.VERSION}" if with_peer else None
        described = workload.values_by_text(work) | {"rounds": arguments.rounds}
        write(arguments.save, version, {name: to_json(findings, described, profile)})
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in machine().items()))
    if not with_peer:
        reason = "it cannot be installed here" if arguments.peer else "--no-peer"
        sys.stdout.write(f"The peer was not measured: {reason}.\n")
    sys.stdout.write(f"Saved in {arguments.save}.\n")


def _measured(measure: Measure, work: Any, setting: Setting) -> Findings:
    begun = time.monotonic()
    findings = measure.measure(work, setting)
    sys.stdout.write(f"{text(measure.TITLE, findings)}\n{time.monotonic() - begun:.0f} s\n\n")
    sys.stdout.flush()
    return findings


def _profile(measure: Measure, work: Any) -> profiling.Profile:
    """Return the profile of one additional round, which is slower because of the profiler."""
    profile: profiling.Profile = {}
    with profiling.profiling(profile):
        measure.measure(work, Setting(1))
    sys.stdout.write(f"{profile_text(profile)}\n")
    return profile


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=MEASURES, help="measure only this; may be repeated"
    )
    parser.add_argument(
        "--rounds", type=int, default=2, help="figures are medians of so many rounds (default: 2)"
    )
    parser.add_argument(
        "--peer",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=f"measure {peer.PEER.name} as well, which is installed into the user's cache",
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="then take a round more, and tell where the time goes",
    )
    parser.add_argument(
        "--save", type=Path, metavar="PATH", default=_SAVED, help=f"JSON (default: {_SAVED})"
    )
    for name, measure in MEASURES.items():
        workload.add_arguments(parser, name, measure.Workload)
    return parser


if __name__ == "__main__":
    main()
