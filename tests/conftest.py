"""Fixtures: a stub Ollama and the server in front of it, new for each test, on real sockets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.support import postgres
from tests.support.api import Api
from tests.support.holding import Holding
from tests.support.server import SERVERS, RunningServer


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests gets in."""
    for name in ("OLLAMA_API_KEY", "OLLAMA_HOST", "PORT", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub
        cut = [exchange.path for exchange in stub.exchanges() if exchange.truncated]
        assert not cut, f"prompts were cut behind our back: {cut}"


@pytest.fixture
def holding() -> Iterator[Holding]:
    """For modules whose ``stub`` is that of this fixture."""
    holding = Holding()
    with holding.stub:
        yield holding
        holding.gate.open()


@pytest.fixture
def server(stub: StubServer, tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path, stub.url) as server:
        yield server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.api()


def pytest_configure(config: pytest.Config) -> None:
    # Else each of the hundreds of processes that the tests start compiles all that it imports, for seconds.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not hasattr(config, "workerinput"):
        postgres.begin_run()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres.end_run()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SERVERS in os.environ:
        for item in items:
            if reason := next((mark.args[0] for mark in item.iter_markers("one_process")), None):
                item.add_marker(pytest.mark.skip(f"several servers: {reason}"))


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of an empty schema in a real PostgreSQL."""
    with postgres.fresh_schema(postgres.of_this_run().url()) as url:
        yield url
