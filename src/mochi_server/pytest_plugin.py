"""Pytest plugin with the fixture `mochi_server`: a server on a free port that uses the stub of the
test as its LLM.

pytest loads the plugin in every test run, so the server is imported only when a test uses the
fixture.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mochi_server.testing import ThreadedServer


@pytest.fixture
def mochi_server_settings() -> dict[str, Any]:
    """Return the settings of the fixture `mochi_server`, by name.

    Override this fixture to change settings.
    """
    return {}


@pytest.fixture
def mochi_server(
    mochi_stub: Any, mochi_server_settings: dict[str, Any], tmp_path: Path
) -> "Iterator[ThreadedServer]":
    """Start a server for one test.

    The server uses `mochi_stub` as its LLM, and stores its data in `tmp_path`.
    """
    from mochi_server.testing import ThreadedServer  # noqa: PLC0415 - only tests that use the fixture load the server

    settings = {
        "data_dir": str(tmp_path / "mochi-server"),
        "ollama_host": mochi_stub.url,
        **mochi_server_settings,
    }
    with ThreadedServer(**settings) as server:
        yield server
