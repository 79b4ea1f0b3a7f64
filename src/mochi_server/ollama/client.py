"""Synchronous client of Ollama."""

import asyncio
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mochi_server.errors import ModelNotFound, OllamaError
from mochi_server.ollama.async_client import SHORT_CALL_SECONDS, AsyncOllamaClient
from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.ollama.errors import log_missing_details, translating_errors
from mochi_server.ollama.payloads import (
    lacks_details,
    qualified_name,
    read_tags,
    with_details,
)
from mochi_server.ollama.types import ChatMessage, ChatResponse, ModelInfo
from mochi_server.util.tasks import BlockingClient, blocking, run

if TYPE_CHECKING:
    from mochi_server.ollama.library import ModelDetails, PlainClient


class OllamaClient(BlockingClient[AsyncOllamaClient]):
    """Synchronous version of ``AsyncOllamaClient``, built on ``ollama.Client``.

    An ``AsyncOllamaClient`` streams the answers, in a thread that all clients share. Use the client
    as a context manager, or ``close`` it.
    """

    def __init__(
        self,
        host: str = "http://localhost:11434",
        *,
        connect_timeout: float = 5,
        stall_timeout: float = 600,
    ) -> None:
        super().__init__(
            AsyncOllamaClient(host, connect_timeout=connect_timeout, stall_timeout=stall_timeout)
        )
        self._endpoint = parse_endpoint(host)
        library = import_module("mochi_server.ollama.library")  # a slow import
        self._plain: PlainClient = library.PlainClient(
            self._endpoint, connect_timeout, read_timeout=SHORT_CALL_SECONDS
        )
        self._close_plain = weakref.finalize(self, self._plain.close)

    chat = blocking(AsyncOllamaClient.chat)

    def close(self) -> None:
        """Close all connections of this client."""
        self._close_plain()
        super().close()

    def list_models(self) -> list[ModelInfo]:
        """List the installed models that can chat, in Ollama's order.

        Raises ``OllamaUnreachable`` and ``OllamaError``.
        """
        return [model for model in self._list_installed() if model.has_capability("completion")]

    def find_model(self, name: str) -> ModelInfo:
        """Return the installed chat model ``name``.

        Raises ``ModelNotFound``, ``OllamaUnreachable`` and ``OllamaError``.
        """
        installed = self._list_installed()
        wanted = qualified_name(name)
        found = [model for model in installed if qualified_name(model.name) == wanted]
        chat_models = [model for model in installed if model.has_capability("completion")]
        if found and found[0] in chat_models:
            return found[0]
        raise ModelNotFound(
            name,
            models=[model.name.removesuffix(":latest") for model in chat_models],
            is_other_kind=bool(found) and found[0].has_capability("embedding"),
        )

    def show_model_details(self, name: str) -> "ModelDetails":
        """Return the ``ShowResponse`` of a model.

        Raises ``ModelNotFound``, ``OllamaUnreachable`` and ``OllamaError``.
        """
        with translating_errors(self._endpoint):
            return self._plain.show(name)

    def _list_installed(self) -> list[ModelInfo]:
        with translating_errors(self._endpoint):
            models = read_tags(self._plain.list())
        return [self._with_details(model) for model in models.values()]

    def _with_details(self, model: ModelInfo) -> ModelInfo:
        """Request the details that the list of models lacks.

        Log ``ModelNotFound`` and ``OllamaError``. Raises ``OllamaUnreachable``, which is neither.
        """
        if not lacks_details(model):
            return model
        try:
            return with_details(model, self.show_model_details(model.name))
        except (ModelNotFound, OllamaError) as error:
            log_missing_details(model.name, error)
            return model

    def chat_stream(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> Iterator[ChatResponse]:
        """Like ``chat``, but yield the chunks of the answer.

        If the iterator is closed, Ollama stops generating.
        """
        chunks = self._client.chat_stream(model, messages, tools, think, context_window)

        async def next_chunk() -> ChatResponse | None:
            return await anext(chunks, None)

        try:
            while (chunk := run(next_chunk(), self._loop)) is not None:
                yield chunk
        finally:  # do not wait, because the garbage collector may run this in the loop's thread
            asyncio.run_coroutine_threadsafe(chunks.aclose(), self._loop)
