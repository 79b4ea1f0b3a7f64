"""Server for coding agents, the replies of its model, and the computer on which the
programs run.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mochi_stub import Machine, Model, Prompt, StubServer, ToolCall
from mochi_stub.reply import Reply
from tests.coding_agents.programs import MODEL, SEEING_MODEL, Computer
from tests.support.server import RunningServer
from tests.support.stub import chats

Replies: TypeAlias = "list[str | ToolCall | Reply]"


class CodingStub(StubServer):
    """Stub with a model without `vision` and one with it, which send the next of `replies`
    and reuse cached prompts.

    Requests without tools, for example for a title, do not receive `replies`, unless
    `replies_need_tools` is false.
    """

    def __init__(self) -> None:
        self.replies: Replies = []
        self.replies_need_tools = True
        abilities = ("completion", "tools", "thinking")
        models = [
            Model(MODEL, abilities, context_length=262_144),
            Model(SEEING_MODEL, (*abilities, "vision"), context_length=262_144),
        ]
        super().__init__(
            models=models, machine=Machine(parallel=1), resolve=self._next_reply, speed=0
        )

    def _next_reply(self, prompt: Prompt) -> "str | ToolCall | Reply":
        if self.replies and (prompt.tools or not self.replies_need_tools):
            return self.replies.pop(0)
        return "Done."

    def prompt(self, number: int = -1) -> list[dict[str, Any]]:
        """Return the messages of a request to the model, by default of the latest."""
        messages: list[dict[str, Any]] = chats(self)[number].body["messages"]
        return messages


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[CodingStub]:
    with CodingStub() as stub:
        yield stub


@pytest.fixture
def stub(shared_stub: CodingStub) -> CodingStub:
    shared_stub.replies.clear()
    shared_stub.replies_need_tools = True
    return shared_stub


@pytest.fixture(scope="module")
def server(
    shared_stub: CodingStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with RunningServer(
        tmp_path_factory.mktemp("data"), shared_stub.url, summarization_enabled=False
    ) as server:
        yield server


@pytest.fixture
def computer(server: RunningServer, tmp_path: Path) -> Computer:
    return Computer(tmp_path, server.url)
