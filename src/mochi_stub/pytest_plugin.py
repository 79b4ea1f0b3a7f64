"""Pytest fixture `mochi_stub`. Imports are delayed until a test uses it, because every test run loads this module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mochi_stub.server import ScriptedStub


@pytest.fixture
def mochi_stub() -> Iterator[ScriptedStub]:
    """Start a stub server on a free port, without delays. Each test gets its own."""
    from mochi_stub.server import ScriptedStub  # noqa: PLC0415 - only tests that use the fixture load the server

    stub = ScriptedStub()
    with stub:
        yield stub
