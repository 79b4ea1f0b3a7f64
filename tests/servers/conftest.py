"""Two server processes with one database and a client of each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.cluster import Member
from tests.support.holding import GatedStub

Start = Callable[..., Member]


@pytest.fixture
def start(holding: GatedStub, database: str, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(ollama_host: str = holding.stub.url, **settings: Any) -> Member:
            member = Member(str(tmp_path), ollama_host, **{"store_url": database, **settings})
            stack.callback(member.kill)
            return member

        yield started


@pytest.fixture
def servers(start: Start) -> tuple[Member, Member]:
    return start(), start()


@pytest.fixture
def a(servers: tuple[Member, Member]) -> Iterator[Api]:
    with Api(servers[0].url) as api:
        yield api


@pytest.fixture
def b(servers: tuple[Member, Member]) -> Iterator[Api]:
    with Api(servers[1].url) as api:
        yield api
