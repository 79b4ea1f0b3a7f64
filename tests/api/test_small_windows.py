"""Compaction in small context windows: few requests, and no cut messages."""

import random
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest

from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt
from tests.support.api import Api, error_of
from tests.support.server import RunningServer
from tests.support.stub import ModelStub, chats

SMALL: dict[str, Any] = {"capabilities": ("completion",)}
INSTRUCTION = "Write a summary of the conversation so far"


def is_compaction(exchange: Exchange) -> bool:
    return str((exchange.body or {})["messages"][0]["content"]).startswith(INSTRUCTION)


def requests_of_each_compaction(exchanges: Sequence[Exchange]) -> list[int]:
    return [
        len(list(group)) for compacts, group in groupby(exchanges, key=is_compaction) if compacts
    ]


def resolve(prompt: Prompt) -> str:
    if prompt.messages[0].content.startswith(INSTRUCTION):
        return "They talked about facts. " * 100
    return "Fine, " + "I keep that in mind. " * (5 + 7 * (len(prompt.messages) % 5))


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server whose models are each of one test."""
    with RunningServer(
        tmp_path_factory.mktemp("small"), shared_stub.url, summarization_enabled=False
    ) as server:
        yield server


def compactions(
    api: Api, stub: ModelStub, model: str, messages: Sequence[str]
) -> tuple[list[int], list[str]]:
    """Return the number of requests of each compaction of a conversation, and the texts of these
    requests.
    """
    session_id = api.create_session(model, system_prompt="Be brief.")["session_id"]
    for message in messages:
        api.send_message(session_id, message)
    exchanges = chats(stub)
    assert {exchange.status for exchange in exchanges} == {200}
    texts = [
        str(m["content"])
        for each in exchanges
        if is_compaction(each)
        for m in (each.body or {})["messages"]
    ]
    return requests_of_each_compaction(exchanges), texts


@pytest.mark.parametrize(
    ("context_length", "limit", "chars_per_token", "turns"), [(1024, 2, 3, 8), (8192, 1, 4, 13)]
)
def test_compaction_needs_few_requests_and_cuts_no_message(
    api: Api, stub: ModelStub, *, context_length: int, limit: int, chars_per_token: int, turns: int
) -> None:
    model = stub.add_model(
        resolve, context_length=context_length, chars_per_token=chars_per_token, **SMALL
    )
    lengths = [
        (context_length * chars_per_token // 10) * (1 + turn % 3) // 2 for turn in range(turns)
    ]
    messages = [
        f"Fact {turn} is {turn * 7}. " + "word " * length for turn, length in enumerate(lengths)
    ]
    messages = [message[:length] for message, length in zip(messages, lengths, strict=True)]
    counts, texts = compactions(api, stub, model, messages)
    assert counts
    assert max(counts) <= limit, counts
    assert not any("[...]" in text for text in texts)


def test_compaction_of_long_messages_needs_two_requests_in_a_small_window(
    api: Api, stub: ModelStub
) -> None:
    chance = random.Random(1)

    def answer(prompt: Prompt) -> str:
        if prompt.messages[0].content.startswith(INSTRUCTION):
            return "They talked about facts. " * 100
        return "Fine, " + "I keep that in mind. " * chance.choice([10, 30, 40])

    model = stub.add_model(answer, context_length=1024, chars_per_token=3, **SMALL)
    lengths = [int(2763 * chance.choice([0.2, 0.3, 0.4])) for _ in range(7)]
    messages = [f"Fact {turn}. " + "word " * (length // 5) for turn, length in enumerate(lengths)]
    counts, texts = compactions(api, stub, model, messages)
    assert counts
    assert max(counts) <= 2, counts
    assert not any("[...]" in text for text in texts)


def test_compaction_of_text_with_one_token_per_character(api: Api, stub: ModelStub) -> None:
    def answer(prompt: Prompt) -> str:
        return (
            "They talked about facts. " * 100
            if prompt.messages[0].content.startswith(INSTRUCTION)
            else "Fine."
        )

    model = stub.add_model(answer, context_length=1024, chars_per_token=1, **SMALL)
    messages = [f"Fact {turn}. " + "word " * 80 for turn in range(8)]
    counts, texts = compactions(api, stub, model, messages)
    assert counts
    assert max(counts) <= 2, counts
    assert not any("[...]" in text for text in texts)


@pytest.mark.parametrize("share", [0.8, 0.88, 0.92, 1.5])
def test_chat_without_a_user_message_is_answered_or_refused(
    api: Api, server: RunningServer, stub: ModelStub, share: float
) -> None:
    model = stub.add_model(resolve, context_length=1024, chars_per_token=3, **SMALL)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = {
        "role": "assistant",
        "content": "word " * int(share * 1024 * 3 / 5),
        "tool_calls": [call],
    }
    messages = [asked, {"role": "tool", "tool_call_id": "c1", "content": "It is blue."}]
    response = api.http.post(
        f"{server.url}/v1/chat/completions", json={"model": model, "messages": messages}
    )
    if response.status_code != 200:
        assert (response.status_code, response.json()["error"]["code"]) == (
            400,
            "context_length_exceeded",
        )


def session_with_a_summary(api: Api, stub: ModelStub, summaries: Sequence[str]) -> str:
    """Return the ID of a session with a summary of its first turn and a long second turn."""
    replies = iter(summaries)

    def answer(prompt: Prompt) -> str:
        if prompt.messages[0].content.startswith(INSTRUCTION):
            return next(replies)
        return "Fine."

    model = stub.add_model(answer, context_length=8192, chars_per_token=4, **SMALL)
    session_id: str = api.create_session(model)["session_id"]
    for words in (5000, 900):
        api.send_message(session_id, "word " * words)
    assert [is_compaction(exchange) for exchange in chats(stub)] == [False, True, False]
    return session_id


def test_old_summary_that_is_too_long_for_a_smaller_window_is_shortened(
    api: Api, stub: ModelStub
) -> None:
    session_id = session_with_a_summary(api, stub, ["fact " * 1100])
    small = stub.add_model(resolve, context_length=1024, chars_per_token=3, **SMALL)
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": small}))
    assert api.send_message(session_id, "Hello.")["message"]["content"].startswith("Fine")
    assert {exchange.status for exchange in chats(stub)} == {200}
    requests = [exchange for exchange in chats(stub) if is_compaction(exchange)]
    text = (requests[1].body or {})["messages"][1]["content"]
    assert "fact fact" in text
    assert "[...]" in text


def test_empty_summary_ends_the_turn_and_replaces_nothing(api: Api, stub: ModelStub) -> None:
    summaries = ["They met in Oslo.", "", "", "They met in Rome."]
    session_id = session_with_a_summary(api, stub, summaries)
    response = api.http.post(f"/chat/{session_id}", json={"message": "word " * 5000})
    assert error_of(response) == (502, "OLLAMA_ERROR")
    api.send_message(session_id)
    requested, sent = chats(stub)[-2:]
    assert is_compaction(requested)
    assert "They met in Oslo." in str(requested.body)
    assert "word " * 900 in str(requested.body)
    assert "They met in Rome." in str(sent.body)


def test_empty_summary_is_requested_again(api: Api, stub: ModelStub) -> None:
    session_id = session_with_a_summary(api, stub, ["They met in Oslo.", "", "They met in Rome."])
    api.send_message(session_id, "word " * 5000)
    assert [is_compaction(exchange) for exchange in chats(stub)[3:]] == [True, True, False]
    assert "They met in Rome." in str(chats(stub)[-1].body)


@pytest.mark.parametrize("reasoning", ["<think>Hm.</think>\n", "Hm.\n</think>\n"])
def test_summary_has_no_reasoning(api: Api, stub: ModelStub, reasoning: str) -> None:
    session_with_a_summary(api, stub, [f"{reasoning}They met in Oslo."])
    sent = str(chats(stub)[-1].body)
    assert "They met in Oslo." in sent
    assert "Hm." not in sent


def test_reasoning_is_the_summary_of_a_model_that_only_reasons(api: Api, stub: ModelStub) -> None:
    """Its reasoning has reached the limit of tokens of a summary."""
    reasoning = "<think>They met in Rome, it"
    session_id = session_with_a_summary(api, stub, ["They met in Oslo.", reasoning, reasoning])
    api.send_message(session_id, "word " * 5000)
    assert [is_compaction(exchange) for exchange in chats(stub)[3:]] == [True, True, False]
    assert "They met in Rome, it" in str(chats(stub)[-1].body)
