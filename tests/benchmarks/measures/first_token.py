"""Time that a server adds before the first token.

It is the time to the first token through the server, minus that of a request sent directly to the
upstream. Streams run one at a time, start one after another, or all start at once.

The upstream sends its first token after a fixed delay, and its other tokens at the speed of a
model:

- *One at a time*: each stream starts when the previous stream has ended.
- *Concurrent*: streams start one after another, until the number of streams in the table is
  reached.
- *Started at once*: the same number of streams, all requested at the same moment. The last stream
  to start waits until all others have started. One such burst takes a fraction of a second, so each
  round has several.

Each stream has its own session, which the benchmark creates before the measurement.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.benchmarks.driving import Load, Results, compare
from tests.benchmarks.figures import median, percentile, ratio
from tests.benchmarks.load import Result
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.relays import Relay
from tests.benchmarks.relays.bare import AIOHTTP, DIRECT, RAW
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.relays.peer import PEER
from tests.benchmarks.workload import adjustable

TITLE = "Added time to first token"
_SHORT_RATE, _SHORT_TOKENS = 200, 2
_LIMITS = {50: 2.0, 99: 20.0}
_PEER, _LEAST_MS = 3, 0.1
_MOST_OF_RELAY = 4
"""Limit of the time to the first token of streams that start at once, as a multiple of the aiohttp
relay's time.
"""
_CUT = 10
"""Seconds after which the streams of a relay that cannot keep up are closed."""


@dataclass(frozen=True)
class Workload:
    """Streams of a model with a delay before its first token."""

    delay: int = adjustable(50, "milliseconds until the upstream's first token")
    rate: int = adjustable(20, "tokens per second of each stream")
    streams: int = adjustable(100, "streams at the same time")
    length: float = adjustable(2.5, "seconds that each concurrent stream lasts")
    seconds: float = adjustable(3.5, "seconds in which the streams start")
    alone: int = adjustable(20, "streams, one at a time")
    bursts: int = adjustable(5, "times in each round that streams start at once")

    def loads(self) -> dict[str, Load]:
        short = f"paced:{_SHORT_RATE}x{_SHORT_TOKENS}+{self.delay}"
        long = f"paced:{self.rate}x{max(1, round(self.rate * self.length))}+{self.delay}"
        begun = round(self.streams * self.seconds / (self.length + self.delay / 1000))
        return {
            "one at a time": Load(short, self.alone),
            f"{self.streams} concurrent": Load(long, begun, self.seconds, cut_after=_CUT),
            f"{self.streams} started at once": Load(
                short, self.streams, 0, cut_after=_CUT, repeats=self.bursts
            ),
        }


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per relay with medians over the rounds."""
    relays = setting.with_peer(MOCHI, DIRECT, AIOHTTP, RAW)
    loads = work.loads()
    results = compare(relays, loads, setting.rounds, replace(loads["one at a time"], spread=0.5))
    added = {relay: _added(results[relay], results[DIRECT]) for relay in relays}
    rows = [_row(relay, results[relay], added[relay]) for relay in relays]
    burst = f"{work.streams} started at once"
    own, relayed = (median(results[relay][burst], _first(99)) for relay in (MOCHI, AIOHTTP))
    compared = Aim(
        f"{burst}, total p99, relative to the aiohttp relay", own / relayed, _MOST_OF_RELAY, "x"
    )
    return Findings(rows, [*_aims(loads, added), compared])


def _first(percent: int) -> Callable[[Result], float]:
    return lambda result: percentile(result.first_ms, percent)


def _added(results: Results, direct: Results) -> dict[tuple[str, int], float]:
    """Return the milliseconds added to a direct request, by load and percentile."""
    return {
        (name, percent): median(results[name], _first(percent))
        - median(direct[name], _first(percent))
        for name in results
        for percent in _LIMITS
    }


def _row(relay: Relay, results: Results, added: dict[tuple[str, int], float]) -> Row:
    if relay is DIRECT:
        whole = {(name, percent): median(results[name], _first(percent)) for name, percent in added}
        return {"": "direct (total time)", **_named(whole)}
    return {"": relay.name, **_named(added)}


def _named(figures: dict[tuple[str, int], float]) -> Row:
    return {f"{name}, p{percent}, ms": value for (name, percent), value in figures.items()}


def _aims(loads: dict[str, Load], added: dict[Relay, dict[tuple[str, int], float]]) -> list[Aim]:
    own, peers = added[MOCHI], added.get(PEER, {})
    keys = [(name, percent) for name in loads for percent in _LIMITS]
    ahead = {key: ratio(peers.get(key), max(own[key], _LEAST_MS)) for key in keys}
    return [
        *(
            Aim(f"{name}, p{percent}", own[name, percent], _LIMITS[percent], "ms")
            for name, percent in keys
        ),
        *(Aim(f"{n}, p{p}, of the peer", ahead[n, p], _PEER, "x", at_least=True) for n, p in keys),
    ]
