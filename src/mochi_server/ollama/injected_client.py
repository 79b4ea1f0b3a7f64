"""Adapter that lets the server use another client in place of Ollama, for example a test double."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Protocol

import orjson
from pydantic import BaseModel

from mochi_server.errors import MochiError, OllamaError
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.transport import Line, OnLines
from mochi_server.ollama.types import ChatResponse, ModelInfo


class ChatClient(Protocol):
    """Client that the server can use in place of Ollama.

    Its methods may be synchronous or asynchronous.
    """

    def list_models(self) -> Any:
        """Return the models that can chat, as a list of ``ModelInfo``."""

    def chat_stream(self, **request: Any) -> Any:
        """Return an iterable of ``ChatResponse``, of this package or of the ollama library.

        The last one is done.

        The arguments are ``model``, ``messages``, ``tools``, ``think`` and ``context_window``.
        """


class StructuredClient(Protocol):
    """Client that answers the structured requests of summaries in place of Ollama."""

    async def structured_response(self, model: str, messages: Any, format: Any) -> Any:
        """Return an instance of the class ``format``, or a response whose content is its JSON.

        The response is a ``ChatResponse``, of this package or of the ollama library, or a
        dictionary with the same fields. ``format`` can also be a JSON schema.
        """


def structured_content(answer: Any, format: Any) -> str:
    """Return the JSON in an answer of a ``StructuredClient``."""
    is_instance = isinstance(format, type) and isinstance(answer, format)
    if is_instance:
        return str(answer.model_dump_json())
    message = answer["message"] if isinstance(answer, Mapping) else answer.message
    return message["content"] or ""


class InjectedOllamaClient(AsyncOllamaClient):
    """Client whose models and answers come from a ``ChatClient``. It sends no HTTP requests."""

    loads_models = False

    def __init__(self, client: ChatClient, host: str) -> None:
        super().__init__(host)
        self._injected = client

    async def is_reachable(self) -> bool:
        return True

    async def list_models(self) -> list[ModelInfo]:
        with translating_errors():
            models = self._injected.list_models()
            if inspect.isawaitable(models):
                models = await models
            return list(models)

    async def find_model(self, name: str) -> ModelInfo:
        for model in await self.list_models():
            if qualified_name(model.name) == qualified_name(name):
                return model
        raise await self.not_found(name)

    list_installed, find_installed = list_models, find_model

    async def _fetch_windows(self) -> None:
        """Return None, because an injected client does not report which models are loaded."""

    async def post_chat(self, payload: Mapping[str, Any], on_lines: OnLines) -> None:
        request = {name: payload.get(name) for name in ("model", "messages", "tools", "think")}
        encoded = orjson.dumps(request["messages"])  # parts of a long history are already encoded
        request["messages"] = orjson.loads(encoded)
        options = payload.get("options") or {}
        request["context_window"] = options.get("num_ctx")
        line: Line = {}
        async for line in self._lines(request):
            on_lines([line])
        if not line.get("done"):
            raise OllamaError("The injected client's answer ended before it was done.")

    async def _lines(self, request: Mapping[str, Any]) -> AsyncGenerator[Line, None]:
        with translating_errors():
            async for response in _iterate(self._injected.chat_stream(**request)):
                line = _as_dict(response)
                line["message"] = _as_dict(response["message"])
                yield line

    async def embed(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        raise OllamaError("The injected client cannot compute embeddings.")


@contextmanager
def translating_errors(unchanged: type[Exception] = MochiError) -> Iterator[None]:
    """Raise ``OllamaError`` for an error of an injected client, except a ``MochiError`` and
    ``unchanged``.
    """
    try:
        yield
    except (MochiError, unchanged):
        raise
    except Exception as error:
        raise OllamaError(f"The injected client failed: {error}") from error


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, ChatResponse):
        return asdict(value)
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    return dict(value)


async def _iterate(responses: Any) -> AsyncIterable[Any]:
    if inspect.isawaitable(responses):
        responses = await responses
    if isinstance(responses, AsyncIterable):
        async for response in responses:
            yield response
        return
    iterator = iter(responses)
    while True:
        response = await asyncio.to_thread(next, iterator, None)
        if response is None:
            return
        yield response
