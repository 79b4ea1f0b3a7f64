"""Helpers for the stub that tests share."""

from typing import Any

from mochi_stub import Exchange, Model, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Scripted
from mochi_stub.server import Resolve


def assert_no_prompt_truncated(stub: StubServer) -> None:
    """Fail if the stub truncated a prompt, as Ollama silently does."""
    cut = [exchange.path for exchange in stub.exchanges() if exchange.truncated]
    assert not cut, f"the stub truncated prompts: {cut}"


def chats(stub: StubServer) -> list[Exchange]:
    """Return the requests for answers. The server also requests lists of models at any time."""
    return [exchange for exchange in stub.exchanges() if exchange.path == "/api/chat"]


class ModelStub(StubServer):
    """Stub for tests that share a server and add their own models, because sessions share the
    window of a model.
    """

    def __init__(self) -> None:
        self._added: list[Model] = []
        self._replies: dict[str, Resolve] = {}
        super().__init__(models=self._added, resolve=self._reply, speed=0)

    def add_model(self, reply: Resolve | None = None, **fields: Any) -> str:
        """Add a model with these fields and return its new name. `reply` returns its replies."""
        name = f"model-{len(self._added)}"
        usual: dict[str, Any] = {"capabilities": ("completion", "tools"), "context_length": 40_960}
        self._added.append(Model(name, **(usual | fields)))
        if reply:
            self._replies[name] = reply
        return name

    def _reply(self, prompt: Prompt) -> "Scripted | None":
        reply = self._replies.get(prompt.model.removesuffix(":latest"))
        return reply(prompt) if reply else None
