"""Relay with raw protocols and httptools: about the minimum cost of an event in Python."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import httptools
import uvloop

from tests.benchmarks.relays.listening import Requests, Sse, chat_body, listen

_REQUEST = b"POST /api/chat HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


class Upstream(asyncio.Protocol):
    """One request to Ollama, whose answer is forwarded once for each read of the socket."""

    def __init__(self, request: bytes, sse: Sse) -> None:
        self._request = request
        self._sse = sse
        self._body: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._flush()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._flush()
        self._sse.end()
        self._transport.close()

    def _flush(self) -> None:
        if self._body:
            self._sse.feed(b"".join(self._body))
            self._body.clear()


def answer(netloc: str, model: str, sse: Sse) -> Callable[[], object]:
    """Start an answer and return a function that cancels it."""
    body = chat_body(model)
    request = _REQUEST % (netloc.encode(), len(body), body)
    return asyncio.get_running_loop().create_task(_relay(netloc, request, sse)).cancel


async def _relay(netloc: str, request: bytes, sse: Sse) -> None:
    host, _, port = netloc.partition(":")
    await asyncio.get_running_loop().create_connection(
        lambda: Upstream(request, sse), host, int(port)
    )


if __name__ == "__main__":
    uvloop.run(
        listen(partial(Requests, partial(answer, urlsplit(sys.argv[1]).netloc)), "raw relay")
    )
