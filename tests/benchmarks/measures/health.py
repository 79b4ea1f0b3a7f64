"""How long a health check takes while many answers stream as fast as they can be sent: whether one can still get a word
in. Checks follow each other on one connection, from a process of their own.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from tests.benchmarks.driving import Load
from tests.benchmarks.figures import median, percentile
from tests.benchmarks.measures import Aim, Findings, Setting
from tests.benchmarks.probe import probing
from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.workload import adjustable

TITLE = "Health checks under load"
_PATH = "/api/v1/health"


@dataclass(frozen=True)
class Workload:
    """Bursts."""

    streams: int = adjustable(100, "unpaced streams at the same time")
    burst: int = adjustable(2000, "events of each stream")


def measure(work: Workload, setting: Setting) -> Findings:
    """A row for this server: medians over the rounds."""
    load = Load(f"burst:{work.burst}", work.streams, 0)
    with ExitStack() as stack:
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", load.model)))
        server = stack.enter_context(MOCHI.running(upstream))
        Load(load.model, 2).on(MOCHI, server)
        rounds = [_round(load, server) for _ in range(setting.rounds)]
    p50, p99, worst = (median(rounds, lambda took, p=p: percentile(took[0], p)) for p in (50, 99, 100))  # type: ignore[misc]
    row = {
        "": MOCHI.name,
        "p50 ms": p50,
        "p99 ms": p99,
        "longest ms": worst,
        "checks": median(rounds, lambda took: len(took[0])),
        "events/s meanwhile": median(rounds, lambda took: took[1]),
    }
    return Findings([row], [Aim("health check, p99", p99, 50, "ms")])


def _round(load: Load, server: Server) -> tuple[list[float], float]:
    """Milliseconds of each check that began while streams were under way, and the streams' events per second."""
    with probing(server, _PATH) as answers:
        result = load.on(MOCHI, server)
    ends = result.begun + result.seconds
    return [took for asked, took in answers if result.begun <= asked <= ends], result.events / result.seconds
