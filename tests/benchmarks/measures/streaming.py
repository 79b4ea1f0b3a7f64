"""CPU time that the server needs for one event of a stream.

In the first load, the upstream sends events at the speed of a model, so that the server forwards
each one separately. In the second load, it sends long answers in bursts, as fast as it can.

The column *direct* shows the figures without a server between the client and the upstream. The
*delay* of an event is the time from the moment when the upstream writes the event until the client
reads it.

If a server is too slow for the load, the benchmark measures it at its own maximum speed. At its
maximum, a server uses less CPU time for each event than at a normal load. The benchmark ends the
streams of such a server when the planned time is over.
"""

from dataclasses import dataclass

from tests.benchmarks.driving import Load, Results, compare
from tests.benchmarks.figures import median, percentile, ratio
from tests.benchmarks.load import Result
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.relays import Relay
from tests.benchmarks.relays.bare import AIOHTTP, DIRECT, RAW
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.relays.peer import PEER
from tests.benchmarks.workload import adjustable

TITLE = "CPU per streamed event"
_SPREAD = 1 / 6
"""Fraction of the paced workload's duration in which its streams begin."""
_CUT = 1.5
"""Multiple of the planned duration after which the streams of a relay that cannot keep up are
closed.
"""


@dataclass(frozen=True)
class Workload:
    streams: int = adjustable(90, "streams at the same time")
    rate: int = adjustable(50, "events per second of each stream")
    seconds: float = adjustable(5.0, "seconds that each paced stream lasts")
    burst: int = adjustable(5000, "events in a burst")
    bursts: int = adjustable(2, "bursts in each round, one after the other")

    def loads(self) -> dict[str, Load]:
        spread = self.seconds * _SPREAD
        margin = (self.seconds - spread) / 10
        window = (spread + margin, self.seconds - margin)
        model = f"paced:{self.rate}x{round(self.rate * self.seconds)}"
        paced = Load(model, self.streams, spread, window, self.seconds * _CUT)
        return {"paced": paced, "burst": Load(f"burst:{self.burst}", self.bursts)}


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per relay with medians over the rounds."""
    relays = setting.with_peer(MOCHI, DIRECT, AIOHTTP, RAW)
    results = compare(relays, work.loads(), setting.rounds, Load(f"burst:{work.burst}", 1))
    rows = {relay: _row(relay, results[relay]) for relay in relays}
    return Findings(list(rows.values()), _aims(rows))


def _row(relay: Relay, results: Results) -> Row:
    paced, burst = results["paced"], results["burst"]
    row: Row = {"": relay.name}
    if relay is not DIRECT:
        row["CPU per event, microseconds"] = median(paced, _steady_us)
        row["CPU per event in a burst, microseconds"] = median(
            burst, lambda r: 1e6 * r.cpu_seconds / r.events
        )
        row["CPU per stream without its events, ms"] = median(paced, _opening_ms)
    return row | {
        "events/s": median(paced, lambda r: r.steady_events / r.steady_seconds),
        "events/s in a burst": median(burst, lambda r: r.events / r.seconds),
        "first token p50, ms": median(paced, lambda r: percentile(r.first_ms, 50)),
        "first token p99, ms": median(paced, lambda r: percentile(r.first_ms, 99)),
        "delay p50, ms": median(paced, lambda r: r.late_ms[49]),
        "delay p99, ms": median(paced, lambda r: r.late_ms[98]),
    }


def _aims(rows: dict[Relay, Row]) -> list[Aim]:
    def by(column: str, relay: Relay, other: Relay) -> float | None:
        figures = [float(rows[one][column]) if one in rows else None for one in (relay, other)]
        return ratio(*figures)

    cpu, burst = "CPU per event, microseconds", "events/s in a burst"
    burst_cpu = "CPU per event in a burst, microseconds"
    return [
        Aim("CPU per event, relative to the raw relay", by(cpu, MOCHI, RAW), 2.5, "x"),
        Aim("CPU per event, relative to the aiohttp relay", by(cpu, MOCHI, AIOHTTP), 1.5, "x"),
        Aim(
            "events per second in a burst, relative to the aiohttp relay",
            by(burst, MOCHI, AIOHTTP),
            0.8,
            "x",
            at_least=True,
        ),
        Aim("CPU per event, of the peer", by(cpu, PEER, MOCHI), 3, "x", at_least=True),
        Aim(
            "CPU per event in a burst, of the peer",
            by(burst_cpu, PEER, MOCHI),
            3,
            "x",
            at_least=True,
        ),
        Aim(
            "events per second in a burst, relative to the peer",
            by(burst, MOCHI, PEER),
            1,
            "x",
            at_least=True,
        ),
    ]


def _steady_us(result: Result) -> float:
    return 1e6 * result.steady_cpu_seconds / result.steady_events


def _opening_ms(result: Result) -> float:
    """Return the cost of beginning and ending a stream, in milliseconds."""
    events_cost = result.events * _steady_us(result) / 1e6
    return 1e3 * (result.cpu_seconds - events_cost) / len(result.streams)
