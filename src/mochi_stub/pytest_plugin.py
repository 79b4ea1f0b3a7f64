"""Pytest plugin with the fixture `mochi_stub`.

pytest loads the plugin in every test run, so the server is imported only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mochi_stub.server import ScriptedStub


@pytest.fixture
def mochi_stub() -> Iterator[ScriptedStub]:
    """Start a stub server for one test, on a free port and without delays."""
    from mochi_stub.server import ScriptedStub  # noqa: PLC0415 - only tests that use the fixture load the server

    stub = ScriptedStub()
    with stub:
        yield stub
