"""HTTP/1.1 transport of the test client. With httpcore, the client takes as much CPU time as the server."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from select import select
from threading import local

import httptools
import httpx

Connections = list[socket.socket]
_RECEIVED_BYTES = 65536


class Transport(httpx.BaseTransport):
    """Plain HTTP on sockets, without encryption.

    Each thread has idle connections of its own, because the server may close one that another thread has just taken.
    """

    def __init__(self, *, keeps_connections: bool = True) -> None:
        self.keeps_connections = keeps_connections
        self._own = local()
        self._open: set[socket.socket] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.scheme == "http", request.url
        address, timeout = (request.url.host, request.url.port or 80), request.extensions["timeout"]
        idle: Connections = self._own.__dict__.setdefault(str(address), [])
        connection = _usable(idle) or self._connect(address, timeout["connect"])
        response = _Response(self, connection, idle, request.method)
        try:
            connection.settimeout(timeout["write"])
            with suppress(ConnectionError):  # the server may answer before it has read the body
                _send(connection, request)
            connection.settimeout(timeout["read"])
            response.read_headers()
        except BaseException:
            response.close()
            raise
        return httpx.Response(response.status, headers=response.headers, stream=response)

    def discard(self, connection: socket.socket) -> None:
        self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        for connection in list(self._open):
            self.discard(connection)

    def _connect(self, address: tuple[str, int], timeout: float | None) -> socket.socket:
        try:
            connection = socket.create_connection(address, timeout)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(connection)
        return connection


def _usable(idle: Connections) -> socket.socket | None:
    """Return an idle connection that the server has not closed."""
    while idle:
        connection = idle.pop()
        if connection.fileno() >= 0 and not select([connection], [], [], 0)[0]:
            return connection
        connection.close()
    return None


def _send(connection: socket.socket, request: httpx.Request) -> None:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    data = b"\r\n".join([*lines, *(b"%b: %b" % header for header in request.headers.raw), b"\r\n"])
    assert isinstance(request.stream, httpx.SyncByteStream)
    if "transfer-encoding" in request.headers:
        for part in request.stream:
            connection.sendall(data + b"%x\r\n%b\r\n" % (len(part), part) if part else data)
            data = b""
        connection.sendall(data + b"0\r\n\r\n")
    else:
        connection.sendall(data + b"".join(request.stream))


class _Response(httpx.SyncByteStream):
    """Response of a connection, and the callbacks of its parser."""

    def __init__(self, transport: Transport, connection: socket.socket, idle: Connections, method: str) -> None:
        self._transport, self._connection, self._idle, self._method = transport, connection, idle, method
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._has_headers = self._is_complete = self._is_kept = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def read_headers(self) -> None:
        while not self._has_headers:
            self._receive()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            if data := b"".join(self._parts):
                self._parts.clear()
                yield data
            if self._is_complete:
                return
            self._receive()

    def close(self) -> None:
        """Keep the connection for the next request, unless the response was not read to its end."""
        if self._is_complete and self._is_kept and self._transport.keeps_connections:
            self._idle.append(self._connection)
        else:
            self._transport.discard(self._connection)

    def on_message_begin(self) -> None:
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._is_kept = self._parser.should_keep_alive()
        self._has_headers = self.status >= 200  # others precede the response
        self._is_complete = self._method == "HEAD"  # without the body that the headers describe

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        self._is_complete = self._has_headers

    def _receive(self) -> None:
        try:
            data = self._connection.recv(_RECEIVED_BYTES)
            if data:
                self._parser.feed_data(data)
        except TimeoutError as error:
            raise httpx.ReadTimeout("timed out") from error
        except OSError as error:
            raise httpx.ReadError(str(error)) from error
        except httptools.HttpParserError as error:
            raise httpx.RemoteProtocolError(str(error)) from error
        if not data:
            self._end()

    def _end(self) -> None:
        """End a body without a length with its connection."""
        names = {name.lower() for name, _ in self.headers}
        if not self._has_headers or names & {b"content-length", b"transfer-encoding"}:
            raise httpx.RemoteProtocolError("The server closed the connection before the end of the response.")
        self._is_complete = True
