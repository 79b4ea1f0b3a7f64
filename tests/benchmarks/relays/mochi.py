"""This server as users run it: its own process and command, and one session per stream."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.profiling import profiled
from tests.benchmarks.relays import Relay, Request

ENVIRONMENT = {"MOCHI_SUMMARIZATION_ENABLED": "false"}
"""Summaries are off because they would be additional requests to the upstream at any time."""

_HEADERS = {"Content-Type": "application/json"}


def command(upstream: Server, data: Path, port: int = 0) -> list[str]:
    """Return the command that serves a data directory."""
    return python(
        "mochi_server", "--port", str(port), "--ollama-host", upstream.url, "--data-dir", str(data)
    )


@contextmanager
def serving(upstream: Server, data: Path) -> Iterator[Server]:
    """Run the server on a data directory."""
    with running(command(upstream, data), ENVIRONMENT) as server, profiled(server):
        yield server


def stream(session_id: str) -> Request:
    """Return the request for an answer in a session."""
    return f"/api/v1/chat/{session_id}/stream", '{"message":"Hello"}'


@contextmanager
def _running(upstream: Server) -> Iterator[Server]:
    with (
        TemporaryDirectory(prefix="mochi-benchmark-") as data,
        serving(upstream, Path(data)) as server,
    ):
        yield server


def sessions(server: Server, model: str, count: int) -> list[str]:
    """Create sessions and return their IDs."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        return [_session(connection, model) for _ in range(count)]
    finally:
        connection.close()


def _requests(server: Server, model: str, count: int) -> list[Request]:
    return [*map(stream, sessions(server, model, count))]


def _session(connection: HTTPConnection, model: str) -> str:
    connection.request("POST", "/api/v1/sessions", json.dumps({"model": model}), _HEADERS)
    response = connection.getresponse()
    body = json.loads(response.read())
    assert response.status == 201, body
    return str(body["session_id"])


MOCHI = Relay("mochi-server", _running, _requests)
