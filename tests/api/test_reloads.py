"""Tokens that a model evaluates again because a larger context window reloads it, over 60 turns.

A window that doubled when a prompt passed half of it, from 8,192 tokens on, evaluated 4,134 tokens
again in short, 12,300 in medium and 28,500 in long conversations.
"""

from pathlib import Path

import httpx
import pytest

from mochi_stub import Machine, Model, StubServer
from tests.support.server import RunningServer
from tests.support.stub import chats

pytestmark = pytest.mark.slow

TURNS = 60
CHARS_PER_TOKEN = 4
MODELS = [
    Model(name, ("completion",), context_length=40_960, chars_per_token=CHARS_PER_TOKEN)
    for name in ("a", "b")
]
KINDS = {"short": 78, "medium": 150, "long": 500}  # tokens of each turn, half of them in the answer


def words(number: int, tokens: int) -> str:
    return (f"Text {number}. " + "One word follows another. " * tokens)[
        : tokens * CHARS_PER_TOKEN // 2
    ]


def measure(tokens: int, default_window: int | None, directory: Path) -> tuple[int, int]:
    """Return the number of reloads, and the number of tokens that they evaluate again.

    If ``default_window`` is set, another program has loaded a model of the same size, and Ollama
    chose this window.
    """
    machine = Machine(parallel=1, context_length=default_window, max_loaded_models=2)
    with (
        StubServer(
            models=MODELS,
            speed=0,
            machine=machine,
            resolve=lambda prompt: words(len(prompt.messages), tokens),
        ) as stub,
        RunningServer(directory, stub.url, summarization_enabled=False) as server,
    ):
        if default_window:
            body = {"model": "b", "messages": [{"role": "user", "content": "Hi!"}], "stream": False}
            httpx.post(f"{stub.url}/api/chat", json=body).raise_for_status()
        api = server.api()
        session_id = api.create_session("a")["session_id"]
        usage = [
            api.send_message(session_id, words(turn, tokens))["context_window"]["usage_tokens"]
            for turn in range(TURNS)
        ]
        exchanges = [exchange for exchange in chats(stub) if (exchange.body or {})["model"] == "a"]
    assert not any(exchange.truncated for exchange in exchanges)
    assert [exchange.status for exchange in exchanges] == [200] * TURNS
    reloads = [turn for turn, exchange in enumerate(exchanges) if exchange.reload]
    return len(reloads), sum(usage[turn - 1] for turn in reloads)


@pytest.mark.parametrize("default_window", [None, 32_768])
def test_reloads_of_conversations_evaluate_few_tokens_again(
    tmp_path: Path, default_window: int | None
) -> None:
    again = {
        kind: measure(tokens, default_window, tmp_path / kind) for kind, tokens in KINDS.items()
    }
    if default_window is None:
        assert again == {"short": (0, 0), "medium": (1, 5400), "long": (3, 38_500)}
    else:
        assert again == {"short": (0, 0), "medium": (0, 0), "long": (1, 22_000)}
