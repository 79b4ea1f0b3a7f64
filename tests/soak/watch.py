"""Samples of a process's resources and of the server's latency during a load. Linux only."""

import json
import math
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from tests.benchmarks.processes import CpuClock, Server

_INTERVAL = 0.2


@dataclass(frozen=True)
class Sample:
    """Sample at a time of the monotonic clock: resident memory in MiB, and the duration of
    `/health` in milliseconds.

    `late` is the delay in milliseconds with which the machine woke this process.
    """

    at: float
    memory: float
    health: float
    late: float


@dataclass
class Watch:
    """Samples of a server, taken by a thread while the context is open."""

    server: Server
    processes: dict[str, int]
    """Processes whose CPU time is measured, by name."""
    samples: list[Sample] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)
    """CPU time of each process as a fraction of one core, available at the end."""
    failure: str | None = None

    def __enter__(self) -> "Watch":
        self._over = threading.Event()
        self._clocks = {name: CpuClock(pid) for name, pid in self.processes.items()}
        self._begun = (
            time.monotonic(),
            {name: clock.seconds() for name, clock in self._clocks.items()},
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        took = time.monotonic() - self._begun[0]
        self.cpu = {
            name: (c.seconds() - self._begun[1][name]) / took for name, c in self._clocks.items()
        }
        self._over.set()
        self._thread.join()

    def seconds(self) -> float:
        """Return the seconds since the watch began."""
        return time.monotonic() - self._begun[0]

    def between(self, begin: float, end: float) -> list[Sample]:
        """Return the samples of a time span, in seconds from the start of the watch."""
        return [sample for sample in self.samples if begin <= sample.at - self._begun[0] < end]

    def _run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            expected = time.monotonic() + _INTERVAL
            while not self._over.wait(_INTERVAL):
                at = time.monotonic()
                late = (at - expected) * 1000
                self.samples.append(Sample(at, memory(self.server.pid), _health(connection), late))
                expected = time.monotonic() + _INTERVAL
        except (OSError, ValueError) as error:
            self.failure = f"/health did not answer: {error}"
        finally:
            connection.close()


def memory(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    line = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def descriptors(pid: int) -> int:
    """Return the number of open files and sockets of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def settled_descriptors(pid: int, expected: int, timeout: float) -> int:
    """Return the number of descriptors after servers have closed idle connections."""
    deadline = time.monotonic() + timeout
    while (left := descriptors(pid)) > expected and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def typical_memory(samples: Sequence[Sample]) -> float:
    """Return the median, because a sample may coincide with a garbage collection.

    Return NaN without samples.
    """
    return statistics.median(sample.memory for sample in samples) if samples else math.nan


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that the given percentage of the values does not exceed."""
    return sorted(values)[(len(values) - 1) * percent // 100]


def _health(connection: HTTPConnection) -> float:
    start = time.perf_counter()
    connection.request("GET", "/api/v1/health")
    response = connection.getresponse()
    body = json.loads(response.read())
    if response.status != 200 or not body["ollama_connected"]:
        raise ValueError(f"{response.status} {body}")
    return (time.perf_counter() - start) * 1000
