"""Synchronous and asynchronous clients with the same interface."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from mochi_server.client import MochiClient
from tests.support.server import RunningServer

Connect = Callable[..., AbstractContextManager[MochiClient]]


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
