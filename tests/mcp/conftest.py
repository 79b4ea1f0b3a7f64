"""Settings for all tests of MCP servers."""

from collections.abc import Iterator

import pytest

from mochi_server.mcp import servers, tool_mapping


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for MCP servers than users do, because processes start slowly on a busy machine."""
    monkeypatch.setattr(servers, "START_TIMEOUT_SECONDS", 30)


@pytest.fixture(autouse=True, scope="module")
def one_checker() -> Iterator[None]:
    """Start one process for checks in each server, and not two, because each imports its library anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tool_mapping, "MAX_WORKERS", 1)
        yield
