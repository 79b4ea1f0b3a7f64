"""HTTP/1.1 server protocol of the stub, based on asyncio and the parser httptools.

uvicorn is not used. Its httptools protocol drops the body of requests with an `Upgrade` header, which Java's client
always sends. Its h11 protocol serves less than a third of the requests per second that this protocol serves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools

from mochi_stub.http import Request

logger = logging.getLogger("mochi_stub")

Application = Callable[["ResponseWriter"], Coroutine[Any, Any, None]]

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings", b"connection")
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request"


class HttpConnection(asyncio.Protocol):
    """Connection to one client. It answers the requests of the client in order and ignores `Upgrade` headers."""

    transport: asyncio.Transport

    def __init__(self, app: Application, connections: set[HttpConnection]) -> None:
        self.app = app
        self.connections = connections
        self.parser = httptools.HttpRequestParser(self)
        self.writers: deque[ResponseWriter] = deque()
        """Response writers of all requests that were received completely. Only the first writer is active."""
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
                self._reject()
            else:
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.data_received(head + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._reject()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def finish(self) -> None:
        """Close an idle connection at once. Close a busy connection after the current response."""
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
        if dict(self.headers).get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # `data_received` parses the request again, without its upgrade headers
        url = httptools.parse_url(self.url)
        method, path = self.parser.get_method().decode("ascii"), unquote(url.path.decode("ascii"))
        request = Request(method, path, bytes(self.body), url.query or b"", tuple(self.headers), url.path)
        version = self.parser.get_http_version()
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        self.writers.append(ResponseWriter(self, request, keep_alive, version))
        if len(self.writers) == 1:
            self.writers[0].answer()

    def answer_next(self) -> None:
        """Answer the next request. Close the connection instead if the last response did not allow keep-alive."""
        if not self.writers.popleft().keep_alive:
            self.writers.clear()
            self.transport.close()
        elif self.writers:
            self.writers[0].answer()

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        version = self.parser.get_http_version().encode()
        return b"\r\n".join([b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version), *lines, b"", b""])

    def _reject(self) -> None:
        """Close the connection after the answers to earlier requests. Without these, send the rejection first."""
        if self.writers:
            self.writers[-1].keep_alive = False
        else:
            self.transport.write(_BAD_REQUEST)
            self.transport.close()


@dataclass
class ResponseWriter:
    """Writer of the response to one request. `task` runs the application and is cancelled by a client disconnect."""

    connection: HttpConnection
    request: Request
    keep_alive: bool
    version: str = "1.1"
    head: bytes = b""
    chunked: bool = False
    complete: bool = False
    task: asyncio.Task[None] = field(init=False)

    def answer(self) -> None:
        """Start the application in a new task."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Prepare the status line and the headers. The next `write` sends them together with its part of the body.

        If the headers contain no `Content-Length`, the body is sent in chunks. HTTP/1.0 does not support chunks. In
        HTTP/1.0, the end of the connection marks the end of the body.
        """
        all_headers = [(b"date", _date(int(time.time()))), *headers]
        has_length = b"content-length" in dict(all_headers)
        has_body = self.request.method != "HEAD" and status not in (204, 304)
        self.chunked = has_body and not has_length and self.version != "1.0"
        if not self.keep_alive and self.version != "1.0":
            all_headers.append((b"connection", b"close"))
        if self.chunked:
            all_headers.append((b"transfer-encoding", b"chunked"))
        status_line = f"HTTP/{self.version} {status} {_PHRASES.get(status, '')}".encode()
        self.head = b"\r\n".join([status_line, *[b"%s: %s" % header for header in all_headers], b"", b""])

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Send a part of the body, which can be empty. If `last` is true, complete the response."""
        if self.request.method == "HEAD":
            body = b""
        frames = [b"%x\r\n" % len(body), body, b"\r\n"] if self.chunked and body else [body]
        if self.chunked and last:
            frames.append(b"0\r\n\r\n")
        await self.connection.writable.wait()
        if not self.connection.transport.is_closing():
            self.connection.transport.write(b"".join([self.head, *frames]))
        self.head = b""
        if last:
            self.complete = True
            self.connection.answer_next()

    async def _run(self) -> None:
        try:
            await self.connection.app(self)
        except Exception:
            logger.exception("request failed: method=%s path=%s", self.request.method, self.request.path)
        if not self.complete:
            self.connection.transport.close()


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    """Return the value of the `Date` header for a time in seconds since 1970."""
    return formatdate(seconds, usegmt=True).encode()
