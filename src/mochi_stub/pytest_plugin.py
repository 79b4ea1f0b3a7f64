"""The pytest fixture `mochi_stub`. Every test run loads this file, so it imports nothing until the fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mochi_stub.server import ScriptedStub


@pytest.fixture
def mochi_stub() -> Iterator[ScriptedStub]:
    """A deterministic LLM server on a free port, new for each test, that does not wait."""
    from mochi_stub.server import ScriptedStub  # noqa: PLC0415 - only tests that use the fixture load the server

    stub = ScriptedStub()
    with stub:
        yield stub
