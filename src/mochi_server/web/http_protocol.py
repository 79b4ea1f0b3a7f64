"""Uvicorn's HTTP/1.1 protocol with size limits, a stall timeout and the error format of this server.

The protocol handles errors before the application receives a request. It depends on undocumented attributes of
uvicorn: `tests/unit/test_http_protocol.py` lists them, and `pyproject.toml` has the tested versions.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Literal
from uuid import uuid4

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mochi_server.errors import HeadersTooLarge, MalformedRequest, MochiError, RequestTimedOut
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.request_limits import MAX_HEADER_BYTES, WRONG_ENCODING
from mochi_server.web.request_log import HEADER, report

_MAX_HEAD_BYTES = 4 * MAX_HEADER_BYTES  # limit for an incomplete head; the application checks complete heads
_MAX_UNREAD_BYTES = 64 * 1024  # limit for buffered requests; above it, reading from the socket is paused
_BLANK_LINE = b"\r\n\r\n"
_MIN_CHUNKED_BYTES = 256  # minimum per parser call: blank lines in a chunked body would cause many calls
_UPGRADE = (b"upgrade", b"http2-settings", b"connection")


class StrictHttpProtocol(HttpToolsProtocol):
    """Connection that answers requests in order, limits its buffers, and closes when a request stalls.

    Pipelined requests stay in the buffer as bytes. Each request is parsed after the response to the previous one.

    `Upgrade` headers are ignored. Java's client sends an `Upgrade` header with every request, but the parser does not
    parse the body of such a request. The server therefore removes the header and parses the request again.
    """

    stall_seconds = 60.0
    """Seconds without received data after which an idle connection or an incomplete request times out."""

    _parsed_tail = b""  # last three parsed bytes, in which a blank line may begin
    _unread = b""
    _body_left = 0  # bytes of a body with Content-Length that have not arrived yet
    _overhead_bytes = 0  # bytes of the head, of chunk extensions or of trailers since the last body data
    _state: Literal["idle", "head", "body"] = "idle"  # part of the request that is being parsed
    _received_at = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unanswered: list[RequestResponseCycle] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # same signature as in uvicorn
        super().connection_made(transport)
        self._received_at = self.loop.time()
        self._timer = self.loop.call_later(self.stall_seconds, self._check_stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for cycle in self._unanswered:  # uvicorn notifies only the latest cycle
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        self.pipeline.clear()
        self._unread = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received_at = self.loop.time()
        self._unread += data
        self._parse_unread()
        # Uvicorn's flow control would resume reading whenever the application calls receive().
        if len(self._unread) > _MAX_UNREAD_BYTES and not self.transport.is_closing():
            self.transport.pause_reading()

    def on_response_complete(self) -> None:
        if self._unanswered:
            self._unanswered.pop(0)
        super().on_response_complete()
        if not self.transport.is_closing():
            self._parse_unread()
        if len(self._unread) <= _MAX_UNREAD_BYTES and not self.transport.is_closing():
            self.transport.resume_reading()

    def on_message_begin(self) -> None:
        self._state = "head"
        self._unset_keepalive_if_required()
        super().on_message_begin()
        if self._timer is None:
            self._timer = self.loop.call_later(self.stall_seconds, self._check_stalled)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Ignore trailers, so that a field after the body does not become a header."""
        if self._state == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._state, self._overhead_bytes = "body", 0
        self._body_left = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        latest = self.cycle
        super().on_headers_complete()
        if self.cycle is not latest:
            self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._body_left = max(0, self._body_left - len(body))
        self._overhead_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._state, self._overhead_bytes, self._body_left = "idle", 0, 0
        super().on_message_complete()

    def _parse_unread(self) -> None:
        """Parse buffered bytes up to the end of one request. Later requests wait for the response to that request."""
        data, start = self._parsed_tail + self._unread, len(self._parsed_tail)
        # An incomplete request is parsed further. After a complete request, parsing pauses until it is answered.
        pending = self._unanswered
        while start < len(data) and len(pending) <= int(self._state != "idle") and not self.transport.is_closing():
            end = self._piece_end(data, start)
            self._overhead_bytes += end - start
            self._parse(data[start:end])
            start = end
            if self._overhead_bytes > (MAX_HEADER_BYTES if self._state == "body" else _MAX_HEAD_BYTES):
                self._reject(HeadersTooLarge(MAX_HEADER_BYTES))
        self._parsed_tail, self._unread = data[max(0, start - 3) : start], data[start:]

    def _piece_end(self, data: bytes, start: int) -> int:
        """Return the end index of the next bytes to parse: the end of the declared body, or of the next blank line."""
        if self._body_left:
            return min(start + self._body_left, len(data))
        found = data.find(_BLANK_LINE, start + _MIN_CHUNKED_BYTES if self._state == "body" else max(0, start - 3))
        return len(data) if found < 0 else found + len(_BLANK_LINE)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.scope["method"] == "CONNECT":
                self._reject(MalformedRequest("This server does not support CONNECT. Send requests directly."))
                return
            self.parser = httptools.HttpRequestParser(self)
            self._parse(self._head_without_upgrade() + data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    def _should_upgrade(self) -> bool:
        """Return True, so that uvicorn does not pass a request with an `Upgrade` header to the application.

        `_parse` parses such a request again without the header.
        """
        return True

    def _head_without_upgrade(self) -> bytes:
        """Return the head of the request (request line and headers) without its `Upgrade` headers."""
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        first = b"%s %s HTTP/%s" % (self.scope["method"].encode(), self.url, self.scope["http_version"].encode())
        return b"\r\n".join([first, *lines, b"", b""])

    def _check_stalled(self) -> None:
        """Close the connection if no data has arrived in time. There is no timeout while a response is sent."""
        self._timer = None
        remaining = self._received_at + self.stall_seconds - self.loop.time()
        if self.transport.is_closing() or self._is_answering():
            return
        if remaining > 0:
            self._timer = self.loop.call_later(remaining, self._check_stalled)
        elif self._state != "idle":
            self._reject(RequestTimedOut(self.stall_seconds))
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        """Return whether the latest request was received completely, or the response to it has already started."""
        if self.cycle is None or self._state == "head":
            return False
        return self._state == "idle" or bool(self.cycle.response_started)

    def send_400_response(self, reason: str) -> None:
        """Send the error for invalid HTTP, or for a URL that is too long for the parser."""
        too_long = len(self.url or b"") >= MAX_HEADER_BYTES - 1
        is_encoding = "Transfer-Encoding" in reason and "Content-Length" not in reason
        not_http = "The request is not valid HTTP/1.1. Check its syntax, and use http://."
        invalid = MalformedRequest(WRONG_ENCODING if is_encoding else not_http)
        self._reject(HeadersTooLarge(MAX_HEADER_BYTES) if too_long else invalid)

    def _reject(self, error: MochiError) -> None:
        """Close the connection. If no response has started yet, send an error response first."""
        request_id = uuid4().hex
        has_started = any(cycle.response_started for cycle in self._unanswered)
        if not has_started and not (self._state != "idle" and self._is_answering()):
            self.transport.write(_response(error, request_id))
        self.transport.close()
        token = REQUEST_ID.set(request_id)
        client = self.client[0] if self.client else None
        report(method="-", path="-", status=error.status, seconds=0, client=client)
        REQUEST_ID.reset(token)


def _response(error: MochiError, request_id: str) -> bytes:
    body = error.body()
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{HEADER}: {request_id}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
