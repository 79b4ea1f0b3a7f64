"""Cost of short turns, relative to minimal servers that do the same for the client.

The aiohttp relay forwards bytes. The *bare FastAPI* app has the same middleware as mochi-server, and
one route that posts to the upstream and streams the answer. Both store nothing.

- *Added time to the first token*: as in the measurement of this name, for streams one at a time (20th
  percentile), and for streams that begin within two seconds (99th percentile).
- *CPU of a turn*: CPU time of the server for a turn whose answer is one chunk, one turn at a time.
"""

from dataclasses import dataclass

from tests.benchmarks.driving import Load, Results, compare
from tests.benchmarks.figures import median, percentile, ratio
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.relays.bare import AIOHTTP, BARE_APP, DIRECT
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.workload import adjustable

TITLE = "Short turns beside minimal servers"
SHOWS_ROWS = True
_CUT = 20
_LEAST_MS = 0.1  # for a relay whose added time is lost in the noise
_ALONE = "one at a time, added time to the first token p20, ms"
_BEGUN = "begun within two seconds, added time to the first token p99, ms"
_CPU = "CPU of a turn of one chunk, ms"


@dataclass(frozen=True)
class Workload:
    delay: int = adjustable(50, "milliseconds until the upstream's first token")
    alone: int = adjustable(60, "streams, one at a time")
    streams: int = adjustable(100, "streams that begin within the time")
    seconds: float = adjustable(2.0, "seconds in which the streams begin")
    turns: int = adjustable(100, "turns of one chunk")

    def loads(self) -> dict[str, Load]:
        model = f"paced:200x2+{self.delay}"
        return {
            _ALONE: Load(model, self.alone),
            _BEGUN: Load(model, self.streams, self.seconds, cut_after=_CUT),
            _CPU: Load("burst:1", self.turns),
        }


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per server with medians over the rounds."""
    relays = [MOCHI, AIOHTTP, BARE_APP, DIRECT]
    loads = work.loads()
    results = compare(relays, loads, setting.rounds, Load("burst:1", 20))
    direct = _figures(results[DIRECT], work)
    rows = {}
    for relay in relays[:-1]:
        own = _figures(results[relay], work)
        added = {name: own[name] - direct[name] for name in (_ALONE, _BEGUN)}
        rows[relay] = added | {_CPU: own[_CPU]}
    own, relayed, bare = (rows[relay] for relay in relays[:-1])
    aims = [
        Aim(
            "one at a time, p20, relative to the aiohttp relay",
            _times(own, relayed, _ALONE),
            5,
            "x",
        ),
        Aim(
            "begun within two seconds, p99, relative to the aiohttp relay",
            _times(own, relayed, _BEGUN),
            4,
            "x",
        ),
        Aim("CPU of a turn, relative to bare FastAPI", ratio(own[_CPU], bare[_CPU]), 2, "x"),
    ]
    named: list[Row] = [{"": relay.name, **figures} for relay, figures in rows.items()]
    return Findings(named, aims)


def _figures(results: Results, work: Workload) -> dict[str, float]:
    """Return the whole times to the first token in milliseconds, and the CPU time of a turn."""
    return {
        _ALONE: median(results[_ALONE], lambda result: percentile(result.first_ms, 20)),
        _BEGUN: median(results[_BEGUN], lambda result: percentile(result.first_ms, 99)),
        _CPU: median(results[_CPU], lambda result: 1000 * result.cpu_seconds / work.turns),
    }


def _times(own: dict[str, float], relayed: dict[str, float], name: str) -> float:
    return own[name] / max(relayed[name], _LEAST_MS)
