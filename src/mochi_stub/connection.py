"""HTTP/1.1 connections of the stub: httptools parses, an ASGI application answers.

The application reads a request to its end before it answers, so a request is passed on when its body is complete.
uvicorn is not used: its httptools protocol loses the body of requests with an `Upgrade` header, which Java's client
always sends, and its h11 protocol answers less than a third of the requests per second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import Any, cast
from urllib.parse import unquote

import httptools

logger = logging.getLogger("mochi_stub")

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
Headers = list[tuple[bytes, bytes]]

_UPGRADE = (b"upgrade", b"http2-settings", b"connection")
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_INVALID = b"Invalid HTTP request received."


class Connection(asyncio.Protocol):
    """A connection, whose requests are answered one after the other. `Upgrade` headers are ignored."""

    transport: asyncio.Transport

    def __init__(self, app: Application, connections: set[Connection]) -> None:
        self.app = app
        self.connections = connections
        self.parser = httptools.HttpRequestParser(self)
        self.exchanges: deque[_Exchange] = deque()
        """Complete requests. The first is being answered."""
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.connections.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.connections.discard(self)
        self.writable.set()
        for exchange in self.exchanges:
            exchange.over.set()

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
        if self.exchanges:
            self.exchanges[0].keep_alive = False
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: Headers = []
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
        path = url.path.decode("ascii")
        scope = {
            "type": "http",
            "method": self.parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
        }
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self.exchanges.append(_Exchange(self, scope, bytes(self.body), keep_alive))
        if len(self.exchanges) == 1:
            self.exchanges[0].start()

    def next(self) -> None:
        """Answer the next request, if there is one."""
        if not self.exchanges.popleft().keep_alive:
            self.transport.close()
        elif self.exchanges:
            self.exchanges[0].start()

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        version = self.parser.get_http_version().encode()
        return b"\r\n".join([b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version), *lines, b"", b""])

    def _refuse(self) -> None:
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_INVALID))]
        self.transport.write(_head(400, [*headers, (b"connection", b"close")]) + _INVALID)
        self.transport.close()


class _Exchange:
    """A request, and the ASGI callables of its answer."""

    def __init__(self, connection: Connection, scope: Message, body: bytes, keep_alive: bool) -> None:
        self.connection = connection
        self.scope = scope
        self.body: bytes | None = body
        self.keep_alive = keep_alive
        self.chunked = False
        self.over = asyncio.Event()
        """Set when the answer is complete or the client has gone."""

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.connection.app(self.scope, self._receive, self._send)
        except Exception:
            logger.exception("%s %s", self.scope["method"], self.scope["path"])
        if not self.over.is_set():
            self.connection.transport.close()

    async def _receive(self) -> Message:
        body, self.body = self.body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self.over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        connection, method = self.connection, self.scope["method"]
        await connection.writable.wait()
        if connection.transport.is_closing():
            return
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
            has_length = any(name == b"content-length" for name, _ in headers)
            self.chunked = method != "HEAD" and status not in (204, 304) and not has_length
            if not self.keep_alive:
                headers.append((b"connection", b"close"))
            if self.chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            connection.transport.write(_head(status, [(b"date", _date(int(time()))), *headers]))
            return
        body, more = b"" if method == "HEAD" else message["body"], message["more_body"]
        framed = [b"%x\r\n" % len(body), body, b"\r\n"] if self.chunked and body else [body]
        if self.chunked and not more:
            framed.append(b"0\r\n\r\n")
        connection.transport.write(b"".join(framed))
        if not more:
            self.over.set()
            connection.next()


def _head(status: int, headers: Headers) -> bytes:
    lines = [b"HTTP/1.1 %d %s" % (status, _PHRASES.get(status, b"")), *(b"%s: %s" % header for header in headers)]
    return b"\r\n".join([*lines, b"", b""])


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
