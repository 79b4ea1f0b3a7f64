"""Uvicorn's HTTP/1.1 protocol with size limits, a stall timeout and the error format of this
server.

The protocol handles errors before the application receives a request. Errors in a body are raised
in the application, which responds. The protocol depends on undocumented attributes of uvicorn:
`tests/unit/test_http_protocol.py` lists them, and `pyproject.toml` has the tested versions.
"""

import asyncio
import logging
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mochi_server.errors import HeadersTooLarge, MalformedRequest, MochiError, RequestTimedOut
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.middleware import MAX_HEADER_BYTES, WRONG_ENCODING
from mochi_server.web.request_log import HEADER, report
from mochi_server.web.requests import drop_tracebacks

_MAX_OVERHEAD_BYTES = 4 * MAX_HEADER_BYTES
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings", b"connection")
_MAX_WAITING = 100
"""Limit of pipelined requests that wait for the response to an earlier request of their connection.
"""

logger = logging.getLogger(__name__)


class StrictHttpProtocol(HttpToolsProtocol):
    """Connection that limits request heads and closes when a request stalls.

    `Upgrade` headers are ignored. Java's client sends one with every request, but the parser would
    skip the body of such a request. The server therefore removes the header and parses the request
    again.
    """

    stall_seconds = 60.0
    """Seconds without received data after which a new connection or an incomplete request times
    out.
    """

    # Bytes received since the last data of a body. Heads, chunk extensions and trailers are limited
    # with it, so the bytes of a body that arrive together with a head count, too.
    _overhead_bytes = 0
    _in_body = False
    _timer: asyncio.TimerHandle | None = None  # runs until the request is complete
    _running: RequestResponseCycle | None = None  # the request whose response is next
    _body_error: MochiError | None = None  # raised when the app reads the body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # same signature as in uvicorn
        super().connection_made(transport)
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        # It marks the latest request, which may wait behind the running one.
        super().connection_lost(exc)
        self.cycle = self._running = None  # type: ignore[assignment]  # each refers to this connection
        self._body_error = None  # refers to the frames that it has passed

    def data_received(self, data: bytes) -> None:
        if self._body_error is not None:
            return  # the connection closes after the response
        if self._timer is not None:
            self._restart_timer()
        self._overhead_bytes += len(data)
        self._parse(data)
        if self._overhead_bytes > _MAX_OVERHEAD_BYTES:
            self._reject(HeadersTooLarge(MAX_HEADER_BYTES))

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._restart_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # a trailer must not become a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_body = True
        if len(self.pipeline) == _MAX_WAITING:
            self._close_with_warning()
            # The parser stops, although it may have received further requests.
            raise ConnectionAbortedError
        super().on_headers_complete()

    def _close_with_warning(self) -> None:
        client = self.client[0] if self.client else None
        logger.warning(
            "closed a connection with more than %s waiting requests client=%s",
            _MAX_WAITING,
            client,
        )
        self.pipeline.clear()
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, partial(self._call, app))

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._overhead_bytes, self._in_body = 0, False
        self._stop_timer()
        super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            end_of_head: int = upgrade.args[0]
            self._parse_without_upgrade(rest=data[end_of_head:])
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Parse the latest head again without its upgrade, and then the ``rest`` of the data."""
        method = self.scope["method"]
        if method == "CONNECT":
            text = "This server does not support CONNECT. Send requests directly."
            self._reject(MalformedRequest(text))
            return
        version = self.scope["http_version"]
        request_line = b"%s %s HTTP/%s" % (method.encode(), self.url, version.encode())
        kept = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"\r\n".join([request_line, *kept, b"", rest]))

    def _should_upgrade(self) -> bool:
        """Make uvicorn skip every request with an upgrade, so that `_parse` can read it again."""
        return True

    def _restart_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.stall_seconds, self._on_stalled)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_stalled(self) -> None:
        if self.scope is None:  # no request has begun
            self.transport.close()
        else:
            self._reject(RequestTimedOut(self.stall_seconds))

    def send_400_response(self, reason: str) -> None:
        """Send the error for invalid HTTP, or for a URL that is too long for the parser."""
        if len(self.url or b"") >= MAX_HEADER_BYTES - 1:
            return self._reject(HeadersTooLarge(MAX_HEADER_BYTES))
        is_encoding = "Transfer-Encoding" in reason and "Content-Length" not in reason
        not_http = "The request is not valid HTTP/1.1. Check its syntax, and use http://."
        return self._reject(MalformedRequest(WRONG_ENCODING if is_encoding else not_http))

    def _may_respond(self) -> bool:
        """Return whether the request that is being read may be answered now.

        It may not while an earlier response of the connection is missing, or when its own response
        has begun.
        """
        running = self._running
        if running is None:
            return True
        if self._in_body:
            return running is self.cycle and not running.response_started
        return running.response_complete

    async def _call(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app. After uvicorn has logged an unexpected error, free the data of its
        request.
        """

        async def receive_body() -> Message:
            message = await receive()
            if self._body_error is not None:
                raise self._body_error
            return message

        try:
            await app(scope, receive_body, send)
        except Exception as error:
            # It runs after uvicorn's log call, which belongs to this step of the loop.
            asyncio.get_running_loop().call_soon(drop_tracebacks, error)
            raise

    def _reject(self, error: MochiError) -> None:
        """Close the connection. If possible, send an error response first.

        The app sends it if the app has received the head of the request.
        """
        if self.transport.is_closing() or self._body_error is not None:
            return
        may_respond = self._may_respond()
        running = self._running
        if may_respond and self._in_body and running is not None:
            self._body_error = error
            running.keep_alive = False
            running.message_event.set()
            return
        request_id = uuid4().hex
        if may_respond:
            body = error.body()
            head = (
                f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: "
                f"application/json\r\nContent-Length: {len(body)}\r\n{HEADER}: "
                f"{request_id}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
        token = REQUEST_ID.set(request_id)
        client = self.client[0] if self.client else None
        report(
            method="-",
            path="-",
            status=error.status,
            duration_ms=0,
            client=client,
            ended=None,
            error=None,
        )
        REQUEST_ID.reset(token)
