"""A stub that does not wait, shared by the tests that only ask it something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mochi_stub import StubServer


@pytest.fixture(scope="package")
def shared() -> Iterator[StubServer]:
    with StubServer(speed=0) as server:
        yield server


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as server:
        yield server
