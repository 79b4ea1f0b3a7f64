"""The load, a process of its own: opens streams, counts their events, and reads the server's CPU clock meanwhile.

Takes a ``Job`` as JSON from standard input and prints a ``Result`` as JSON.
"""

import asyncio
import json
import re
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

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
    """Streams to open. Without ``spread`` one follows the other; with it, all begin within so many seconds.

    ``window`` is when a spread load is steady, in seconds from its beginning.
    """

    pid: int
    port: int
    requests: list[tuple[str, str]]
    """Path and JSON body of each."""
    spread: float | None = None
    window: tuple[float, float] = (0, 0)


@dataclass(frozen=True)
class Result:
    """What came of a job. CPU seconds are the server's."""

    events: int
    seconds: float
    cpu_seconds: float
    steady_events: int
    steady_seconds: float
    steady_cpu_seconds: float
    first_ms: list[float]
    """From asking to the first event, of each stream."""
    late_ms: list[float]
    """From the upstream's writing to here, percentiles 1 to 99 of all events; empty for bursts."""


@dataclass
class Arrivals:
    """What all streams together have received. Times are nanoseconds of the monotonic clock."""

    events: int = 0
    first: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)


class Stream(asyncio.Protocol):
    """One request and its server-sent events."""

    def __init__(self, request: bytes, arrivals: Arrivals) -> None:
        self._request = request
        self._arrivals = arrivals
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._events = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._asked = time.monotonic_ns()
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._parser.feed_data(data)
        frames, found, rest = self._rest.rpartition(b"\n\n")
        if found and (stamps := _STAMPS.findall(frames)):
            self._take(stamps, now)
        self._rest = rest

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("The stream was cut off."))

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200:
            self.ended.set_exception(RuntimeError(f"The stream was refused with {status}."))

    def on_body(self, body: bytes) -> None:
        self._rest += body

    def on_message_complete(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _take(self, stamps: list[bytes], now: int) -> None:
        if not self._events:
            self._arrivals.first.append(now - self._asked)
        self._events += len(stamps)
        self._arrivals.events += len(stamps)
        self._arrivals.late += [now - sent for stamp in stamps if (sent := int(stamp))]


async def perform(job: Job) -> Result:
    """Open all streams and read all of them to their ends."""
    clock, arrivals = CpuClock(job.pid), Arrivals()
    begun, cpu = time.monotonic(), clock.seconds()
    steady = (0, 0.0, 0.0)
    if job.spread is None:
        for request in job.requests:
            await _stream(job.port, request, arrivals, 0)
    else:
        offsets = [job.spread * (i * _GOLDEN % 1) for i in range(len(job.requests))]
        pairs = zip(job.requests, offsets, strict=True)
        streams = asyncio.gather(*(_stream(job.port, request, arrivals, offset) for request, offset in pairs))
        steady, _ = await asyncio.gather(_steady(job.window, clock, arrivals), streams)
    took, used = time.monotonic() - begun, clock.seconds() - cpu
    late = statistics.quantiles(arrivals.late, n=100) if arrivals.late else []
    first = [ns / 1e6 for ns in arrivals.first]
    return Result(arrivals.events, took, used, *steady, first, [ns / 1e6 for ns in late])


async def _stream(port: int, request: tuple[str, str], arrivals: Arrivals, offset: float) -> None:
    await asyncio.sleep(offset)
    path, body = map(str.encode, request)
    loop = asyncio.get_running_loop()
    raw = _REQUEST % (path, len(body), body)
    transport, stream = await loop.create_connection(lambda: Stream(raw, arrivals), "127.0.0.1", port)
    try:
        await stream.ended
    finally:
        transport.close()


async def _steady(window: tuple[float, float], clock: CpuClock, arrivals: Arrivals) -> tuple[int, float, float]:
    """Events, seconds and CPU seconds of a stretch in which every stream is under way."""
    await asyncio.sleep(window[0])
    begun, cpu, events = time.monotonic(), clock.seconds(), arrivals.events
    await asyncio.sleep(window[1] - window[0])
    return arrivals.events - events, time.monotonic() - begun, clock.seconds() - cpu


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(uvloop.run(perform(Job(**json.load(sys.stdin)))))))
