"""Synchronous client of Ollama."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from functools import wraps
from typing import Concatenate

from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.util.blocking import BlockingClient, P, T, blocking, run


def _blocking_iterator(
    method: Callable[Concatenate[AsyncOllamaClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["OllamaClient", P], Generator[T, None, None]]:
    @wraps(method)
    def iterate(self: "OllamaClient", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        items = method(self._client, *args, **kwargs)

        async def next_item() -> T | None:
            return await anext(items, None)

        try:
            while (item := run(next_item(), self._loop)) is not None:
                yield item
        finally:  # do not wait, because the garbage collector may run this in the loop's thread
            asyncio.run_coroutine_threadsafe(items.aclose(), self._loop)

    return iterate


class OllamaClient(BlockingClient[AsyncOllamaClient]):
    """Synchronous version of ``AsyncOllamaClient``. Use it as a context manager, or ``close`` it."""

    def __init__(
        self, host: str = "http://localhost:11434", *, connect_timeout: float = 5, stall_timeout: float = 600
    ) -> None:
        super().__init__(AsyncOllamaClient(host, connect_timeout=connect_timeout, stall_timeout=stall_timeout))

    list_models = blocking(AsyncOllamaClient.list_models)
    find_model = blocking(AsyncOllamaClient.find_model)
    show_model_details = blocking(AsyncOllamaClient.show_model_details)
    chat_stream = _blocking_iterator(AsyncOllamaClient.chat_stream)
    chat = blocking(AsyncOllamaClient.chat)
