"""Synchronous and asynchronous clients with the same interface."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import certifi
import pytest

from mochi_server.client import MochiClient
from tests.support.server import RunningServer

Connect = Callable[..., AbstractContextManager[MochiClient]]


@pytest.fixture(scope="session", autouse=True)
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load one certificate instead of a hundred, which takes 20 ms for each client. No connection is encrypted."""
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(first + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(file))
        yield


@pytest.fixture
def connect() -> Connect:
    """A factory of clients for an address, without delays between retries."""
    return partial(MochiClient, delays=(0, 0, 0))


@pytest.fixture
def client(connect: Connect, server: RunningServer) -> Iterator[MochiClient]:
    """A client of the shared server."""
    with connect(server.url) as client:
        yield client


@pytest.fixture
def private_client(connect: Connect, private_server: RunningServer) -> Iterator[MochiClient]:
    """A client of a server without sessions."""
    with connect(private_server.url) as client:
        yield client
