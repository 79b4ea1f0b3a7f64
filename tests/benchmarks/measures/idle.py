"""Memory of an open stream that waits for its first token.

It is the growth of the server's memory, divided by the number of streams that wait.

Each stream has its own session, which the benchmark
creates before the measurement. The server handles some streams before the benchmark measures its
memory for the first time, so that one-time costs are not part of the growth.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass

from tests.benchmarks.driving import Load, running_job
from tests.benchmarks.figures import median
from tests.benchmarks.load import Job
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.processes import Server, python, resident_bytes, running
from tests.benchmarks.relays import Relay
from tests.benchmarks.relays.bare import AIOHTTP, RAW
from tests.benchmarks.relays.mochi import MOCHI
from tests.benchmarks.workload import adjustable

TITLE = "Memory of an idle open stream"
_OPENING = 2
"""Seconds during which the streams are opened."""
_WARM_UP, _SHORT = 20, "burst:20"
_PER_STREAM, _BEFORE = "KiB per open stream", "MiB without streams"


@dataclass(frozen=True)
class Workload:
    """Streams that wait for their first token."""

    streams: int = adjustable(500, "waiting streams")
    seconds: float = adjustable(4.0, "seconds from the first stream to the measurement")


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per relay with medians over the rounds. Each round starts new servers."""
    relays = [MOCHI, AIOHTTP, RAW]
    rounds = [_round(relays, work) for _ in range(setting.rounds)]
    rows = {relay: _row(relay, [of[relay] for of in rounds], work.streams) for relay in relays}
    aim = Aim("memory of an idle open stream", float(rows[MOCHI][_PER_STREAM]), 60, "KiB")
    return Findings(list(rows.values()), [aim])


def _round(relays: list[Relay], work: Workload) -> dict[Relay, tuple[int, int]]:
    """Return the bytes in use before, and with all streams open."""
    model = f"paced:1000x1+{1000 * (work.seconds + _OPENING):.0f}"
    with ExitStack() as stack:
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", model, _SHORT)))
        servers = {relay: stack.enter_context(relay.running(upstream)) for relay in relays}
        jobs = [_prepared(relay, server, model, work) for relay, server in servers.items()]
        before = [resident_bytes(server) for server in servers.values()]
        for job in jobs:
            stack.enter_context(running_job(job))
        time.sleep(work.seconds)
        held = map(resident_bytes, servers.values())
        return dict(zip(relays, zip(before, held, strict=True), strict=True))


def _prepared(relay: Relay, server: Server, model: str, work: Workload) -> Job:
    requests = relay.requests(server, model, work.streams)
    Load(_SHORT, min(_WARM_UP, work.streams), 0.5).on(relay, server)
    return Job(server.pid, server.port, requests, min(_OPENING, work.seconds / 2))


def _row(relay: Relay, rounds: list[tuple[int, int]], streams: int) -> Row:
    return {
        "": relay.name,
        _PER_STREAM: median(rounds, lambda held: held[1] - held[0]) / 1024 / streams,
        _BEFORE: median(rounds, lambda held: held[0]) / 1024**2,
    }
