"""Server with a read-only tool, a writing tool and an agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.frontends.chats import Frontend
from tests.support.agents import write_agent
from tests.support.api import Api
from tests.support.server import RunningServer
from tests.support.tools import write_tools

TOOLS = '''
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    def note(text: str) -> str:
        """Write a note."""
        return f"Noted: {text}"

    __all__ = ["add", "note"]
    __read_only__ = ["add"]
'''


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("data")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir, "librarian")
    return data_dir


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(stub: StubServer, data_dir: Path) -> Iterator[RunningServer]:
    with RunningServer(data_dir, stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


@pytest.fixture
def session(api: Api) -> str:
    """A session whose tool `note` needs approval."""
    tools = {"tools": ["add", "note"], "execution_policy": "confirm_destructive"}
    return str(api.create_session("mochi", tool_settings=tools)["session_id"])


@pytest.fixture
def frontend(api: Api, session: str) -> Frontend:
    return Frontend(api, session)
