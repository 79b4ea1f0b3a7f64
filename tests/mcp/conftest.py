"""Settings for all tests of MCP servers."""

import pytest

from mochi_server.mcp import servers
from mochi_server.util import schema_checks


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for MCP servers than users do, because processes start slowly on a busy machine."""
    monkeypatch.setattr(servers, "START_TIMEOUT_SECONDS", 30)


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check schemas in one process for each server, because each process imports its libraries."""
    monkeypatch.setattr(schema_checks, "MAX_WORKERS", 1)
