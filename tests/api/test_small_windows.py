"""Compaction in small context windows: few requests, and no cut messages."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

from mochi_stub import Model, StubServer
from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt
from tests.support.server import RunningServer
from tests.support.stub import chats

INSTRUCTION = "Write a summary of the conversation so far"


def is_compaction(exchange: Exchange) -> bool:
    return str((exchange.body or {})["messages"][0]["content"]).startswith(INSTRUCTION)


def requests_of_each_compaction(exchanges: Sequence[Exchange]) -> list[int]:
    return [len(list(group)) for compacts, group in groupby(exchanges, key=is_compaction) if compacts]


def resolve(prompt: Prompt) -> str:
    if prompt.messages[0].content.startswith(INSTRUCTION):
        return "They talked about facts. " * 100
    return "Fine, " + "I keep that in mind. " * (5 + 7 * (len(prompt.messages) % 5))


@pytest.mark.one_process("each server has its own windows")
@pytest.mark.parametrize("chars_per_token", [3, 4])
@pytest.mark.parametrize(("context_length", "limit"), [(1024, 2), (2048, 2), (4096, 2), (8192, 1)])
def test_compaction_needs_few_requests_and_cuts_no_message(
    tmp_path: Path, context_length: int, limit: int, chars_per_token: int
) -> None:
    model = Model("small", ("completion",), context_length=context_length, chars_per_token=chars_per_token)
    with (
        StubServer(models=[model], speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session("small", system_prompt="Be brief.")["session_id"]
        for turn in range(30):
            length = (context_length * chars_per_token // 10) * (1 + turn % 3) // 2
            api.send_message(session_id, (f"Fact {turn} is {turn * 7}. " + "word " * length)[:length])
        exchanges = chats(stub)
    counts = requests_of_each_compaction(exchanges)
    assert counts
    assert max(counts) <= limit, counts
    texts = [str(m["content"]) for each in exchanges if is_compaction(each) for m in (each.body or {})["messages"]]
    assert not any("[...]" in text for text in texts)
    assert {exchange.status for exchange in exchanges} == {200}
