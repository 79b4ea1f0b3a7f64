"""Fixtures on real sockets: a stub Ollama, the server in front of it, and a client of the server.

`stub`, `server` and `api` are shared by all tests of a worker: sessions of different tests have
different ids, and the stub's journal is empty when a test begins. A test that changes settings,
reads the data directory, stops the server or depends on an empty store takes `private_stub`,
`private_server` and `private_api`, whose data directory is `tmp_path`.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import certifi
import pytest
from _pytest.unraisableexception import gc_collect_iterations_key

from tests.support import postgres

# Coverage traces what runs in a child between fork and exec. If another thread holds coverage's lock
# at the fork, such a child would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=partial(sys.settrace, None))

if (
    TYPE_CHECKING
):  # imported by the fixtures: the process that only distributes the tests needs none of it
    from mochi_stub import StubServer
    from tests.support.api import Api
    from tests.support.holding import GatedStub
    from tests.support.server import RunningServer

SERVERS = "MOCHI_TEST_SERVERS"
FOR_SERVERS = "two_servers"
"""The mark of the tests that run if `SERVERS` is set."""

FIRST_TIER = "not slow"
"""Expression of marks that selects the first tier, as in `pyproject.toml`."""

END = "-----END CERTIFICATE-----\n"

ALL_SLOW = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.slow", re.MULTILINE)

SOME_SLOW = re.compile(r"mark\.slow|mark\.nightly|@repeated|\bdatabase\b|\bstore: ")
"""What makes a test slow: a mark, or a decorator or fixture that has it."""

MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - pytest makes a folder of its own in it


@pytest.fixture(scope="session", autouse=True)
def one_certificate(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[None]:
    """Let HTTP clients of the first tier trust one certificate authority.

    Reading all takes 30 ms for each client.
    """
    with pytest.MonkeyPatch.context() as patch:
        if (
            pytestconfig.option.markexpr == FIRST_TIER
        ):  # the second tier also connects to real servers
            file = tmp_path_factory.mktemp("certificates") / "one.pem"
            file.write_text(Path(certifi.where()).read_text().partition(END)[0] + END)
            patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session")
def shared_stub() -> Iterator[StubServer]:
    """The stub of this worker. Tests take `stub`."""
    from mochi_stub import StubServer

    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="session")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """The server of this worker, with default settings. Tests take `server` or `api`."""
    from tests.support.server import RunningServer

    # A summary of one test would appear in the journal of another.
    quiet = {"summarization_interval_seconds": 3600}
    with RunningServer(tmp_path_factory.mktemp("shared"), shared_stub.url, **quiet) as server:
        yield server


@pytest.fixture
def stub(shared_stub: StubServer) -> Iterator[StubServer]:
    """The worker's stub with an empty journal. Fails the test if a prompt was truncated."""
    from tests.support.stub import assert_no_prompt_truncated

    shared_stub.clear_exchanges()
    yield shared_stub
    assert_no_prompt_truncated(shared_stub)


@pytest.fixture
def server(stub: StubServer, shared_server: RunningServer) -> RunningServer:
    """The worker's server, in front of `stub`."""
    return shared_server


@pytest.fixture
def api(stub: StubServer, shared_server: RunningServer) -> Api:
    """A client of `server`."""
    return shared_server.client


@pytest.fixture
def private_stub() -> Iterator[StubServer]:
    """A stub for one test. Fails the test if a prompt was truncated."""
    from mochi_stub import StubServer
    from tests.support.stub import assert_no_prompt_truncated

    with StubServer(speed=0) as stub:
        yield stub
        assert_no_prompt_truncated(stub)


@pytest.fixture
def private_server(private_stub: StubServer, tmp_path: Path) -> Iterator[RunningServer]:
    """A server for one test, in front of `private_stub`, with `tmp_path` as its data directory."""
    from tests.support.server import RunningServer

    # A summary changes the order of sessions, whenever a test takes longer than the default
    # interval.
    with RunningServer(tmp_path, private_stub.url, summarization_interval_seconds=3600) as server:
        yield server


@pytest.fixture
def private_api(private_server: RunningServer) -> Api:
    """A client of `private_server`."""
    return private_server.api()


