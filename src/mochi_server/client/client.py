"""The synchronous and the asynchronous client. ``Operations`` describes what their methods send."""

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, TypeVar

import anyio
import httpx
from typing_extensions import ParamSpec

from mochi_server.client.operations import OPERATIONS, Operations, Request, Subscription, settings
from mochi_server.client.streams import DELAYS, LOST, AsyncStream, Backoff, Stream

P = ParamSpec("P")
T = TypeVar("T")


def _sync(build: Callable[Concatenate[Operations, P], Request[T]]) -> Callable[Concatenate["MochiClient", P], T]:
    @wraps(build)
    def method(self: "MochiClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(build(OPERATIONS, *args, **kwargs))

    return method


def _sync_stream(
    build: Callable[Concatenate[Operations, P], Subscription],
) -> Callable[Concatenate["MochiClient", P], Stream]:
    @wraps(build)
    def method(self: "MochiClient", /, *args: P.args, **kwargs: P.kwargs) -> Stream:
        return Stream(self._http, build(OPERATIONS, *args, **kwargs), self._delays)

    return method


def _async(
    build: Callable[Concatenate[Operations, P], Request[T]],
) -> Callable[Concatenate["AsyncMochiClient", P], Coroutine[Any, Any, T]]:
    @wraps(build)
    async def method(self: "AsyncMochiClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(build(OPERATIONS, *args, **kwargs))

    return method


def _async_stream(
    build: Callable[Concatenate[Operations, P], Subscription],
) -> Callable[Concatenate["AsyncMochiClient", P], AsyncStream]:
    @wraps(build)
    def method(self: "AsyncMochiClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncStream:
        return AsyncStream(self._http, build(OPERATIONS, *args, **kwargs), self._delays)

    return method


class MochiClient:
    """Client of one server; close it, or use it as a context manager.

    Give each thread a client of its own: ``httpx`` may close an idle connection that another thread has just received.

    ``delays`` are the seconds before each attempt to resume after a lost connection. ``http`` is an ``httpx`` client
    of your own with the ``base_url`` of the API (``http://127.0.0.1:8000/api/v1``); you close it. Raises
    ``ValueError`` for an invalid ``url``.

    Every method raises ``ApiError`` when the server refuses the request and ``ConnectionFailed`` when it cannot be
    reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
        http: httpx.Client | None = None,
    ) -> None:
        self._http = http or httpx.Client(**settings(url, api_key))
        self._owned = http is None
        self._delays = delays

    create_session = _sync(Operations.create_session)
    list_sessions = _sync(Operations.list_sessions)
    get_session = _sync(Operations.get_session)
    set_title = _sync(Operations.set_title)
    fork_session = _sync(Operations.fork_session)
    export_session = _sync(Operations.export_session)
    import_sessions = _sync(Operations.import_sessions)
    delete_session = _sync(Operations.delete_session)
    chat = _sync(Operations.chat)
    stream = _sync_stream(Operations.stream)
    listen = _sync_stream(Operations.listen)
    confirm = _sync(Operations.confirm)
    list_confirmations = _sync(Operations.list_confirmations)
    stop = _sync(Operations.stop)
    get_run = _sync(Operations.get_run)

    def close(self) -> None:
        """Close the connections."""
        if self._owned:
            self._http.close()

    def __enter__(self) -> "MochiClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, request: Request[T]) -> T:
        backoff = Backoff(self._delays if request.repeatable else ())
        while True:
            try:
                return request.result(self._http.request(**request.arguments()))
            except LOST as error:
                time.sleep(backoff.delay_after(error))


class AsyncMochiClient:
    """``MochiClient`` with ``await``; streams are for ``async for``."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._http = http or httpx.AsyncClient(**settings(url, api_key))
        self._owned = http is None
        self._delays = delays

    create_session = _async(Operations.create_session)
    list_sessions = _async(Operations.list_sessions)
    get_session = _async(Operations.get_session)
    set_title = _async(Operations.set_title)
    fork_session = _async(Operations.fork_session)
    export_session = _async(Operations.export_session)
    import_sessions = _async(Operations.import_sessions)
    delete_session = _async(Operations.delete_session)
    chat = _async(Operations.chat)
    stream = _async_stream(Operations.stream)
    listen = _async_stream(Operations.listen)
    confirm = _async(Operations.confirm)
    list_confirmations = _async(Operations.list_confirmations)
    stop = _async(Operations.stop)
    get_run = _async(Operations.get_run)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> "AsyncMochiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _send(self, request: Request[T]) -> T:
        backoff = Backoff(self._delays if request.repeatable else ())
        while True:
            try:
                return request.result(await self._http.request(**request.arguments()))
            except LOST as error:
                await anyio.sleep(backoff.delay_after(error))
