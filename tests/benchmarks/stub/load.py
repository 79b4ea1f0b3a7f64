"""Load generator in a separate process: repeats one request on persistent connections and reads
each reply to its end.

Reads a `Job` as JSON from standard input and prints a `Result` as JSON. It works with any server.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count, repeat
from typing import cast

import httptools
import uvloop

NUMBER = b"1000000000000000000"
"""Placeholder with as many digits as a time in nanoseconds."""
_REQUEST = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


@dataclass(frozen=True)
class Job:
    """Request to repeat on each of several connections until the time is over, at least once.

    `fresh`: make each request unique by replacing `NUMBER` in the body with a counter. The counter
    begins with the current time, so that no two jobs send the same request.
    """

    port: int
    path: str
    body: str
    connections: int
    seconds: float
    fresh: bool = False


@dataclass(frozen=True)
class Result:
    """Result of a job.

    Times are seconds; those of a reply are medians and count from its request.
    """

    replies: int
    seconds: float
    chunks: int
    """Number of server-sent events in all replies."""
    first: float
    """Time to the first byte of the body."""
    whole: float


@dataclass
class Replies:
    """Replies of all connections, with times as in `Result`."""

    chunks: int = 0
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Connection that repeats its request until the deadline."""

    def __init__(self, requests: Iterator[bytes], deadline: float, replies: Replies) -> None:
        self._requests = requests
        self._deadline = deadline
        self._replies = replies
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("The reply was cut off."))

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200:
            self.ended.set_exception(RuntimeError(f"The request was refused with {status}."))

    def on_body(self, body: bytes) -> None:
        if not self._parts:
            self._replies.first.append(time.perf_counter() - self._asked)
        self._parts.append(body)

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        body = b"".join(self._parts)
        self._replies.whole.append(now - self._asked)
        self._replies.chunks += body.count(b"data: ")
        if now < self._deadline:
            self._ask()
        elif not self.ended.done():
            self.ended.set_result(None)

    def _ask(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._asked = time.perf_counter()
        self._transport.write(next(self._requests))


async def perform(job: Job) -> Result:
    """Send requests on all connections until the time is over."""
    body = job.body.encode()
    request = _REQUEST % (job.path.encode(), len(body), body)
    unique = (request.replace(NUMBER, b"%d" % number) for number in count(time.time_ns()))
    requests = unique if job.fresh else repeat(request)
    replies, begun = Replies(), time.perf_counter()
    await asyncio.gather(
        *(
            _connection(job.port, requests, begun + job.seconds, replies)
            for _ in range(job.connections)
        )
    )
    seconds = time.perf_counter() - begun
    first, whole = statistics.median(replies.first), statistics.median(replies.whole)
    return Result(len(replies.whole), seconds, replies.chunks, first, whole)


async def _connection(
    port: int, requests: Iterator[bytes], deadline: float, replies: Replies
) -> None:
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(
        lambda: Connection(requests, deadline, replies), "127.0.0.1", port
    )
    try:
        await connection.ended
    finally:
        transport.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(uvloop.run(perform(Job(**json.load(sys.stdin)))))))
