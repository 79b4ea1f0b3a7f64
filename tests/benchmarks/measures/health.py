"""Response time of health checks while many answers stream.

The upstream sends tokens as fast as it can. A separate process sends the health checks one after
another.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from tests.benchmarks.driving import Load, perform
from tests.benchmarks.figures import median, percentile
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.probe import probing
from tests.benchmarks.processes import Server, python, running, settle
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.workload import adjustable

TITLE = "Health checks under load"
_PATH, _P99 = "/api/v1/health", "p99, ms"


@dataclass(frozen=True)
class Workload:
    streams: int = adjustable(100, "unpaced streams at the same time")
    burst: int = adjustable(4000, "events of each stream")


def measure(work: Workload, setting: Setting) -> Findings:
    """Return a row for this server with medians over the rounds."""
    load = Load(f"burst:{work.burst}", work.streams, 0)
    with ExitStack() as stack:
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", load.model)))
        server = stack.enter_context(MOCHI.running(upstream))
        Load(load.model, 2).on(MOCHI, server)
        rounds = [_round(load, server) for _ in range(setting.rounds)]
    row: Row = {
        "": MOCHI.name,
        "p50, ms": median(rounds, lambda r: percentile(r.checks, 50)),
        _P99: median(rounds, lambda r: percentile(r.checks, 99)),
        "maximum, ms": median(rounds, lambda r: max(r.checks)),
        "number of checks": median(rounds, lambda r: len(r.checks)),
        "events/s of the streams": median(rounds, lambda r: r.events_per_second),
    }
    return Findings([row], [Aim("health check, p99", float(row[_P99]), 50, "ms")])


@dataclass(frozen=True)
class _Round:
    """Milliseconds of each check that began while streams were running, and the number of events
    meanwhile.
    """

    checks: list[float]
    events_per_second: float


def _round(load: Load, server: Server) -> _Round:
    job = load.job(MOCHI, server)
    with probing(server, _PATH) as answers:
        result = perform(job)
    settle(server)
    ends = result.begun + result.seconds
    checks = [took for asked, took in answers if result.begun <= asked <= ends]
    return _Round(checks, result.events / result.seconds)
