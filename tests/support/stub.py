"""Helpers for the stub that tests share."""

from mochi_stub import Exchange, StubServer


def assert_no_prompt_truncated(stub: StubServer) -> None:
    """Fail if the stub truncated a prompt, as Ollama silently does."""
    cut = [exchange.path for exchange in stub.exchanges() if exchange.truncated]
    assert not cut, f"the stub truncated prompts: {cut}"


def latest_chat(stub: StubServer) -> Exchange:
    """Return the latest request for an answer. The server also requests lists of models at any time."""
    return next(exchange for exchange in reversed(stub.exchanges()) if exchange.path == "/api/chat")
