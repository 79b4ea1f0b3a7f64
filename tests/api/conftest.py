"""Servers that the tests of the HTTP API share.

Shared servers do not summarize sessions in the background: a summary would appear in the journal of
a later test. A test that makes the context window of a model larger takes a private stub and a
private server: all sessions of a server share the windows, and servers adopt the windows that the
stub has loaded. A module whose server needs settings or files of its own overrides `shared_stub`
and `shared_server` with module scope.
"""

from collections.abc import Iterator

import pytest

from mochi_stub import StubServer
from tests.support.holding import GatedStub
from tests.support.server import RunningServer
from tests.support.stub import assert_no_prompt_truncated

AN_HOUR = 3600
FIRST_WINDOW = 8192


@pytest.fixture(scope="session")
def shared_stub() -> Iterator[StubServer]:
    """The stub of this worker. Tests take `stub`."""
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="session")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The server of this worker. Tests take `server` or `api`."""
    data_dir = tmp_path_factory.mktemp("shared")
    with RunningServer(data_dir, shared_stub.url, summarization_interval_seconds=AN_HOUR) as server:
        yield server


@pytest.fixture
def stub(shared_stub: StubServer) -> Iterator[StubServer]:
    """The worker's stub with an empty journal.

    Fails the test if it made the window larger for later tests.
    """
    shared_stub.clear_exchanges()
    yield shared_stub
    assert_no_prompt_truncated(shared_stub)
    assert not [
        e.path
        for e in shared_stub.exchanges()
        if e.model == "mochi" and (e.num_ctx or 0) > FIRST_WINDOW
    ]


@pytest.fixture(scope="session")
def shared_holding() -> Iterator[GatedStub]:
    """The pausing stub of this worker. Tests take `holding`."""
    with (holding := GatedStub()).stub:
        yield holding


@pytest.fixture(scope="session")
def holding_server(
    shared_holding: GatedStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The server of this worker in front of `holding`."""
    data_dir = tmp_path_factory.mktemp("holding")
    with RunningServer(
        data_dir, shared_holding.stub.url, summarization_interval_seconds=AN_HOUR
    ) as server:
        yield server


@pytest.fixture
def holding(shared_holding: GatedStub) -> Iterator[GatedStub]:
    """The pausing stub, with a closed gate and an empty journal."""
    shared_holding.reset()
    yield shared_holding
    shared_holding.gate.open()
