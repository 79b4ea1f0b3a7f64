"""The server under test, with other limits for its MCP servers than users have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mochi_server.container import Components
from mochi_server.mcp.limits import McpLimits
from mochi_server.util.schema_checks import SchemaChecks
from tests.support import fork_server
from tests.support.server import RunningServer

PATIENT = McpLimits(start_seconds=15)
"""Limits with a longer wait for the start of MCP servers, because processes start slowly on a busy
machine.

The wait is shorter than clients of tests wait for a response.
"""


def forked_checks(**limits: Any) -> SchemaChecks:
    """Return checks in one process, because each process imports its libraries.

    Fork it, because that is faster.

    The fork server starts before the MCP servers, because its imports take longer than some tests
    wait for a server.
    """
    if not fork_server.AVAILABLE:
        return SchemaChecks(max_workers=1, **limits)
    from tests.support import schema_worker
    from tests.support.process import shared_fork_server

    shared_fork_server()
    return SchemaChecks(max_workers=1, start=schema_worker.start, **limits)


class PatientServer(RunningServer):
    """The app on a real socket, with limits and schema checks for tests of MCP servers."""

    def __init__(
        self,
        data_dir: Path,
        ollama_host: str,
        *,
        limits: McpLimits = PATIENT,
        schema_checks: Callable[[], SchemaChecks] = forked_checks,
        **settings: Any,
    ) -> None:
        components = Components(mcp=limits, schema_checks=schema_checks)
        super().__init__(data_dir, ollama_host, components, **settings)
