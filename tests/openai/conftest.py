"""Server with a read-only and a writing tool and an agent, and the official client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mochi_stub import StubServer
from tests.openai.busy_ollama import BusyOnce
from tests.openai.conversation import Conversation, client_of
from tests.support.agents import write_agent
from tests.support.server import RunningServer
from tests.support.tools import write_tools

if TYPE_CHECKING:
    import openai

TOOLS = '''
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    def note(text: str) -> str:
        """Write a note."""
        return "Noted."

    __all__ = ["add", "note"]
    __read_only__ = ["add"]
'''


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("data")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    return data_dir


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=BusyOnce().resolve) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(stub: StubServer, data_dir: Path) -> Iterator[RunningServer]:
    with RunningServer(data_dir, stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


@pytest.fixture
def conversation(client: openai.OpenAI, stub: StubServer) -> Conversation:
    return Conversation(client, stub)
