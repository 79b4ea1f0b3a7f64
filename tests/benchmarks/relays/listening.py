"""Minimal server: requests are parsed by httptools, and NDJSON becomes server-sent events."""

import asyncio
import signal
import sys
from collections.abc import Callable
from itertools import count
from secrets import token_hex
from typing import cast

import httptools
import orjson

_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-store\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)

Answer = Callable[[str, "Sse"], Callable[[], object]]
"""Starts the answer of the model in the path and returns a function that cancels it."""


class Sse:
    """Event stream to one client: takes NDJSON in chunks of any size and sends one event
    per line.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._run_id = token_hex(16).encode()
        self._numbers = count(1)
        self._rest = b""
        transport.write(_HEAD)

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._transport.write(
                chunked(b"".join([self._event(orjson.loads(line)) for line in lines]))
            )

    def end(self) -> None:
        self._transport.write(chunked(b""))
        self._transport.close()

    def _event(self, line: dict[str, dict[str, str]]) -> bytes:
        name, data = b"content_delta", {"content": line["message"]["content"], "role": "assistant"}
        if line["done"]:
            name, data = b"done", {"session_id": ""}
        return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (
            self._run_id,
            next(self._numbers),
            name,
            orjson.dumps(data),
        )


class Requests(asyncio.Protocol):
    """Connection with one request: `POST /api/v1/chat/<model>/stream`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._path = b""
        self._cancel: Callable[[], object] | None = None
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._cancel is not None:
            self._cancel()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_message_complete(self) -> None:
        self._cancel = self._answer(self._path.decode().split("/")[4], Sse(self._transport))


def chunked(data: bytes) -> bytes:
    """Return a chunk of an HTTP body; an empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def chat_body(model: str) -> bytes:
    """Return the body of the request to Ollama."""
    return orjson.dumps(
        {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    )


async def listen(protocol: Callable[[], asyncio.Protocol], name: str) -> None:
    """Listen on a free port, print its number and stop on SIGTERM."""
    loop = asyncio.get_running_loop()
    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave.set)
    server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{name} is at http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await leave.wait()
    server.close()
