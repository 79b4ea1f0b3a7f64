"""Synchronous clients for scripts and notebooks. They run asynchronous clients on a background event loop."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from functools import cache, wraps
from typing import Any, Concatenate, Generic, Protocol, TypeVar

from typing_extensions import ParamSpec, Self

_CLOSE_SECONDS = 1


class _Closable(Protocol):
    async def aclose(self) -> None: ...


P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=_Closable)


class BlockingClient(Generic[C]):
    """Base class of synchronous clients. Use it as a context manager, or call ``close``."""

    def __init__(self, client: C) -> None:
        self._client = client
        self._loop = _event_loop()
        self._finalizer = weakref.finalize(self, _close, client, self._loop)

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient[C], P], T]:
    """Return a synchronous method that waits for the result of an asynchronous method."""

    @wraps(method)
    def call(self: BlockingClient[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._client, *args, **kwargs), self._loop)

    return call


def run(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine on the event loop of another thread and return its result."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    finally:
        future.cancel()  # cancels the work after a KeyboardInterrupt


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="clients", daemon=True).start()
    return loop


def _close(client: _Closable, loop: asyncio.AbstractEventLoop) -> None:
    closed = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
    wait([closed], _CLOSE_SECONDS)  # with a timeout, because a finalizer in the loop's own thread would block forever
