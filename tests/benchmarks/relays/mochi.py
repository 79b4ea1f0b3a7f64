"""This server as people run it: its own process, its own command, a session of its own for every stream."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from tempfile import TemporaryDirectory

from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays import Relay, Request

_HEADERS = {"Content-Type": "application/json"}


@contextmanager
def _running(url: str) -> Iterator[Server]:
    # A summary would be one more answer of the upstream, at a time of its own.
    environment = {"MOCHI_SUMMARIZATION_ENABLED": "false"}
    with TemporaryDirectory(prefix="mochi-benchmark-") as data:
        command = python("mochi_server", "--port", "0", "--ollama-host", url, "--data-dir", data)
        with running(command, environment) as server:
            yield server


def _requests(server: Server, model: str, count: int) -> list[Request]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        return [_request(connection, model) for _ in range(count)]
    finally:
        connection.close()


def _request(connection: HTTPConnection, model: str) -> Request:
    connection.request("POST", "/api/v1/sessions", json.dumps({"model": model}), _HEADERS)
    response = connection.getresponse()
    body = json.loads(response.read())
    assert response.status == 201, body
    return f"/api/v1/chat/{body['session_id']}/stream", '{"message":"Hello"}'


MOCHI = Relay("mochi-server", _running, _requests)
