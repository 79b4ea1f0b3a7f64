"""The synchronous client of Ollama."""

import asyncio
import queue
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from functools import wraps
from typing import Concatenate, TypeVar

from typing_extensions import ParamSpec

from mochi_server.blocking import BlockingClient, blocking
from mochi_server.ollama.async_client import AsyncOllamaClient

P = ParamSpec("P")
T = TypeVar("T")


def _iterating(
    method: Callable[Concatenate[AsyncOllamaClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["OllamaClient", P], Generator[T, None, None]]:
    @wraps(method)
    def iterate(self: "OllamaClient", /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        items: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()

        async def receive() -> None:
            async with aclosing(method(self._client, *args, **kwargs)) as received:
                async for item in received:
                    items.put((item,))

        receiving = asyncio.run_coroutine_threadsafe(receive(), self._loop)
        receiving.add_done_callback(lambda _: items.put(None))
        try:
            while (item := items.get()) is not None:
                yield item[0]
            receiving.result()
        finally:
            receiving.cancel()

    return iterate


class OllamaClient(BlockingClient[AsyncOllamaClient]):
    """``AsyncOllamaClient`` without ``await``. Use it as a context manager, or ``close`` it."""

    def __init__(
        self, host: str = "http://localhost:11434", *, connect_timeout: float = 5, stall_timeout: float = 600
    ) -> None:
        super().__init__(AsyncOllamaClient(host, connect_timeout=connect_timeout, stall_timeout=stall_timeout))
        self.endpoint = self._client.endpoint

    list_models = blocking(AsyncOllamaClient.list_models)
    find_model = blocking(AsyncOllamaClient.find_model)
    show_model_details = blocking(AsyncOllamaClient.show_model_details)
    chat_stream = _iterating(AsyncOllamaClient.chat_stream)
    chat = blocking(AsyncOllamaClient.chat)
