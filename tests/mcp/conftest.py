"""Settings for all tests of MCP servers."""

import pytest

from mochi_server.mcp import servers
from mochi_server.util import schema_checks
from tests.support import fork_server


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for MCP servers than users do, because processes start slowly on a busy machine."""
    monkeypatch.setattr(servers, "START_TIMEOUT_SECONDS", 30)


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check schemas in one process for each server, because each process imports its libraries."""
    monkeypatch.setattr(schema_checks, "MAX_WORKERS", 1)


@pytest.fixture(autouse=True)
def forked_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the process for checks instead of starting it, where the process itself is not the subject of the test."""
    if fork_server.AVAILABLE:
        from tests.support import schema_worker

        monkeypatch.setattr(schema_checks.SchemaChecks, "_start", schema_worker.start)
