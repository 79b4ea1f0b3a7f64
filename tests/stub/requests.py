"""Plain HTTP requests to a stub over a real socket, without a client library."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from mochi_stub import StubServer


@dataclass(frozen=True)
class RawResponse:
    """Response that was read to its end. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.split(b"\n") if line]


def send_request(
    stub: StubServer,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> RawResponse:
    """Send one request and return the response. A body that is not bytes is sent as JSON."""
    with keep_alive(stub) as connection:
        return send_on(connection, method, path, body, headers)


@contextmanager
def keep_alive(stub: StubServer) -> Iterator[HTTPConnection]:
    """Yield a connection for several requests. Opening one takes as long as most requests."""
    with closing(HTTPConnection(stub.host, stub.port, timeout=10)) as connection:
        yield connection


def send_on(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> RawResponse:
    """Send one request like `send_request`, over an open connection."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, dict(headers or {}))
    response = connection.getresponse()
    return RawResponse(
        response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    )


def send_message(stub: StubServer, text: str, model: str = "mochi", **fields: Any) -> RawResponse:
    """Send a chat request with one user message."""
    return send_request(
        stub,
        "POST",
        "/api/chat",
        {"model": model, "messages": [{"role": "user", "content": text}], **fields},
    )


@contextmanager
def open_stream(stub: StubServer, path: str, body: Any) -> Iterator[HTTPResponse]:
    """Yield a response whose lines can be read as they arrive.

    The connection is closed with the context.
    """
    with closing(HTTPConnection(stub.host, stub.port, timeout=10)) as connection:
        connection.request("POST", path, json.dumps(body))
        with closing(connection.getresponse()) as response:
            yield response


@contextmanager
def raw_connection(stub: StubServer, data: bytes) -> Iterator[socket.socket]:
    with socket.create_connection((stub.host, stub.port), timeout=10) as connection:
        connection.sendall(data)
        yield connection


def contents(lines: list[Any], key: str = "content") -> str:
    """Return the text of a chat stream."""
    return "".join(line["message"].get(key, "") for line in lines)
