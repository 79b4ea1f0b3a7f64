"""Server with a read-only and a writing tool and an agent."""

from collections.abc import Iterator

import httpx
import pytest

from tests.openai.conftest import client, data_dir, server, stub  # noqa: F401 - fixtures
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:  # noqa: F811 - the fixture
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield http
