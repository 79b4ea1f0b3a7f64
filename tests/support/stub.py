"""Helpers for the stub that tests share."""

from mochi_stub import Exchange, StubServer


def assert_no_prompt_truncated(stub: StubServer) -> None:
    """Fail if the stub truncated a prompt, as Ollama silently does."""
    cut = [exchange.path for exchange in stub.exchanges() if exchange.truncated]
    assert not cut, f"the stub truncated prompts: {cut}"


def chats(stub: StubServer) -> list[Exchange]:
    """Return the requests for answers. The server also requests lists of models at any time."""
    return [exchange for exchange in stub.exchanges() if exchange.path == "/api/chat"]
