"""The transport to a server over HTTP: that of the SDK, with limits and without logged secrets."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mochi_server.addresses import is_loopback
from mochi_server.mcp.config import MAX_MESSAGE_BYTES, RemoteServer, TooLarge

_CONNECT_SECONDS = 10


@asynccontextmanager
async def http(server: RemoteServer, on_refusal: Callable[[int], None]) -> AsyncGenerator[object, None]:
    """Yield the streams to a server. ``on_refusal`` gets the status of each refused request.

    Raises ``httpx2.HTTPError``, and ``ValueError`` for an invalid URL or header.
    """

    async def check(response: httpx2.Response) -> None:
        if response.is_error:
            on_refusal(response.status_code)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - of an asynchronous client
            response.stream = _Limited(response.stream)

    async with (
        httpx2.AsyncClient(
            # A compressed response could have any size.
            headers={"Accept-Encoding": "identity", **server.headers},
            # The caller limits the time of a response.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            trust_env=not is_loopback(httpx2.URL(server.url).host),
            event_hooks={"response": [check]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


class _Limited(httpx2.AsyncByteStream):
    """A response body with a size limit. The SDK limits only the events of a stream."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(str(TooLarge()))
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
