"""The synchronous client, for scripts and notebooks: the asynchronous one, run by a thread."""

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Coroutine, Generator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import aclosing
from functools import cache
from typing import Any, TypeVar

from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.requests import merge
from mochi_server.ollama.types import ChatMessage, ChatResponse, ModelDetails, ModelInfo

T = TypeVar("T")
_CLOSE_SECONDS = 1


class OllamaClient:
    """``AsyncOllamaClient`` without ``await``. Use it as a context manager, or ``close`` it."""

    def __init__(
        self, host: str = "http://localhost:11434", *, connect_timeout: float = 5, stall_timeout: float = 600
    ) -> None:
        self._client = AsyncOllamaClient(host, connect_timeout=connect_timeout, stall_timeout=stall_timeout)
        self._loop = _event_loop(os.getpid())
        self._finalizer = weakref.finalize(self, _close, self._client, self._loop)
        self.endpoint = self._client.endpoint

    def __enter__(self) -> "OllamaClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._finalizer()

    def list_models(self) -> list[ModelInfo]:
        """List the installed models that can chat, in Ollama's order."""
        return self._run(self._client.list_models())

    def find_model(self, name: str) -> ModelInfo:
        """Find an installed model that can chat by its name. Raises ``ModelNotFound``."""
        return self._run(self._client.find_model(name))

    def show_model_details(self, name: str) -> ModelDetails:
        """Return what ``/api/show`` says of a model. Raises ``ModelNotFound``."""
        return self._run(self._client.show_model_details(name))

    def chat_stream(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> Generator[ChatResponse, None, None]:
        """Chat, piece by piece. ``context_window`` is in tokens. Close the generator to make Ollama stop."""
        pieces: queue.SimpleQueue[ChatResponse | None] = queue.SimpleQueue()

        async def receive() -> None:
            async with aclosing(self._client.chat_stream(model, messages, tools, think, context_window)) as stream:
                async for piece in stream:
                    pieces.put(piece)

        received = asyncio.run_coroutine_threadsafe(receive(), self._loop)
        received.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
            received.result()
        finally:
            received.cancel()

    def chat(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> ChatResponse:
        """Chat and return the complete answer."""
        return merge(list(self.chat_stream(model, messages, tools, think, context_window)))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # after a KeyboardInterrupt


@cache
def _event_loop(_process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of all synchronous clients of a process. A forked child does not have the thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ollama", daemon=True).start()
    return loop


def _close(client: AsyncOllamaClient, loop: asyncio.AbstractEventLoop) -> None:
    closed = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
    wait([closed], _CLOSE_SECONDS)  # limited, because the garbage collector may call this in the thread of the loop
