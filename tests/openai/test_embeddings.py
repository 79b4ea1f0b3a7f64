"""Embeddings of the OpenAI-compatible API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:
    import openai


def embeds(stub: StubServer) -> list[Any]:
    return [exchange.body for exchange in stub.exchanges() if exchange.path == "/api/embed"]


@cases("encoding_format", [None, "float", "base64"])
def test_vectors_are_those_of_ollama(
    client: openai.OpenAI, stub: StubServer, encoding_format: Any
) -> None:
    """Without a format, the client requests base64 and decodes it."""
    texts = ["one", "two", "three"]
    asks = {"encoding_format": encoding_format} if encoding_format else {}
    answer = client.embeddings.create(model="mochi-embed", input=texts, **asks)
    expected = httpx.post(
        f"{stub.url}/api/embed", json={"model": "mochi-embed", "input": texts}
    ).json()
    vectors: list[Any] = [item.embedding for item in answer.data]
    assert [item.index for item in answer.data] == [0, 1, 2]
    if encoding_format == "base64":
        assert [type(vector) for vector in vectors] == [str] * 3
    else:
        assert vectors == [pytest.approx(vector, rel=1e-6) for vector in expected["embeddings"]]
    assert (answer.model, answer.object) == ("mochi-embed", "list")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == expected["prompt_eval_count"]


def test_request_of_continue(server: RunningServer) -> None:
    """Continue posts a list of texts with these fields, and reads `data[].embedding`."""
    body = {
        "input": ["def add(a, b):\n    return a + b"],
        "model": "mochi-embed",
        "encoding_format": "float",
    }
    response = httpx.post(
        f"{server.url}/v1/embeddings", json=body, headers={"Authorization": "Bearer any"}
    )
    assert [len(item["embedding"]) for item in response.json()["data"]] == [768]


def test_unknown_model_error_lists_embedding_models(client: openai.OpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="mochi-embd", input="one")
    assert caught.value.code == "model_not_found"
    message = str(caught.value.body["message"])
    assert message.startswith(
        "There is no embedding model 'mochi-embd'. Did you mean 'mochi-embed'? "
        "Choose one of the embedding models: mochi-embed"
    )
    assert "mochi-chat" not in message
    assert message.endswith("To install 'mochi-embd', run `ollama pull mochi-embd`.")


def test_model_without_embeddings_is_not_requested_again(
    client: openai.OpenAI, stub: StubServer
) -> None:
    import openai

    before = len(embeds(stub))
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="mochi", input="one")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert str(caught.value.body["message"]).startswith(
        "Model 'mochi' cannot compute embeddings. Choose one of the embedding models: mochi-embed"
    )
    assert len(embeds(stub)) == before + 1


def test_single_text_and_dimensions(client: openai.OpenAI, stub: StubServer) -> None:
    answer = client.embeddings.create(model="mochi-embed", input="one", dimensions=8, user="me")
    assert [len(item.embedding) for item in answer.data] == [8]
    assert embeds(stub)[-1] == {
        "model": "mochi-embed",
        "input": ["one"],
        "dimensions": 8,
        "truncate": False,
    }


def test_many_texts_are_sent_in_batches(client: openai.OpenAI, stub: StubServer) -> None:
    before = len(embeds(stub))
    answer = client.embeddings.create(
        model="mochi-embed", input=[f"text {i}" for i in range(130)], dimensions=2
    )
    assert [item.index for item in answer.data] == list(range(130))
    assert [len(body["input"]) for body in embeds(stub)[before:]] == [64, 64, 2]


def test_chat_model_keeps_its_context_window(client: openai.OpenAI, stub: StubServer) -> None:
    """Ollama reloads a model if a request has another window, or none."""
    client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "Hello!"}])
    client.embeddings.create(model="echo", input="one")
    chat = chats(stub)[-1].body
    assert embeds(stub)[-1]["options"] == {"num_ctx": chat["options"]["num_ctx"]}


@cases(
    ("asks", "status", "param"),
    [
        ({"model": "nowhere"}, 404, "model"),
        ({"model": "no model name"}, 404, "model"),
        ({"input": ""}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": ["a", ""]}, 400, "input[1]"),
        ({"input": [1, 2]}, 400, "input"),
        ({"input": [[1, 2]]}, 400, "input"),
        ({"input": ["a"] * 2049}, 400, "input"),
        ({"input": "x" * 200_000}, 400, "input"),
        ({"encoding_format": "int8"}, 400, "encoding_format"),
        ({"dimensions": 0}, 400, "dimensions"),
        ({"extra_body": {"options": {"num_ctx": 64}}}, 400, "options"),
    ],
    ids=lambda asks: str(asks)[:40],
)
def test_invalid_requests_are_refused(
    client: openai.OpenAI, asks: Any, status: int, param: str
) -> None:
    import openai

    request: Any = {"model": "mochi-embed", "input": "one", "encoding_format": "float", **asks}
    with pytest.raises(openai.APIStatusError) as caught:
        client.embeddings.create(**request)
    assert (caught.value.status_code, caught.value.param) == (status, param)
