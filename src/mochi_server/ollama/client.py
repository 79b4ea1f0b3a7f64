"""Synchronous client of Ollama."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.types import ChatMessage, ChatResponse
from mochi_server.util.tasks import BlockingClient, blocking, run


class OllamaClient(BlockingClient[AsyncOllamaClient]):
    """Synchronous version of ``AsyncOllamaClient``.

    Use it as a context manager, or ``close`` it.
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

    list_models = blocking(AsyncOllamaClient.list_models)
    find_model = blocking(AsyncOllamaClient.find_model)
    show_model_details = blocking(AsyncOllamaClient.show_model_details)
    chat = blocking(AsyncOllamaClient.chat)

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
