"""The transport to a server over HTTP: the SDK's, with bounds, and with a client that keeps secrets to itself."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mochi_server.mcp.config import RemoteServer
from mochi_server.mcp.limits import MAX_MESSAGE_BYTES, TooLarge
from mochi_server.ollama.requests import is_loopback

_CONNECT_SECONDS = 10


@asynccontextmanager
async def http(server: RemoteServer, refused: Callable[[int], None]) -> AsyncGenerator[object, None]:
    """The streams to a server. ``refused`` gets the status of each refusal.

    Raises ``httpx2.HTTPError``, and what the URL and the headers have wrong.
    """
    url = httpx2.URL(server.url)

    async def look(response: httpx2.Response) -> None:
        if response.is_error:
            refused(response.status_code)

    async with (
        httpx2.AsyncClient(
            # A compressed answer could be of any size.
            headers={"Accept-Encoding": "identity", **server.headers},
            # How long an answer may take is decided by whoever waits for it.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            trust_env=not is_loopback(url.host),
            event_hooks={"response": [look, _bound]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


async def _bound(response: httpx2.Response) -> None:
    """Bound an answer; the events of a stream are bounded one by one."""
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - of an asynchronous client
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
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
