"""LangChain's OpenAI package: its standard tests, and errors."""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

API = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


class TestChat(ChatModelIntegrationTests):
    @pytest.fixture(autouse=True)
    def _server(self, server: RunningServer) -> None:
        self.url = f"{server.url}/v1"

    @property
    def chat_model_class(self) -> type[ChatOpenAI]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "mochi-demo", "base_url": self.url, "api_key": "any", "stream_usage": True}

    @property
    def model_override_value(self) -> str:
        return "mochi"


class TestResponses(TestChat):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "use_responses_api": True}


class TestEmbeddings(EmbeddingsIntegrationTests):
    @pytest.fixture(autouse=True)
    def _server(self, server: RunningServer) -> None:
        self.url = f"{server.url}/v1"

    @property
    def embeddings_class(self) -> type[OpenAIEmbeddings]:
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        fields = {"model": "mochi-embed", "base_url": self.url, "api_key": "any"}
        return {**fields, "check_embedding_ctx_length": False}  # else it sends token IDs


def chat(server: RunningServer, *, responses: bool, **fields: Any) -> ChatOpenAI:
    fields = {"model": "mochi", "max_retries": 0, "use_responses_api": responses, **fields}
    return ChatOpenAI(base_url=f"{server.url}/v1", api_key="any", **fields)


def answer(model: ChatOpenAI, text: str, *, stream: bool) -> str:
    chunks = list(model.stream(text)) if stream else [model.invoke(text)]
    return "".join(chunk.text for chunk in chunks)


@API
@STREAMED
@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("nowhere", openai.NotFoundError),
        ("failing", openai.InternalServerError),
        ("rate-limited", openai.RateLimitError),
    ],
)
def test_errors_have_the_class_of_their_status(
    server: RunningServer,
    responses: bool,
    stream: bool,
    model: str,
    error: type[openai.APIStatusError],
) -> None:
    with pytest.raises(error) as caught:
        answer(chat(server, responses=responses, model=model), "Hello!", stream=stream)
    assert (caught.value.code is not None, caught.value.response.is_closed) == (True, True)


@pytest.mark.parametrize(
    ("responses", "error"),
    [(False, openai.APIError), (True, ValueError)],
    ids=["chat", "responses"],
)
def test_error_within_a_stream_is_raised(
    server: RunningServer, responses: bool, error: type[Exception]
) -> None:
    """LangChain itself raises the `ValueError`, for a failed response."""
    with pytest.raises(error, match="Rate limit exceeded"):
        answer(
            chat(server, responses=responses, model="rate-limited-midway"), "Hello!", stream=True
        )


@API
@pytest.mark.parametrize(
    ("status", "stream"), [(429, False), (503, True)], ids=["whole", "streamed"]
)
def test_overload_is_retried_after_the_requested_time(
    server: RunningServer, responses: bool, stream: bool, status: int
) -> None:
    began = time.monotonic()
    text = f"Busy {status}: LangChain, {responses=}, {stream=}"
    model = chat(server, responses=responses, max_retries=1)
    assert answer(model, text, stream=stream).endswith(text)
    assert time.monotonic() - began >= 1
