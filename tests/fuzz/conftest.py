"""One server for all requests: test mode, in a process of its own, with its log in a file."""

from collections.abc import Iterator

import pytest

from tests.fuzz.server import LoggedServer
from tests.fuzz.world import World
from tests.support.api import Api


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The server and what exists on it; its log must tell of no defect in the end."""
    data_dir = tmp_path_factory.mktemp("fuzz")
    World.furnish(data_dir)
    with LoggedServer(data_dir) as server:
        api = Api(server.url)
        yield World(data_dir, api)
        api.http.close()
    complaints = server.complaints()
    assert not complaints, "\n".join(complaints)
