"""How much later the first token comes than from the upstream itself, which says it a fixed time after it was asked and
goes on at a model's pace. Three loads: one stream after the other; streams that begin evenly, so that the given number
is under way at any time; and the same number begun in one instant, where the last has to wait for the work on all.
Sessions were created before; each stream has its own.
"""

from collections.abc import Callable
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

TITLE = "Added time to first token"
_ALONE_RATE, _ALONE_TOKENS = 200, 2
_LIMITS = {50: 2.0, 99: 20.0}
_PEER = 3
_CUT = 2


@dataclass(frozen=True)
class Workload:
    """Streams of a model that thinks for a while."""

    delay: int = adjustable(50, "milliseconds until the upstream's first token")
    rate: int = adjustable(20, "tokens per second of each stream")
    streams: int = adjustable(100, "streams at the same time")
    length: float = adjustable(1.0, "seconds that each of them lasts")
    seconds: float = adjustable(3.0, "seconds in which streams begin evenly")
    alone: int = adjustable(25, "streams one after the other")

    def loads(self) -> dict[str, Load]:
        """By their names."""
        model = f"paced:{self.rate}x{max(1, round(self.rate * self.length))}+{self.delay}"
        whole = self.length + self.delay / 1000
        begun = round(self.streams * self.seconds / whole)
        cut = _CUT * (self.seconds + whole)
        return {
            "alone": Load(f"paced:{_ALONE_RATE}x{_ALONE_TOKENS}+{self.delay}", self.alone, cut_after=30),
            f"{self.streams} under way": Load(model, begun, self.seconds, cut_after=cut),
            f"{self.streams} in one instant": Load(model, self.streams, 0, cut_after=cut),
        }


def measure(work: Workload, setting: Setting) -> Findings:
    """A row for each relay: medians over the rounds."""
    relays = setting.with_peer(MOCHI, DIRECT, AIOHTTP, RAW)
    loads = work.loads()
    warm_up = Load(f"paced:{_ALONE_RATE}x{_ALONE_TOKENS}+{work.delay}", min(20, work.streams), 0.5)
    results = compare(relays, loads, setting.rounds, warm_up)
    added = {relay: _added(results[relay], results[DIRECT]) for relay in relays}
    return Findings([_row(relay, results[relay], added[relay]) for relay in relays], _aims(loads, added))


def _first(percent: int) -> Callable[[Result], float]:
    return lambda result: percentile(result.first_ms, percent)


def _added(results: Results, direct: Results) -> dict[tuple[str, int], float]:
    """Milliseconds over direct, by load and percentile."""
    return {
        (name, percent): median(results[name], _first(percent)) - median(direct[name], _first(percent))
        for name in results
        for percent in _LIMITS
    }


def _row(relay: Relay, results: Results, added: dict[tuple[str, int], float]) -> Row:
    if relay is DIRECT:
        whole = {(name, percent): median(results[name], _first(percent)) for name, percent in added}
        return {"": "direct, all of it", **_named(whole)}
    return {"": relay.name, **_named(added)}


def _named(figures: dict[tuple[str, int], float]) -> Row:
    return {f"{name}, p{percent} ms": value for (name, percent), value in figures.items()}


def _aims(loads: dict[str, Load], added: dict[Relay, dict[tuple[str, int], float]]) -> list[Aim]:
    own, peers = added[MOCHI], added.get(PEER, {})
    return [
        *(Aim(f"{name}, p{percent}", own[name, percent], _LIMITS[percent], "ms") for name, percent in own),
        *(
            Aim(f"the peer's, {name}, p{percent}, by this server's", ratio(peers.get(key), own[key]), _PEER, "x", True)
            for name in loads
            for percent in _LIMITS
            for key in [(name, percent)]
        ),
    ]
