"""The stub of the framework tests, with the packaged models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mochi_stub import StubServer
from tests.support.frameworks import benchmark, collect_ignore_glob, pytest_configure, vcr

__all__ = ["benchmark", "collect_ignore_glob", "packaged_stub", "pytest_configure", "vcr"]


@pytest.fixture(scope="package")
def packaged_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub
