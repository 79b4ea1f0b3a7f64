"""Load generator in a separate process: streams run one turn after another and check each event.

Reads a `Job` as JSON from standard input and prints a `Result` as JSON. Each stream keeps one
connection; each turn has its own session. A turn that is cut off, refused, out of order or
different from the expected answer is a complaint and ends its stream.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import httptools
import orjson
import uvloop

from tests.support.instructions import instruct, words

_REQUEST = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
_GOLDEN = (5**0.5 - 1) / 2
_COMPLAINTS_KEPT = 5


@dataclass(frozen=True)
class Job:
    """Streams that start within `spread` seconds and begin no turn after `seconds`.

    With `turns`, each stream runs that number of turns instead.
    """

    port: int
    model: str
    words: int
    middle: str
    """Text of an answer between its labels."""
    streams: int
    spread: float = 0
    seconds: float = 0
    turns: int = 0


@dataclass
class Result:
    turns: int = 0
    events: int = 0
    broken: int = 0
    complaints: list[str] = field(default_factory=list)
    """The first complaints."""


class Connection(asyncio.Protocol):
    """Connection with one request at a time, whose response body is read in chunks."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._pieces.put_nowait(None)
        self._lost = True

    _lost = False

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.put_nowait(body)

    def on_message_complete(self) -> None:
        self._pieces.put_nowait(None)

    async def send_request(self, path: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send a POST request and read the response to its end."""
        data = orjson.dumps(body)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(_REQUEST % (path.encode(), len(data), data))
        while (piece := await self._pieces.get()) is not None:
            yield piece
        if self._lost:
            raise ConnectionError("the connection was lost")
        if self.status >= 300:
            raise ConnectionError(f"{path} was refused with {self.status}")


async def perform(job: Job) -> Result:
    """Run the streams until the time is over."""
    result, deadline = Result(), time.monotonic() + job.seconds
    await asyncio.gather(*(_stream(job, number, deadline, result) for number in range(job.streams)))
    return result


async def _stream(job: Job, number: int, deadline: float, result: Result) -> None:
    await asyncio.sleep(job.spread * (number * _GOLDEN % 1))
    turn = 0
    try:
        async with _connected(job.port) as connection:
            while turn < job.turns or time.monotonic() < deadline:
                await _turn(connection, job, f"S{number}T{turn}", result)
                turn += 1
    except (OSError, ValueError) as error:
        result.broken += 1
        result.complaints = [*result.complaints, f"stream {number}, turn {turn}: {error}"][
            :_COMPLAINTS_KEPT
        ]


@asynccontextmanager
async def _connected(port: int) -> AsyncGenerator[Connection, None]:
    transport, connection = await asyncio.get_running_loop().create_connection(
        Connection, "127.0.0.1", port
    )
    try:
        yield connection
    finally:
        transport.close()


async def _turn(connection: Connection, job: Job, label: str, result: Result) -> None:
    created = b"".join(
        [piece async for piece in connection.send_request("/api/v1/sessions", {"model": job.model})]
    )
    path = f"/api/v1/chat/{orjson.loads(created)['session_id']}/stream"
    message = instruct(words(job.words), label=label)
    rest, chunks, last, kind = b"", [], 0, b""
    async for piece in connection.send_request(path, {"message": message}):
        *frames, rest = (rest + piece).split(b"\n\n")
        for frame in frames:
            if not frame.startswith(b":"):
                kind, content = _read(frame, last + 1)
                chunks.append(content)
                last += 1
        result.events += len(frames)
    if kind != b"done" or rest:
        raise ValueError(f"it ended with {kind!r} and {rest!r}")
    if "".join(chunks) != f"{label} {job.middle} {label}":
        raise ValueError(f"it said {''.join(chunks)!r}")
    result.turns += 1


def _read(frame: bytes, number: int) -> tuple[bytes, str]:
    """Return name and content of the next event. Fail if it is not the expected one."""
    event_id, kind, data = (line.partition(b": ")[2] for line in frame.split(b"\n"))
    if event_id.rpartition(b":")[2] != b"%d" % number:
        raise ValueError(f"event {number} has the id {event_id!r}")
    payload = orjson.loads(data)
    if kind == b"error":
        raise ValueError(f"it failed: {payload}")
    return kind, payload["content"] if kind == b"content_delta" else ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(uvloop.run(perform(Job(**json.load(sys.stdin)))))))
