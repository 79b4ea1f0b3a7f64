"""Settings for all tests of MCP servers."""

import pytest

from mochi_server.mcp import servers


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for MCP servers than users do, because processes start slowly on a busy machine."""
    monkeypatch.setattr(servers, "START_TIMEOUT_SECONDS", 30)
