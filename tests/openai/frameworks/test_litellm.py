"""LiteLLM, with its provider for OpenAI-compatible servers."""

from __future__ import annotations

import json
import time
from typing import Any

import litellm
import openai
import pytest
from pydantic import BaseModel

from mochi_stub import StubServer
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import LOOK

pytestmark = pytest.mark.slow

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


class City(BaseModel):
    name: str
    people: int


class Client:
    def __init__(self, server: RunningServer) -> None:
        self._fields = {"api_base": f"{server.url}/v1", "api_key": "any", "num_retries": 0}

    def complete(
        self, *messages: Any, model: str = "mochi", stream: bool = False, **fields: Any
    ) -> Any:
        """Return the answer. A streamed answer is assembled from its chunks by the library."""
        request = {"model": f"openai/{model}", "messages": list(messages), **self._fields, **fields}
        if not stream:
            return litellm.completion(**request)
        chunks = list(
            litellm.completion(stream=True, stream_options={"include_usage": True}, **request)
        )
        assert len(chunks) > 1
        answer: Any = litellm.stream_chunk_builder(chunks, messages=list(messages))
        # The library takes the reason of the last chunk, which contains only the token counts.
        reasons = [reason for chunk in chunks if (reason := chunk.choices[0].finish_reason)]
        (answer.choices[0].finish_reason,) = reasons
        return answer

    def embed(self, *texts: str, model: str = "mochi-embed") -> Any:
        return litellm.embedding(model=f"openai/{model}", input=list(texts), **self._fields)

    def respond(self, text: str, **fields: Any) -> Any:
        return litellm.responses(model="openai/mochi", input=text, **self._fields, **fields)


@pytest.fixture
def client(server: RunningServer) -> Client:
    return Client(server)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@STREAMED
def test_answer_has_text_and_tokens(client: Client, stream: bool) -> None:
    answer = client.complete(
        {"role": "system", "content": "Be kind."}, user("Hello!"), stream=stream
    )
    assert answer.choices[0].message.content.endswith("Hello!")
    assert answer.choices[0].finish_reason == "stop"
    assert (
        answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    )


@STREAMED
def test_reasoning_is_separate(client: Client, stream: bool) -> None:
    message = (
        client.complete(user(instruct(words(3), reasoning=4)), stream=stream).choices[0].message
    )
    assert message.reasoning_content
    assert message.reasoning_content not in message.content


@STREAMED
def test_three_turns_with_a_tool(client: Client, stub: StubServer, stream: bool) -> None:
    messages: list[Any] = []
    for _ in range(3):
        messages.append(user(instruct(calls("look", at="sky"), words(3))))
        answer = client.complete(*messages, tools=[LOOK], stream=stream).choices[0]
        (call,) = answer.message.tool_calls
        assert answer.finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"at": "sky"})
        messages += [answer.message, {"role": "tool", "tool_call_id": call.id, "content": "blue"}]
        answer = client.complete(*messages, tools=[LOOK], stream=stream).choices[0]
        assert answer.message.content
        messages.append(answer.message)
    sent = chats(stub)[-1].body
    assert [message["role"] for message in sent["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 2 + [*("user", "assistant", "tool")]


@STREAMED
def test_structured_answer(client: Client, stream: bool) -> None:
    answer = client.complete(user("Name a city."), response_format=City, stream=stream)
    City.model_validate_json(answer.choices[0].message.content)


def test_embeddings(client: Client) -> None:
    answer = client.embed("one", "two")
    assert [len(item["embedding"]) for item in answer.data] == [768, 768]
    assert answer.usage.prompt_tokens > 0


def test_responses_api(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client.respond("Hello!")
    assert answer.output[-1].content[0].text.endswith("Hello!")

    # The library requests a stream only for models whose capabilities it knows.
    capabilities = {"litellm_provider": "openai", "mode": "chat", "supports_native_streaming": True}
    monkeypatch.setitem(litellm.model_cost, "openai/mochi", capabilities)
    *events, last = client.respond("Hello!", stream=True)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert last.type == "response.completed"
    assert last.response.output[-1].content[0].text == "".join(deltas)


@STREAMED
@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("nowhere", litellm.NotFoundError),
        ("failing", litellm.BadGatewayError),
        ("rate-limited", litellm.RateLimitError),
    ],
)
def test_errors_have_the_class_of_their_status(
    client: Client, stream: bool, model: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.complete(user("Hello!"), model=model, stream=stream)


def test_error_within_a_stream_is_raised(client: Client) -> None:
    with pytest.raises(openai.APIError, match="Rate limit exceeded"):
        client.complete(user("Hello!"), model="rate-limited-midway", stream=True)


def test_unknown_embedding_model_lists_those_that_exist(client: Client) -> None:
    with pytest.raises(
        litellm.NotFoundError, match="Choose one of the embedding models: mochi-embed"
    ):
        client.embed("one", model="nowhere")


@pytest.mark.parametrize(
    ("status", "stream"), [(429, False), (503, True)], ids=["whole", "streamed"]
)
def test_overload_is_retried(client: Client, status: int, stream: bool) -> None:
    began = time.monotonic()
    text = f"Busy {status}: LiteLLM, {stream=}"
    answer = client.complete(user(text), stream=stream, num_retries=1)
    assert answer.choices[0].message.content.endswith(text)
    assert time.monotonic() - began >= 1
