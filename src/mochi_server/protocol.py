"""The HTTP connection as uvicorn reads it, for what goes wrong before there is a request that the app could answer."""

from uuid import uuid4

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mochi_server.access import HEADER, report
from mochi_server.errors import HeadersTooLarge, MalformedRequest, MochiError
from mochi_server.limits import MAX_HEADER_BYTES
from mochi_server.logs import REQUEST_ID

_MAX_HEAD_BYTES = 4 * MAX_HEADER_BYTES
"""Where the application's own limit has no chance to speak, because the head never ends."""


class Connection(HttpToolsProtocol):
    """Refuses as the app does, and gives up a connection whose request's head has no end, before it is in memory."""

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HeadersTooLarge(MAX_HEADER_BYTES))

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

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