@pytest.fixture
def holding() -> Iterator[GatedStub]:
    """A stub that pauses its answers, for modules whose `private_stub` is `holding.stub`."""
    from tests.support.holding import GatedStub

    holding = GatedStub()
    with holding.stub:
        yield holding
        holding.gate.open()


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of an empty schema in a real PostgreSQL."""
    with postgres.fresh_schema(postgres.shared_instance().url()) as url:
        yield url


def pytest_configure(config: pytest.Config) -> None:
    """Start what all workers share."""
    # Variables of the developer that change the behaviour under test. Without compiled files, each
    # process that the tests start would compile its imports for seconds, and so would this one.
    sys.dont_write_bytecode = False
    for name in (
        "OLLAMA_API_KEY",
        "OLLAMA_HOST",
        "PORT",
        "HTTP_PROXY",
        "http_proxy",
        "PYTHONDONTWRITEBYTECODE",
    ):
        os.environ.pop(name, None)
    # Temporary files in memory: the server syncs each session to the disk.
    if os.access(MEMORY_FOLDER, os.W_OK):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY_FOLDER)
    config.stash[gc_collect_iterations_key] = 1  # of garbage collections at the end
    if not hasattr(config, "workerinput"):
        postgres.begin_run()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files whose tests would all be deselected: importing them takes long.

    These are the files without the mark if there are several servers, in the first tier those whose
    tests are all `slow`, and in the second tier those that have no such test.
    """
    if not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8")
    if SERVERS in os.environ and f"mark.{FOR_SERVERS}" not in text:
        return True
    if config.option.markexpr == FIRST_TIER:
        return ALL_SLOW.search(text) is not None or None
    if config.option.markexpr.startswith("slow"):
        return SOME_SLOW.search(text) is None or None
    return None


def pytest_collection() -> None:
    """Collect no garbage during collection, which makes little of it and many objects that stay."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt what collection made from garbage collection, which otherwise visits it over and over.

    With Python's default thresholds, garbage collection would take 6 % of the CPU time. If tests
    fork servers, let the process from which they fork import the server: it has one list of
    modules, and collection may have set another.
    """
    if SERVERS in os.environ or session.config.option.markexpr != FIRST_TIER:
        from tests.support import cluster

        cluster.preload()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect the garbage of the tests once.

    Each later collection would take a second to visit what remains.
    """
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers for `-n auto`, or 0 for one file, which one worker would run.

    Tests of the first tier wait for a fifth of their time. One worker more than there are cores
    uses this time; it costs 2 % of the CPU time, because each worker imports and collects. The
    tests of the second tier wait more often.
    """
    if len(config.args) == 1 and config.args[0].partition("::")[0].endswith(".py"):
        return 0  # without the start of a second interpreter and its imports
    cores = os.cpu_count() or 1
    return cores * 3 // 2 if config.option.markexpr.startswith("slow") else cores + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler for the first tier that gives all files that need an expensive library to
    one worker.
    """
    if config.option.dist != "loadfile" or config.option.markexpr != FIRST_TIER:
        return None
    from tests.support.scheduling import LibraryScheduling

    return LibraryScheduling(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what all workers share."""
    if not hasattr(config, "workerinput"):
        postgres.end_run()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move tests that need PostgreSQL or long to the second tier.

    With several servers, keep the tests for them.
    """
    for item in items:
        needs_database = isinstance(item, pytest.Function) and "database" in item.fixturenames
        if needs_database or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)
    assert_found_by_text(items)
    if SERVERS in os.environ:
        others = [item for item in items if item.get_closest_marker(FOR_SERVERS) is None]
        items[:] = [item for item in items if item.get_closest_marker(FOR_SERVERS) is not None]
        config.hook.pytest_deselected(items=others)
    if len({item.nodeid for item in items}) < len(items):
        raise pytest.UsageError(
            "Two tests have the same ID, so that xdist would run only one of them."
        )


def assert_found_by_text(items: list[pytest.Item]) -> None:
    """Raise if the second tier would leave out the file of a slow test."""
    files = {item.path for item in items if item.get_closest_marker("slow") is not None}
    for file in files:
        if SOME_SLOW.search(file.read_text("utf-8")) is None:
            raise pytest.UsageError(f"{file} has a slow test that SOME_SLOW does not find.")
