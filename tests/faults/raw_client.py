"""HTTP client on a plain socket, for requests and pauses that HTTP libraries prevent."""

import json
import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Any

from tests.sessions.processes import DEADLINE


class RawClient:
    """One connection. Leaving the context closes or resets it."""

    def __init__(
        self, address: tuple[str, int], *, resets: bool = False, buffer: int | None = None
    ) -> None:
        self._socket = socket.socket()
        self._socket.settimeout(DEADLINE)
        if buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        if resets:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.connect(address)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send_request(self, path: str, body: dict[str, Any], *, share: float = 1.0) -> None:
        """Send a POST request, or that share of its bytes."""
        data = request(path, body)
        self.send(data[: int(len(data) * share)])

    def set_timeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close the connection, or reset it."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_until_answered(self, data: bytes, *, at_most: int) -> bytes:
        """Send data again and again until the server responds or closes the connection. Return the
        response, after which the server closes the connection.
        """
        self._socket.settimeout(0.001)
        answer = b""
        for _ in range(at_most // len(data)):
            try:
                self._socket.sendall(data)
                answer = self._socket.recv(65536)
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        self._socket.settimeout(DEADLINE)
        with suppress(ConnectionError):
            while more := self._socket.recv(65536):
                answer += more
        return answer

    def read(self, size: int) -> bytes:
        return self._socket.recv(size)

    def read_until(self, text: bytes) -> bytes:
        """Return the data up to that text and what came with it."""
        data = b""
        while text not in data:
            more = self.read(4096)
            assert more, f"{text!r} never came: {data!r}"
            data += more
        return data


def request(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
