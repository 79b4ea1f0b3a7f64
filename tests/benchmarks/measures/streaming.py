"""What an event of a stream costs each relay, paced as a model speaks and in a burst, and how soon it arrives."""

import json
import statistics
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from tests.benchmarks.load import Job, Result
from tests.benchmarks.measures import Row
from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays import Relay
from tests.benchmarks.relays.bare import AIOHTTP, RAW
from tests.benchmarks.relays.mochi import MOCHI

RELAYS = (MOCHI, AIOHTTP, RAW)
_PATIENCE_SECONDS = 60
_SPREAD = 1 / 6
"""The part of the paced workload's time over which its streams begin."""


@dataclass
class Measured:
    """A relay that runs, and the results of each round."""

    relay: Relay
    server: Server
    paced: list[Result] = field(default_factory=list)
    burst: list[Result] = field(default_factory=list)


def add_arguments(parser: ArgumentParser) -> None:
    """What can be adjusted."""
    parser.add_argument("--streams", type=int, default=90, help="streams at the same time (default: 90)")
    parser.add_argument("--rate", type=int, default=50, help="events per second of each stream (default: 50)")
    parser.add_argument("--seconds", type=float, default=6, help="length of each paced stream (default: 6)")
    parser.add_argument("--burst", type=int, default=5000, help="events of a burst (default: 5000)")
    parser.add_argument("--bursts", type=int, default=5, help="bursts in each round (default: 5)")


def measure(arguments: Namespace) -> list[Row]:
    """A row for each relay: medians over the rounds."""
    paced, burst = f"paced:{arguments.rate}x{round(arguments.rate * arguments.seconds)}", f"burst:{arguments.burst}"
    with ExitStack() as stack:
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", paced, burst)))
        relays = [Measured(relay, stack.enter_context(relay.running(upstream.url))) for relay in RELAYS]
        for measured in relays:  # so that no first time is measured
            _load(measured, burst, 1)
        for number in range(arguments.rounds):
            turn = number % len(relays)
            for measured in relays[turn:] + relays[:turn]:
                measured.paced.append(_load(measured, paced, arguments.streams, arguments.seconds))
                measured.burst.append(_load(measured, burst, arguments.bursts))
    return _rows(relays)


def _load(measured: Measured, model: str, count: int, paced_seconds: float | None = None) -> Result:
    """Load a relay, in bursts one after the other unless ``paced_seconds`` says how long each stream is."""
    requests = measured.relay.requests(measured.server, model, count)
    job = Job(measured.server.pid, measured.server.port, requests)
    if paced_seconds is not None:
        spread = paced_seconds * _SPREAD
        margin = (paced_seconds - spread) / 10
        job = Job(job.pid, job.port, requests, spread, (spread + margin, paced_seconds - margin))
    command, patience = python("tests.benchmarks.load"), _PATIENCE_SECONDS + (paced_seconds or 0)
    done = subprocess.run(
        command, input=json.dumps(asdict(job)), stdout=subprocess.PIPE, text=True, check=True, timeout=patience
    )
    return Result(**json.loads(done.stdout))


def _rows(relays: Iterable[Measured]) -> list[Row]:
    all_paced = {measured.relay: _median(measured.paced, _steady_us) for measured in relays}
    all_burst = {measured.relay: _median(measured.burst, _whole_us) for measured in relays}
    return [
        {
            "": measured.relay.name,
            **_compared("CPU us/event", measured.relay, all_paced),
            "CPU ms/stream": _median(measured.paced, _opening_ms),
            "events/s": _median(measured.paced, lambda r: r.steady_events / r.steady_seconds),
            "first p50 ms": _median(measured.paced, lambda r: _percentile(r.first_ms, 50)),
            "first p99 ms": _median(measured.paced, lambda r: _percentile(r.first_ms, 99)),
            "late p50 ms": _median(measured.paced, lambda r: r.late_ms[49]),
            "late p99 ms": _median(measured.paced, lambda r: r.late_ms[98]),
            "burst events/s": _median(measured.burst, lambda r: r.events / r.seconds),
            **_compared("burst CPU us/event", measured.relay, all_burst),
        }
        for measured in relays
    ]


def _compared(column: str, relay: Relay, figures: dict[Relay, float]) -> Row:
    own = figures[relay]
    return {column: own, f"{column}, x aiohttp": own / figures[AIOHTTP], f"{column}, x raw": own / figures[RAW]}


def _median(results: Iterable[Result], figure: Callable[[Result], float]) -> float:
    return statistics.median(map(figure, results))


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[(len(values) - 1) * percent // 100]


def _steady_us(result: Result) -> float:
    return 1e6 * result.steady_cpu_seconds / result.steady_events


def _whole_us(result: Result) -> float:
    return 1e6 * result.cpu_seconds / result.events


def _opening_ms(result: Result) -> float:
    """What a stream costs besides its events: to begin it and to end it."""
    events_cost = result.events * _steady_us(result) / 1e6
    return 1e3 * (result.cpu_seconds - events_cost) / len(result.first_ms)
