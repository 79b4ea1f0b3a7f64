"""The official Ollama client, sync and async, against the stub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import Failure, Reply, StubServer, Text
from mochi_stub.replies import hash_sized
from tests.support.cases import cases
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import ollama
else:
    ollama = LazyModule("ollama")


HELLO = [{"role": "user", "content": "hello"}]
ANSWER = f"{hash_sized('hello')} hello"


@contextmanager
def open_client(stub: StubServer) -> Iterator[ollama.Client]:
    client = ollama.Client(stub.url)
    try:
        yield client
    finally:
        client._client.close()


@pytest.fixture(scope="module")
def client(shared_stub: StubServer) -> Iterator[ollama.Client]:
    with open_client(shared_stub) as client:
        yield client


@pytest.fixture
async def async_client(stub: StubServer) -> AsyncIterator[ollama.AsyncClient]:
    client = ollama.AsyncClient(stub.url)
    yield client
    await client._client.aclose()


def test_models_are_listed_newest_first(client: ollama.Client) -> None:
    models = client.list().models
    assert [model.model for model in models][:2] == ["mochi:latest", "mochi-chat:latest"]
    moments = [model.modified_at for model in models if model.modified_at]
    assert moments == sorted(moments, reverse=True)
    assert len(moments) == len(models)
    assert all(model.details and model.size and model.digest for model in models)


@cases(
    ("name", "capabilities", "length"),
    [
        ("mochi", ["completion", "tools", "thinking"], 40960),
        ("mochi-chat", ["completion"], 8192),
        ("mochi-long:latest", ["completion", "tools"], 131072),
        ("mochi-native:4b", ["tools", "thinking", "completion"], 32768),
        ("mochi-embed", ["embedding"], 2048),
    ],
)
def test_model_capabilities_are_shown(
    client: ollama.Client, name: str, capabilities: list[str], length: int
) -> None:
    shown = client.show(name)
    assert shown.capabilities == capabilities
    assert shown.modelinfo
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == length


def test_chat_works_whole_and_streamed(client: ollama.Client) -> None:
    whole = client.chat("mochi", HELLO)
    pieces = list(client.chat("mochi", HELLO, stream=True))
    assert (
        whole.message.content == "".join(piece.message.content or "" for piece in pieces) == ANSWER
    )
    assert whole.eval_count == pieces[-1].eval_count == len(ANSWER)
    assert whole.done_reason == pieces[-1].done_reason == "stop"


def test_generate_works_whole_and_streamed(client: ollama.Client) -> None:
    whole = client.generate("mochi", "hello")
    assert whole.response == "".join(
        piece.response or "" for piece in client.generate("mochi", "hello", stream=True)
    )
    assert whole.response == ANSWER
    assert whole.context == [ord(character) for character in f"hello{ANSWER}"]


def test_generate_continues_from_an_earlier_context(client: ollama.Client) -> None:
    first = client.generate("mochi", "hello")
    second = client.generate("mochi", "more", context=first.context)
    assert first.context
    assert second.context
    assert list(second.context[: len(first.context)]) == list(first.context)
    assert second.prompt_eval_count == len(first.context) + len("more")


def test_embeddings_of_similar_texts_are_similar(client: ollama.Client) -> None:
    texts = ["the cat sat on the mat", "a cat is sitting on the mat", "quarterly revenue grew"]
    cat, same, other = client.embed("mochi-embed", texts).embeddings
    assert len(cat) == 768
    assert sum(value * value for value in cat) == pytest.approx(1, abs=1e-5)
    assert (
        sum(a * b for a, b in zip(cat, same, strict=True))
        > sum(a * b for a, b in zip(cat, other, strict=True)) + 0.2
    )


def test_embeddings_can_be_shortened(client: ollama.Client) -> None:
    (vector,) = client.embed("mochi-embed", "hello", dimensions=16).embeddings
    assert len(vector) == 16
    assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)


def test_running_models_are_listed(private_stub: StubServer) -> None:
    with open_client(private_stub) as client:
        assert client.ps().models == []
        client.chat("mochi", HELLO)
        (running,) = client.ps().models
        assert (running.model, running.context_length) == ("mochi:latest", 4096)
        client.chat("mochi", HELLO, options={"num_ctx": 999_999}, keep_alive=-1)
        (running,) = client.ps().models
        assert running.context_length == 40960
        assert running.expires_at
        assert running.expires_at.year > 2300
        client.chat("mochi", [], keep_alive=0)
        assert client.ps().models == []


def test_errors_have_status_and_text(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match=r"^model 'nope' not found") as caught:
        client.chat("nope", HELLO)
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="does not support thinking"):
        list(client.chat("mochi-chat", HELLO, think=True, stream=True))


def test_error_in_mid_stream_is_raised_after_first_chunks() -> None:
    reply = Reply([Text(("one",)), Failure("kaput")])
    with StubServer(resolve=lambda _: reply, speed=0) as stub, open_client(stub) as client:
        stream = iter(client.chat("mochi", HELLO, stream=True))
        assert next(stream).message.content == "one"
        with pytest.raises(ollama.ResponseError, match="kaput"):
            next(stream)


async def test_async_client_supports_the_same_calls(async_client: ollama.AsyncClient) -> None:
    assert (await async_client.list()).models[0].model == "mochi:latest"
    assert (await async_client.show("mochi")).capabilities == ["completion", "tools", "thinking"]
    assert (await async_client.chat("mochi", HELLO)).message.content == ANSWER
    pieces = [piece async for piece in await async_client.chat("mochi", HELLO, stream=True)]
    assert "".join(piece.message.content or "" for piece in pieces) == ANSWER
    assert (await async_client.generate("mochi", "hello")).response == ANSWER
    assert len((await async_client.embed("mochi-embed", ["a", "b"])).embeddings) == 2
    with pytest.raises(ollama.ResponseError):
        await async_client.show("nope")


@pytest.mark.parametrize("number", [5, pytest.param(100, marks=pytest.mark.nightly)])
async def test_concurrent_streams_do_not_mix(async_client: ollama.AsyncClient, number: int) -> None:
    async def stream_message(text: str) -> None:
        stream = await async_client.chat("mochi", [{"role": "user", "content": text}], stream=True)
        answer = "".join([piece.message.content or "" async for piece in stream])
        assert answer == f"{hash_sized(text)} {text}"

    await asyncio.gather(*(stream_message(f"question {index}") for index in range(number)))


def test_tool_loop_ends(client: ollama.Client) -> None:
    plan = '<|instruction_start|>{"messages":[{"tool_call":[{"name":"now","args":{}}]}]}<|instruction_end|>'
    messages: list[Any] = [{"role": "user", "content": plan}]
    tools = [
        {
            "type": "function",
            "function": {"name": "now", "description": "", "parameters": {"type": "object"}},
        }
    ]
    first = client.chat("mochi", messages, tools=tools).message
    assert first.tool_calls
    messages += [first, {"role": "tool", "tool_name": "now", "content": "noon"}]
    last = client.chat("mochi", messages, tools=tools).message
    assert not last.tool_calls
    assert last.content == f"{hash_sized('noon')} noon"
