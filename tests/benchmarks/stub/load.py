"""The load, a process of its own: asks one thing over and over on kept connections, and reads every reply to its end.

Takes a ``Job`` as JSON from standard input and prints a ``Result`` as JSON. It does not know who answers.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import httptools
import uvloop

_REQUEST = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


@dataclass(frozen=True)
class Job:
    """What to ask, on so many connections at a time; each asks until so many seconds are over, and at least once."""

    port: int
    path: str
    body: str
    connections: int
    seconds: float


@dataclass
class Result:
    """What came of a job. Durations are seconds, of each reply from its request on."""

    seconds: float = 0
    size: int = 0
    """Bytes of all bodies."""
    chunks: int = 0
    """Server-sent events of all bodies."""
    first: list[float] = field(default_factory=list)
    """To the first byte of the body."""
    whole: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Asks again when it has been answered, until the deadline."""

    def __init__(self, request: bytes, deadline: float, result: Result) -> None:
        self._request = request
        self._deadline = deadline
        self._result = result
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
            self._result.first.append(time.perf_counter() - self._asked)
        self._parts.append(body)

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        body = b"".join(self._parts)
        self._result.whole.append(now - self._asked)
        self._result.size += len(body)
        self._result.chunks += body.count(b"data: ")
        if now < self._deadline:
            self._ask()
        elif not self.ended.done():
            self.ended.set_result(None)

    def _ask(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._asked = time.perf_counter()
        self._transport.write(self._request)


async def perform(job: Job) -> Result:
    """Ask on every connection until the time is over."""
    body = job.body.encode()
    request = _REQUEST % (job.path.encode(), len(body), body)
    result, begun = Result(), time.perf_counter()
    await asyncio.gather(*(_connection(job.port, request, begun + job.seconds, result) for _ in range(job.connections)))
    result.seconds = time.perf_counter() - begun
    return result


async def _connection(port: int, request: bytes, deadline: float, result: Result) -> None:
    loop = asyncio.get_running_loop()
    transport, connection = await loop.create_connection(
        lambda: Connection(request, deadline, result), "127.0.0.1", port
    )
    try:
        await connection.ended
    finally:
        transport.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(uvloop.run(perform(Job(**json.load(sys.stdin)))))))
