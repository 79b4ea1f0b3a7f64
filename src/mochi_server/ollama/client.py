"""The synchronous client, for scripts and notebooks: the asynchronous one, run by a thread."""

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import wait
from contextlib import aclosing
from functools import cache, wraps
from typing import Any, Concatenate, TypeVar

from typing_extensions import ParamSpec

from mochi_server.ollama.async_client import AsyncOllamaClient

P = ParamSpec("P")
T = TypeVar("T")
_CLOSE_SECONDS = 1


def _blocking(
    method: Callable[Concatenate[AsyncOllamaClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["OllamaClient", P], T]:
    @wraps(method)
    def call(self: "OllamaClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        future = asyncio.run_coroutine_threadsafe(method(self._client, *args, **kwargs), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # after a KeyboardInterrupt

    return call


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


class OllamaClient:
    """``AsyncOllamaClient`` without ``await``. Use it as a context manager, or ``close`` it."""

    def __init__(
        self, host: str = "http://localhost:11434", *, connect_timeout: float = 5, stall_timeout: float = 600
    ) -> None:
        self._client = AsyncOllamaClient(host, connect_timeout=connect_timeout, stall_timeout=stall_timeout)
        self._loop = _event_loop(os.getpid())
        self._finalizer = weakref.finalize(self, _close, self._client, self._loop)
        self.endpoint = self._client.endpoint

    list_models = _blocking(AsyncOllamaClient.list_models)
    find_model = _blocking(AsyncOllamaClient.find_model)
    show_model_details = _blocking(AsyncOllamaClient.show_model_details)
    chat_stream = _iterating(AsyncOllamaClient.chat_stream)
    chat = _blocking(AsyncOllamaClient.chat)

    def close(self) -> None:
        """Close all connections."""
        self._finalizer()

    def __enter__(self) -> "OllamaClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def _event_loop(_process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of all synchronous clients of a process. A forked child does not have the thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ollama", daemon=True).start()
    return loop


def _close(client: AsyncOllamaClient, loop: asyncio.AbstractEventLoop) -> None:
    closed = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
    wait([closed], _CLOSE_SECONDS)  # limited, because the garbage collector may call this in the thread of the loop
