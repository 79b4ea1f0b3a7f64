"""Time until `mochi-server --version` ends, and until the health route of a new server answers with
200.

Each start is a new process.

For comparison, the benchmark
also starts the Python interpreter alone, because no program in Python can start faster. The very
first start of the server is not measured, because Python then compiles the modules. Later starts
import the compiled modules.
"""

import subprocess
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.benchmarks.figures import ratio
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.processes import Server, python, running, serving
from tests.benchmarks.relays import mochi
from tests.benchmarks.workload import adjustable
from tests.support.ports import free_port

TITLE = "Start"


@dataclass(frozen=True)
class Workload:
    times: int = adjustable(3, "starts in each round")


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per command with all starts of all rounds."""
    times = range(work.times * setting.rounds)
    peer = setting.peer
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="mochi-benchmark-")))
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", "burst:1")))
        floor = [_ended([*python("")[:1], "-c", "pass"]) for _ in times]
        version = [_ended(python("mochi_server", "--version")) for _ in times]
        _ready(_serving(upstream, data))
        ready = [_ready(_serving(upstream, data)) for _ in times]
        peers = (
            [_ready(peer.running(upstream)) for _ in range(setting.rounds + 1)][1:] if peer else []
        )
    named = {
        "Python interpreter": floor,
        "mochi-server --version": version,
        "mochi-server ready": ready,
    }
    rows = [
        _row(name, took)
        for name, took in (named | ({f"{peer.name} ready": peers} if peer else {})).items()
    ]
    ahead = ratio(median(peers) if peers else None, median(ready))
    aims = [
        Aim("print the version", median(version), 0.15, "s"),
        Aim("ready for requests", median(ready), 0.8, "s"),
        Aim("start time, of the peer", ahead, 1, "x", at_least=True),
    ]
    return Findings(rows, aims)


def _serving(upstream: Server, data: Path) -> AbstractContextManager[Server]:
    port = free_port()
    return serving(mochi.command(upstream, data, port), port, "/api/v1/health", mochi.ENVIRONMENT)


def _ready(server: AbstractContextManager[Server]) -> float:
    begun = time.monotonic()
    with server:
        return time.monotonic() - begun


def _ended(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


def _row(name: str, took: list[float]) -> Row:
    return {"": name, "median, s": median(took), "minimum, s": min(took)}
