"""Settings for all tests of MCP servers. They have the scope of a module, so that they hold for servers of a module."""

from collections.abc import Iterator

import pytest

from mochi_server.mcp import servers
from mochi_server.util import schema_checks
from tests.support import fork_server
from tests.support.process import run


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """A patcher whose changes end with the module."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module", autouse=True)
def patient(patch: pytest.MonkeyPatch) -> None:
    """Wait longer for MCP servers than users do, but less than clients of tests wait for a response.

    Processes start slowly on a busy machine.
    """
    patch.setattr(servers, "START_TIMEOUT_SECONDS", 15)


@pytest.fixture(scope="module", autouse=True)
def one_worker(patch: pytest.MonkeyPatch) -> None:
    """Check schemas in one process for each server, because each process imports its libraries."""
    patch.setattr(schema_checks, "MAX_WORKERS", 1)


@pytest.fixture(scope="module", autouse=True)
def forked_worker(patch: pytest.MonkeyPatch) -> None:
    """Fork the process for checks instead of starting it, where the process itself is not the subject of the test."""
    if fork_server.AVAILABLE:
        from tests.support import schema_worker

        patch.setattr(schema_checks.SchemaChecks, "_start", schema_worker.start)


@pytest.fixture(scope="module")
def fork_server_is_ready(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the fork server before a server needs it.

    Its imports take seconds, and on a busy machine longer than the check of a schema may take.
    """
    if fork_server.AVAILABLE:
        run("mochi_server", "--version", cwd=tmp_path_factory.mktemp("ready"))
