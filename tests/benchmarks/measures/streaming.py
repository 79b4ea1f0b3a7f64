"""What one event of a stream costs, in CPU time of the relay's process: streams paced as a model speaks, where every
token wakes the relay, then long answers that come as fast as they can be sent. Direct is the load on the upstream
itself, whose CPU time is not the point. Events are late from the upstream's writing to the client's reading. Who cannot
keep up is measured at what it can do, where an event is cheaper than at ease, and cut off when its time is over.
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
"""The part of the paced workload's time over which its streams begin."""
_CUT = 1.5
"""Times the planned length after which streams of a relay that cannot keep up are cut off."""


@dataclass(frozen=True)
class Workload:
    """Paced streams and bursts."""

    streams: int = adjustable(90, "streams at the same time")
    rate: int = adjustable(50, "events per second of each stream")
    seconds: float = adjustable(5.0, "seconds that each paced stream lasts")
    burst: int = adjustable(5000, "events of a burst")
    bursts: int = adjustable(2, "bursts in each round, one after the other")

    def loads(self) -> dict[str, Load]:
        """By their names."""
        spread = self.seconds * _SPREAD
        margin = (self.seconds - spread) / 10
        window = (spread + margin, self.seconds - margin)
        model = f"paced:{self.rate}x{round(self.rate * self.seconds)}"
        paced = Load(model, self.streams, spread, window, self.seconds * _CUT)
        return {"paced": paced, "burst": Load(f"burst:{self.burst}", self.bursts)}


def measure(work: Workload, setting: Setting) -> Findings:
    """A row for each relay: medians over the rounds."""
    relays = setting.with_peer(MOCHI, DIRECT, AIOHTTP, RAW)
    results = compare(relays, work.loads(), setting.rounds, Load(f"burst:{work.burst}", 1))
    rows = {relay: _row(relay, results[relay]) for relay in relays}
    return Findings(list(rows.values()), _aims(rows))


def _row(relay: Relay, results: Results) -> Row:
    paced, burst = results["paced"], results["burst"]
    row: Row = {"": relay.name}
    if relay is not DIRECT:
        row["CPU us/event"] = median(paced, _steady_us)
        row["burst CPU us/event"] = median(burst, lambda r: 1e6 * r.cpu_seconds / r.events)
        row["CPU ms/stream besides"] = median(paced, _opening_ms)
    return row | {
        "events/s": median(paced, lambda r: r.steady_events / r.steady_seconds),
        "burst events/s": median(burst, lambda r: r.events / r.seconds),
        "first p50 ms": median(paced, lambda r: percentile(r.first_ms, 50)),
        "first p99 ms": median(paced, lambda r: percentile(r.first_ms, 99)),
        "late p50 ms": median(paced, lambda r: r.late_ms[49]),
        "late p99 ms": median(paced, lambda r: r.late_ms[98]),
    }


def _aims(rows: dict[Relay, Row]) -> list[Aim]:
    def by(column: str, relay: Relay, other: Relay) -> float | None:
        figures = [float(rows[one][column]) if one in rows else None for one in (relay, other)]
        return ratio(*figures)

    cpu, burst, burst_cpu = "CPU us/event", "burst events/s", "burst CPU us/event"
    return [
        Aim("CPU per event, by the raw relay's", by(cpu, MOCHI, RAW), 2.5, "x"),
        Aim("CPU per event, by the aiohttp relay's", by(cpu, MOCHI, AIOHTTP), 1.5, "x"),
        Aim("events per second of a burst, by the aiohttp relay's", by(burst, MOCHI, AIOHTTP), 0.8, "x", at_least=True),
        Aim("the peer's CPU per event, by this server's", by(cpu, PEER, MOCHI), 3, "x", at_least=True),
        Aim("the peer's CPU per event of a burst, by this server's", by(burst_cpu, PEER, MOCHI), 3, "x", at_least=True),
        Aim("events per second of a burst, by the peer's", by(burst, MOCHI, PEER), 1, "x", at_least=True),
    ]


def _steady_us(result: Result) -> float:
    return 1e6 * result.steady_cpu_seconds / result.steady_events


def _opening_ms(result: Result) -> float:
    """What a stream costs besides its events: to begin it and to end it."""
    events_cost = result.events * _steady_us(result) / 1e6
    return 1e3 * (result.cpu_seconds - events_cost) / len(result.streams)
