"""The HTTP connection as uvicorn reads it, for what goes wrong before there is a request that the app could answer."""

import asyncio
from uuid import uuid4

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mochi_server.access import HEADER, report
from mochi_server.errors import HeadersTooLarge, MalformedRequest, MochiError, RequestTimedOut
from mochi_server.limits import MAX_HEADER_BYTES
from mochi_server.logs import REQUEST_ID

_MAX_HEAD_BYTES = 4 * MAX_HEADER_BYTES
"""Where the application's own limit has no chance to speak, because the head never ends."""


_WISH = (b"upgrade", b"http2-settings", b"connection")


class Connection(HttpToolsProtocol):
    """Refuses as the app does, and gives up connections whose request's head has no end, or that stop in a request.

    A wish for another protocol is not granted. Java's client asks for HTTP/2 with every request, and the parser takes
    the body of such a request for the other protocol's; so its head is read again without the wish.
    """

    patience_seconds = 60.0
    """For how long nothing of a request may come that is not yet whole."""

    _head_bytes = 0
    _in_head = True
    _in_request = False
    _came = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._came = self.loop.time()
        self._timer = self.loop.call_later(self.patience_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._came = self.loop.time()
        if self._in_head:
            self._head_bytes += len(data)
        self._parse(data)
        if self._in_head and self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HeadersTooLarge(MAX_HEADER_BYTES))

    def on_message_begin(self) -> None:
        self._in_request = True
        super().on_message_begin()
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience_seconds, self._look)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes, self._in_request = True, 0, False
        super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            if self.scope["method"] == "CONNECT":
                self._refuse(MalformedRequest("There are no tunnels here."))
                return
            self.parser = httptools.HttpRequestParser(self)
            self._parse(self._head() + data[wish.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")

    def _should_upgrade(self) -> bool:
        """True keeps the base class from starting the request while its head has a wish in it."""
        return True

    def _head(self) -> bytes:
        """The request's head without its wish for another protocol."""
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _WISH]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        first = b"%s %s HTTP/%s" % (self.scope["method"].encode(), self.url, self.scope["http_version"].encode())
        return b"\r\n".join([first, *lines, b"", b""])

    def _look(self) -> None:
        """Whether a request still comes; one timer for many pieces, and none while an answer is given."""
        self._timer = None
        left = self._came + self.patience_seconds - self.loop.time()
        if self.transport.is_closing() or self._is_answering():
            return
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._in_request:
            self._refuse(RequestTimedOut(self.patience_seconds))
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        """Whether a request is whole, or was answered before it was."""
        if self.cycle is None or (self._in_request and self._in_head):
            return False
        return not self._in_request or bool(self.cycle.response_started)

    def send_400_response(self, _: str) -> None:
        """Answer what is not HTTP, and URLs that the parser gives up for their length."""
        too_long = len(self.url or b"") >= MAX_HEADER_BYTES - 1
        error = (
            HeadersTooLarge(MAX_HEADER_BYTES) if too_long else MalformedRequest("This is not a request of HTTP/1.1.")
        )
        self._refuse(error)

    def _refuse(self, error: MochiError) -> None:
        request_id = uuid4().hex
        self.transport.write(_whole(error, request_id))
        self.transport.close()
        token = REQUEST_ID.set(request_id)
        client = self.client[0] if self.client else None
        report(method="-", path="-", status=int(error.status), seconds=0, client=client)
        REQUEST_ID.reset(token)


def _whole(error: MochiError, request_id: str) -> bytes:
    body = error.body()
    head = [
        f"HTTP/1.1 {int(error.status)} {error.status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"{HEADER}: {request_id}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
