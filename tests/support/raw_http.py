"""HTTP spoken by hand, for requests that no client library would send."""

import socket
from dataclasses import dataclass

import orjson


@dataclass(frozen=True)
class RawResponse:
    """A response as it came; ``status`` 0 when the server only hung up."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The code of an error with the envelope."""
        return str(orjson.loads(self.body)["error"]["code"])


def send_raw(url: str, request: bytes) -> RawResponse:
    """Send bytes and read one answer to its end, or to the end of the connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(request)
        return _read(connection)


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
