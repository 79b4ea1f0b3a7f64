"""Load generator in a separate process: opens streams, counts their events and reads the server's
CPU clock.

Reads a `Job` as JSON from standard input and prints a `Result` as JSON.
"""

import asyncio
import json
import re
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import httptools
import uvloop

from tests.benchmarks.processes import CpuClock

_REQUEST = (
    b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s"
)
_STAMPS = re.compile(rb'"@(\d{19})"')
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Job:
    """Streams to open: one after another, or with `spread` all begun within that many seconds.

    `window` is the steady part of a spread load, in seconds from its beginning. Streams that have
    not ended after `cut_after` seconds are closed and count as far as they came.
    """

    pid: int
    port: int
    requests: list[tuple[str, str]]
    """Path and JSON body of each request."""
    spread: float | None = None
    window: tuple[float, float] = (0, 0)
    cut_after: float = 60


@dataclass
class Outcome:
    """Outcome of a stream.

    Times are milliseconds from the request, or None if the stream did not get so far.
    """

    began: float
    """Seconds from the beginning of the load to the request."""
    first: float | None = None
    """Time to the first event."""
    gap: float = 0
    """Longest time between two events."""
    whole: float | None = None
    """Time to the end."""


@dataclass(frozen=True)
class Result:
    """Result of a job. CPU seconds are those of the server."""

    begun: float
    """Time on the monotonic clock."""
    events: int
    seconds: float
    cpu_seconds: float
    steady_events: int
    steady_seconds: float
    steady_cpu_seconds: float
    streams: list[Outcome]
    late_ms: list[float]
    """Percentiles 1 to 99 of the delay from the upstream's write to the read here; empty for
    bursts.
    """

    @property
    def first_ms(self) -> list[float]:
        """Return the time to the first event of each stream that has one."""
        return [stream.first for stream in self.streams if stream.first is not None]

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Result":
        return cls(**data | {"streams": [Outcome(**stream) for stream in data["streams"]]})


@dataclass
class Arrivals:
    """Events of all streams. Times are nanoseconds of the monotonic clock."""

    begun: int
    events: int = 0
    streams: list[Outcome] = field(default_factory=list)
    late: list[int] = field(default_factory=list)


class Stream(asyncio.Protocol):
    """One request and its events: server-sent events or lines of JSON."""

    def __init__(self, request: bytes, arrivals: Arrivals) -> None:
        self._request = request
        self._arrivals = arrivals
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._latest = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._asked = time.monotonic_ns()
        self._outcome = Outcome((self._asked - self._arrivals.begun) / 1e9)
        self._arrivals.streams.append(self._outcome)
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._parser.feed_data(data)
        lines, _, rest = b"".join(self._parts).rpartition(b"\n")
        self._parts = [rest]
        if stamps := _STAMPS.findall(lines):
            self._take(stamps, now)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("The stream was cut off."))

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200:
            self.ended.set_exception(RuntimeError(f"The stream was refused with {status}."))

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if not self.ended.done():
            self._outcome.whole = (time.monotonic_ns() - self._asked) / 1e6
            self.ended.set_result(None)

    def _take(self, stamps: list[bytes], now: int) -> None:
        if self._outcome.first is None:
            self._outcome.first = (now - self._asked) / 1e6
        else:
            self._outcome.gap = max(self._outcome.gap, (now - self._latest) / 1e6)
        self._latest = now
        self._arrivals.events += len(stamps)
        self._arrivals.late += [now - sent for stamp in stamps if (sent := int(stamp))]


async def perform(job: Job) -> Result:
    """Open all streams and read each to its end."""
    clock, begun = CpuClock(job.pid), time.monotonic()
    arrivals, cpu = Arrivals(time.monotonic_ns()), clock.seconds()
    steady = (0, 0.0, 0.0)
    if job.spread is None:
        for request in job.requests:
            await _stream(job, request, arrivals, 0)
    else:
        offsets = [job.spread * (i * _GOLDEN % 1) for i in range(len(job.requests))]
        pairs = zip(job.requests, offsets, strict=True)
        streams = asyncio.gather(
            *(_stream(job, request, arrivals, offset) for request, offset in pairs)
        )
        steady, _ = await asyncio.gather(_steady(job.window, clock, arrivals), streams)
    took, used = time.monotonic() - begun, clock.seconds() - cpu
    late = statistics.quantiles(arrivals.late, n=100) if len(arrivals.late) > 1 else []
    return Result(
        begun, arrivals.events, took, used, *steady, arrivals.streams, [ns / 1e6 for ns in late]
    )


async def _stream(job: Job, request: tuple[str, str], arrivals: Arrivals, offset: float) -> None:
    await asyncio.sleep(offset)
    path, body = map(str.encode, request)
    loop = asyncio.get_running_loop()
    raw = _REQUEST % (path, len(body), body)
    transport, stream = await loop.create_connection(
        lambda: Stream(raw, arrivals), "127.0.0.1", job.port
    )
    left = job.cut_after - (time.monotonic_ns() - arrivals.begun) / 1e9
    try:
        await asyncio.wait_for(stream.ended, max(left, 0))
    except asyncio.TimeoutError:
        return
    finally:
        transport.close()


async def _steady(
    window: tuple[float, float], clock: CpuClock, arrivals: Arrivals
) -> tuple[int, float, float]:
    """Return events, seconds and CPU seconds of the time in which all streams run."""
    await asyncio.sleep(window[0])
    begun, cpu, events = time.monotonic(), clock.seconds(), arrivals.events
    await asyncio.sleep(window[1] - window[0])
    return arrivals.events - events, time.monotonic() - begun, clock.seconds() - cpu


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(uvloop.run(perform(Job(**json.load(sys.stdin)))))))
