"""Pytest plugin with the fixture `mochi_stub`.

It loads in every test run, so only the fixture imports the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mochi_stub.server import ScriptedStub


@pytest.fixture
def mochi_stub() -> Iterator[ScriptedStub]:
    """Start a stub server for one test, on a free port and without delays.

    The test fails if it sends more requests than it has scripted replies.
    """
    from mochi_stub.server import ScriptedStub  # noqa: PLC0415 - only tests that use the fixture load the server

    with ScriptedStub() as stub:
        yield stub
    if stub.unscripted:
        number = len(stub.unscripted)
        pytest.fail(
            f"Requests without a scripted reply: {number}. The first one has the message "
            f"{stub.unscripted[0][:100]!r}. Script a reply for each request.",
            pytrace=False,
        )
