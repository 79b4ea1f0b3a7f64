"""HTTP/1.1 connections of the stub: httptools parses a request to its end, then the application answers it.

uvicorn is not used: its httptools protocol loses the body of requests with an `Upgrade` header, which Java's client
always sends, and its h11 protocol answers less than a third of the requests per second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import responses
from typing import Any, cast
from urllib.parse import unquote

import httptools

from mochi_stub.http.http_result import Request

logger = logging.getLogger("mochi_stub")

Application = Callable[["ResponseWriter"], Coroutine[Any, Any, None]]

_UPGRADE = (b"upgrade", b"http2-settings", b"connection")
_REFUSED = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)


class HttpConnection(asyncio.Protocol):
    """A connection, whose requests are answered one after the other. `Upgrade` headers are ignored."""

    transport: asyncio.Transport

    def __init__(self, app: Application, connections: set[HttpConnection]) -> None:
        self.app = app
        self.connections = connections
        self.parser = httptools.HttpRequestParser(self)
        self.writers: deque[ResponseWriter] = deque()
        """Those of all complete requests. The first is being answered."""
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.connections.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.connections.discard(self)
        if self.writers:
            self.writers[0].task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self._refuse()
            else:
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.data_received(head + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def finish(self) -> None:
        """Close the connection, but complete the answer that is being sent."""
        if self.writers:
            self.writers[0].keep_alive = False
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if (b"expect", b"100-continue") in self.headers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the head is parsed again
        url = httptools.parse_url(self.url)
        method, path = self.parser.get_method().decode("ascii"), unquote(url.path.decode("ascii"))
        request = Request(method, path, bytes(self.body), url.query or b"", tuple(self.headers), url.path)
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self.writers.append(ResponseWriter(self, request, keep_alive))
        if len(self.writers) == 1:
            self.writers[0].answer()

    def next(self) -> None:
        """Answer the next request, if there is one."""
        if not self.writers.popleft().keep_alive:
            self.transport.close()
        elif self.writers:
            self.writers[0].answer()

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        version = self.parser.get_http_version().encode()
        return b"\r\n".join([b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version), *lines, b"", b""])

    def _refuse(self) -> None:
        self.transport.write(_REFUSED)
        self.transport.close()


@dataclass
class ResponseWriter:
    """A request, and what the application writes to answer it. If the client disconnects, the task is cancelled."""

    connection: HttpConnection
    request: Request
    keep_alive: bool
    chunked: bool = False
    complete: bool = False
    task: asyncio.Task[None] = field(init=False)

    def answer(self) -> None:
        """Start the task in which the application answers."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers. A body without a Content-Length is sent in chunks."""
        sent = [(b"date", formatdate(usegmt=True).encode()), *headers]
        has_length = any(name == b"content-length" for name, _ in sent)
        self.chunked = self.request.method != "HEAD" and status not in (204, 304) and not has_length
        if not self.keep_alive:
            sent.append((b"connection", b"close"))
        if self.chunked:
            sent.append((b"transfer-encoding", b"chunked"))
        first = f"HTTP/1.1 {status} {responses.get(status, '')}".encode()
        await self._write(b"\r\n".join([first, *(b"%s: %s" % header for header in sent), b"", b""]))

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Send a part of the body."""
        if self.request.method == "HEAD":
            body = b""
        framed = [b"%x\r\n" % len(body), body, b"\r\n"] if self.chunked and body else [body]
        if self.chunked and last:
            framed.append(b"0\r\n\r\n")
        await self._write(b"".join(framed))
        if last:
            self.complete = True
            self.connection.next()

    async def _run(self) -> None:
        try:
            await self.connection.app(self)
        except Exception:
            logger.exception("%s %s", self.request.method, self.request.path)
        if not self.complete:
            self.connection.transport.close()

    async def _write(self, data: bytes) -> None:
        await self.connection.writable.wait()
        if not self.connection.transport.is_closing():
            self.connection.transport.write(data)
