"""The design target: 300 streams at the same time on one server, far more than one Ollama host
serves.

The server has one CPU core for itself. The upstream sends the tokens of each stream at the speed of
a model.

*First token* is the time that a client waits for the first token of its answer. *Longest wait* is
the longest time between two successive tokens of an answer. It includes the time for which the
upstream waits between two tokens.
"""

import os
from dataclasses import dataclass

from tests.benchmarks.driving import Load, Results, compare
from tests.benchmarks.figures import median, percentile
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.relays import Relay
from tests.benchmarks.relays.bare import AIOHTTP, RAW
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.workload import adjustable

TITLE = "Many streams on one core"
_CUT = 3


@dataclass(frozen=True)
class Workload:
    """Streams that start evenly and then all run at the same time."""

    streams: int = adjustable(300, "streams at the same time")
    rate: int = adjustable(20, "tokens per second of each stream")
    spread: float = adjustable(2.0, "seconds in which the streams start")
    seconds: float = adjustable(4.0, "seconds that each stream lasts")


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per relay with medians over the rounds."""
    relays = [MOCHI, AIOHTTP, RAW]
    model = f"paced:{work.rate}x{round(work.rate * work.seconds)}"
    window = (work.spread, max(work.seconds, work.spread + 0.1))
    crowd = Load(model, work.streams, work.spread, window, _CUT * (work.spread + work.seconds))
    results = compare(relays, {"crowd": crowd}, setting.rounds, Load("burst:100", 20), _apart())
    rows = {relay: _row(relay, results[relay]) for relay in relays}
    first, gap = (float(rows[MOCHI][name]) for name in (_FIRST, _GAP))
    aims = [
        Aim("first token, p99", first, 250, "ms"),
        Aim("longest wait in any stream", gap, 250, "ms"),
    ]
    return Findings(list(rows.values()), aims)


def _apart() -> tuple[set[int], set[int]]:
    """Return a core for the relays and another for everything else, if there are two."""
    there = sorted(os.sched_getaffinity(0))
    return {there[-1]}, {there[0]}


_FIRST, _GAP = "first token p99, ms", "longest wait, ms"


def _row(relay: Relay, results: Results) -> Row:
    crowd = results["crowd"]
    return {
        "": relay.name,
        "first token p50, ms": median(crowd, lambda r: percentile(r.first_ms, 50)),
        _FIRST: median(crowd, lambda r: percentile(r.first_ms, 99)),
        _GAP: median(crowd, lambda r: max(stream.gap for stream in r.streams)),
        "longest wait of a stream p99, ms": median(
            crowd, lambda r: percentile([s.gap for s in r.streams], 99)
        ),
        "events/s": median(crowd, lambda r: r.steady_events / r.steady_seconds),
        "CPU use of the core, %": median(
            crowd, lambda r: 100 * r.steady_cpu_seconds / r.steady_seconds
        ),
    }
