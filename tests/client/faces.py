"""The asynchronous client with the face of the synchronous one, so that one test tries both."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from mochi_server.client import AsyncMochiClient, AsyncStream, MochiClient, StreamEvent


@contextmanager
def blocking(url: str, **settings: Any) -> Iterator[MochiClient]:
    """``AsyncMochiClient``, waited for."""
    with start_blocking_portal() as portal:
        client = AsyncMochiClient(url, **settings)
        yield cast(MochiClient, _Blocking(client, portal))
        portal.call(client.aclose)


class _Blocking:
    def __init__(self, client: AsyncMochiClient, portal: BlockingPortal) -> None:
        self._client = client
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if inspect.iscoroutinefunction(method):
            return lambda *given, **named: self._portal.call(partial(method, *given, **named))
        return lambda *given, **named: _BlockingStream(method(*given, **named), self._portal)


class _BlockingStream:
    def __init__(self, stream: AsyncStream, portal: BlockingPortal) -> None:
        self._stream = stream
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> "_BlockingStream":
        return self

    def __next__(self) -> StreamEvent:
        try:
            return self._portal.call(self._stream.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> "_BlockingStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._portal.call(self._stream.aclose)
