"""HTTP/1.1 connections: uvicorn's protocol with limits, and with refusals in the form of this server.

It handles what goes wrong before there is a request that the application could answer. It relies on attributes of
uvicorn that are not documented. `tests/unit/test_http_protocol.py` lists them, `pyproject.toml` has the tested
versions.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Literal
from uuid import uuid4

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mochi_server.errors import HeadersTooLarge, MalformedRequest, MochiError, RequestTimedOut
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.request_limits import MAX_HEADER_BYTES
from mochi_server.web.request_log import HEADER, report

_MAX_HEAD_BYTES = 4 * MAX_HEADER_BYTES
"""Limit for a head without an end. A complete head of more than `MAX_HEADER_BYTES` is refused by the application."""
_MAX_UNREAD_BYTES = 64 * 1024
"""Limit for bytes of pipelined requests, beyond which the socket is not read."""
_BLANK_LINE = b"\r\n\r\n"
_CHUNKED_PIECE_BYTES = 256
"""Least piece of a chunked body, so that blank lines in it cost no time. At most 16 requests fit into one."""
_UPGRADE = (b"upgrade", b"http2-settings", b"connection")


class StrictHttpProtocol(HttpToolsProtocol):
    """A connection that answers one request after the other, bounds what it buffers, and closes if a request stalls.

    Pipelined requests wait as bytes. They are parsed when the requests before them have been answered.

    `Upgrade` headers are ignored. Java's client asks for HTTP/2 with every request, and the parser treats the body of
    such a request as data of the other protocol. The head is therefore parsed again without them.
    """

    stall_seconds = 60.0
    """Timeout for a request of which no data arrives."""

    _seen = b""
    """The last three bytes that were parsed: a blank line may begin in them."""
    _unread = b""
    _body_left = 0
    """Bytes of a body with a declared length that have not arrived yet."""
    _other_bytes = 0
    """Bytes since the last body data: of the head, of chunk extensions or of trailers."""
    _state: Literal["idle", "head", "body"] = "idle"
    """What of a request is being parsed."""
    _received_at = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unanswered: list[RequestResponseCycle] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._received_at = self.loop.time()
        self._timer = self.loop.call_later(self.stall_seconds, self._check_stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for cycle in self._unanswered:  # uvicorn notifies only the latest
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
        # Not by uvicorn's flow control, which reads on whenever the application receives.
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
        """Ignore trailers: a field behind the body must not become a header."""
        if self._state == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._state, self._other_bytes = "body", 0
        self._body_left = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        latest = self.cycle
        super().on_headers_complete()
        if self.cycle is not latest:
            self._unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._body_left = max(0, self._body_left - len(body))
        self._other_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._state, self._other_bytes, self._body_left = "idle", 0, 0
        super().on_message_complete()

    def _parse_unread(self) -> None:
        """Parse what has been received, up to the end of a request that has to be answered first."""
        data, start = self._seen + self._unread, len(self._seen)
        # The last of the unanswered requests may still be on its way; none is parsed behind a complete one.
        waiting = self._unanswered
        while start < len(data) and len(waiting) <= int(self._state != "idle") and not self.transport.is_closing():
            end = self._piece_end(data, start)
            self._other_bytes += end - start
            self._parse(data[start:end])
            start = end
            if self._other_bytes > (MAX_HEADER_BYTES if self._state == "body" else _MAX_HEAD_BYTES):
                self._refuse(HeadersTooLarge(MAX_HEADER_BYTES))
        self._seen, self._unread = data[max(0, start - 3) : start], data[start:]

    def _piece_end(self, data: bytes, start: int) -> int:
        """Return the end of the next piece: that of the declared body, or of a blank line, where requests end."""
        if self._body_left:
            return min(start + self._body_left, len(data))
        found = data.find(_BLANK_LINE, start + _CHUNKED_PIECE_BYTES if self._state == "body" else max(0, start - 3))
        return len(data) if found < 0 else found + len(_BLANK_LINE)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.scope["method"] == "CONNECT":
                self._refuse(MalformedRequest("There are no tunnels here."))
                return
            self.parser = httptools.HttpRequestParser(self)
            self._parse(self._head() + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")

    def _should_upgrade(self) -> bool:
        """Return True, so that the base class does not start a request whose head has an `Upgrade` header."""
        return True

    def _head(self) -> bytes:
        """Return the head of the request without its `Upgrade` headers."""
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        first = b"%s %s HTTP/%s" % (self.scope["method"].encode(), self.url, self.scope["http_version"].encode())
        return b"\r\n".join([first, *lines, b"", b""])

    def _check_stalled(self) -> None:
        """Close the connection if nothing arrives of a request; one timer for many pieces, none during an answer."""
        self._timer = None
        left = self._received_at + self.stall_seconds - self.loop.time()
        if self.transport.is_closing() or self._is_answering():
            return
        if left > 0:
            self._timer = self.loop.call_later(left, self._check_stalled)
        elif self._state != "idle":
            self._refuse(RequestTimedOut(self.stall_seconds))
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        """Return whether the latest request is complete, or was answered before its body was."""
        if self.cycle is None or self._state == "head":
            return False
        return self._state == "idle" or bool(self.cycle.response_started)

    def send_400_response(self, _: str) -> None:
        """Refuse what is not HTTP, and URLs that are too long for the parser."""
        too_long = len(self.url or b"") >= MAX_HEADER_BYTES - 1
        not_http = MalformedRequest("This is not a request of HTTP/1.1.")
        self._refuse(HeadersTooLarge(MAX_HEADER_BYTES) if too_long else not_http)

    def _refuse(self, error: MochiError) -> None:
        """Send an error and close. Only close if a response has begun, or the request was answered already."""
        request_id = uuid4().hex
        has_begun = any(cycle.response_started for cycle in self._unanswered)
        if not has_begun and not (self._state != "idle" and self._is_answering()):
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
