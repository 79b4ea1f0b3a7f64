"""Time until `mochi-server --version` ends, and until the health route of a new server answers with
200.

Each start is a new process.

For comparison, the benchmark
also starts the Python interpreter alone, because no program in Python can start faster. The very
first start of the server is not measured, because Python then compiles the modules. Later starts
import the compiled modules. CPU times are compared with that of `import fastapi, uvicorn`, the
minimum of a server with this framework.
"""

import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.benchmarks.figures import ratio
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.processes import CpuClock, Server, inherited, python, running, serving
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
        starts = [_ready(_serving(upstream, data)) for _ in times]
        ready = [seconds for seconds, _ in starts]
        ready_cpu = [seconds for _, seconds in starts]
        framework_cpu = []
        import_cpu = []
        for _ in times:
            framework_cpu.append(_import_cpu("fastapi, uvicorn"))
            import_cpu.append(_import_cpu("mochi_server.app"))
        peers = (
            [_ready(peer.running(upstream))[0] for _ in range(setting.rounds + 1)][1:]
            if peer
            else []
        )
    named = {
        "Python interpreter": floor,
        "mochi-server --version": version,
        "mochi-server ready": ready,
        "import fastapi, uvicorn, CPU": framework_cpu,
        "import mochi_server.app, CPU": import_cpu,
        "mochi-server ready, CPU": ready_cpu,
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
        Aim(
            "CPU of the import, relative to FastAPI and uvicorn",
            min(import_cpu) / min(framework_cpu),
            1.5,
            "x",
        ),
        Aim(
            "CPU until ready, relative to the import of FastAPI and uvicorn",
            min(ready_cpu) / min(framework_cpu),
            1.7,
            "x",
        ),
    ]
    return Findings(rows, aims)


def _serving(upstream: Server, data: Path) -> AbstractContextManager[Server]:
    port = free_port()
    return serving(mochi.command(upstream, data, port), port, "/api/v1/health", mochi.ENVIRONMENT)


def _ready(starting: AbstractContextManager[Server]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds until a server is ready."""
    begun = time.monotonic()
    with starting as server:
        cpu = CpuClock(server.pid).seconds()
        return time.monotonic() - begun, cpu


def _import_cpu(modules: str) -> float:
    """Return the CPU seconds of a new process that imports ``modules``."""
    program = f"import time, {modules}; print(time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _ended(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


def _row(name: str, took: list[float]) -> Row:
    return {"": name, "median, s": median(took), "minimum, s": min(took)}
