"""Raw HTTP, for requests that client libraries do not send."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import orjson


@dataclass(frozen=True)
class RawResponse:
    """A response. ``status`` is 0 if the server closed the connection without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """Return the code of an error envelope."""
        return str(orjson.loads(self.body)["error"]["code"])


def send_request(url: str, request: bytes) -> RawResponse:
    """Send bytes and read one response to its end, or until the connection closes."""
    with connect(url) as connection:
        connection.sendall(request)
        return _read(connection)


def send_requests(url: str, requests: Iterable[bytes]) -> Iterator[RawResponse]:
    """Send requests one after another, on one connection as long as the server keeps it open."""
    with ExitStack() as stack:
        connection: socket.socket | None = None
        for request in requests:
            if connection is None:
                connection = stack.enter_context(connect(url))
            connection.sendall(request)
            response = _read(connection)
            if response.headers.get("connection") == "close":
                connection = None
            yield response


def connect(url: str) -> socket.socket:
    """Open a connection to the server at this URL."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 10)


def _read(connection: socket.socket) -> RawResponse:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65536)):
            return RawResponse(0, {}, data)
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return RawResponse(int(status.split()[1]), headers, body)
