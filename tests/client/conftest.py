"""The two faces of the client."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from mochi_server.client import MochiClient
from tests.client.faces import blocking
from tests.support.server import RunningServer

Connect = Callable[..., AbstractContextManager[MochiClient]]


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """A client of an address, which does not wait before it tries again."""

    def made(url: str, **settings: Any) -> AbstractContextManager[MochiClient]:
        settings = {"delays": (0, 0, 0), **settings}
        return MochiClient(url, **settings) if request.param == "sync" else blocking(url, **settings)

    return made


@pytest.fixture
def client(connect: Connect, server: RunningServer) -> Iterator[MochiClient]:
    with connect(server.url) as client:
        yield client
