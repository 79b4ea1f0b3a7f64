"""Servers in front of several stubs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.models.scheduler import Machine
from tests.support.server import RunningServer

Start = Callable[..., RunningServer]


@pytest.fixture
def stubs() -> Iterator[list[StubServer]]:
    """Two stubs with one slot for each model."""
    with (
        StubServer(speed=0, machine=Machine(parallel=1)) as one,
        StubServer(speed=0, machine=Machine(parallel=1)) as two,
    ):
        yield [one, two]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a server in front of hosts, given as stubs or as URLs."""
    with ExitStack() as stack:
        number = 0

        def start_server(*hosts: StubServer | str, **settings: Any) -> RunningServer:
            nonlocal number
            number += 1
            urls = [host if isinstance(host, str) else host.url for host in hosts]
            settings = {"ollama_hosts": urls, "summarization_interval_seconds": 3600, **settings}
            host = settings.pop("ollama_host", "http://127.0.0.1:1")
            server = RunningServer(
                settings.pop("data_dir", tmp_path / str(number)), host, **settings
            )
            return stack.enter_context(server)

        yield start_server
