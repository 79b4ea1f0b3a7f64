"""Transport to an MCP server over HTTP. Unlike the SDK, it limits the size of every response and the time to close."""

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client

from mochi_server.mcp.config import MAX_MESSAGE_BYTES, MessageTooLarge, RemoteServer
from mochi_server.mcp.messages import TOO_MANY_VALUES, MessageBuffer, parse, repair
from mochi_server.mcp.session import McpSession
from mochi_server.util.net import is_loopback

_CONNECT_SECONDS = 10
_CLOSE_SECONDS = 1
"""Maximum seconds to wait for the response to the request that ends the session."""
_CHUNK_BYTES = 64 * 1024
_SHORT_RETRY = re.compile(rb"retry:(?! ?\d{4,9}$)")
"""Reconnection delay of less than a second, with which a server could cause an endless series of requests."""


@asynccontextmanager
async def http(server: RemoteServer, session: McpSession) -> AsyncGenerator[object, None]:
    """Yield the streams for the messages of an MCP server. Raises any error of the transport or the SDK."""

    async def check(response: httpx2.Response) -> None:
        if response.request.method == "POST":  # the SDK ignores error responses to other requests
            session.error_status = response.status_code if response.is_error else None
        is_sse = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        encoding = response.headers.pop("content-encoding", "identity")
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - the client is asynchronous
        response.stream = _CheckedBody(response.stream, encoding, is_sse=is_sse)

    async with (
        _HttpClient(
            # Compression would defeat the size limit.
            headers={**server.headers, "Accept-Encoding": "identity"},
            # The caller has a timeout for responses.
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
            verify=await anyio.to_thread.run_sync(_tls, server.url),  # reading the certificates takes 50 ms
            trust_env=not is_loopback(httpx2.URL(server.url).host),
            event_hooks={"response": [check]},
        ) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


def _tls(url: str) -> ssl.SSLContext:
    return httpx2.create_ssl_context() if url.lower().startswith("https") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class _HttpClient(httpx2.AsyncClient):
    """HTTP client that limits the duration of the request that ends the session."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        with anyio.fail_after(_CLOSE_SECONDS if request.method == "DELETE" else None):
            return await super().send(request, **options)


class _CheckedBody(httpx2.AsyncByteStream):
    """A response body whose messages are within the limits. Malformed responses become error responses."""

    def __init__(self, body: httpx2.AsyncByteStream, encoding: str, *, is_sse: bool) -> None:
        self._body = body
        self._encoding = encoding
        self._is_sse = is_sse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._encoding.strip().lower() not in ("", "identity"):
                raise httpx2.StreamError("it sent a compressed response, although the request forbids it")
            async for part in self._parts():
                yield await _checked_event(part) if self._is_sse else await _checked(part)
        except (MessageTooLarge, httpx2.StreamError) as error:
            # The SDK shows only these types.
            raise (httpx2.SSEError if self._is_sse else httpx2.StreamError)(str(error)) from error

    async def aclose(self) -> None:
        await self._body.aclose()

    async def _parts(self) -> AsyncIterator[bytes]:
        """Yield each SSE event, or the whole body if it has no events."""
        part, is_blank = bytearray(), True
        async for chunk in self._body:
            for line in chunk.splitlines(keepends=True) if self._is_sse else [chunk]:
                part += line
                if len(part) > MAX_MESSAGE_BYTES:
                    raise MessageTooLarge
                is_blank = is_blank and not line.strip(b"\r\n")
                if self._is_sse and line.endswith(b"\n"):
                    if is_blank:
                        yield bytes(part)
                        part.clear()
                    is_blank = True
            await asyncio.sleep(0)  # the body does not yield while there is data
        if not self._is_sse:
            yield bytes(part)


async def _checked_event(event: bytes) -> bytes:
    """Return an SSE event. If its data is a malformed response, replace the data by an error response."""
    await asyncio.sleep(0)  # a flood of events must not delay requests
    lines = event.splitlines()
    data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
    others = [line for line in lines if line and not line.startswith(b"data:") and not _SHORT_RETRY.match(line)]
    checked = (await _checked(data)).splitlines() if data else []
    return b"\n".join([*others, *(b"data: " + line for line in checked), b"", b""])


async def _checked(data: bytes) -> bytes:
    """Return a message. If it is a malformed response, return an error response with the reason instead.

    Raises ``httpx2.StreamError`` if the message has too many values and is not a response.
    """
    buffer = MessageBuffer()
    for start in range(0, len(data), _CHUNK_BYTES):
        buffer.add(data[start : start + _CHUNK_BYTES])
        await asyncio.sleep(0)
    _, end = buffer.take()
    if parse(data, end) is not None:
        return data
    repaired = await repair(data, end)
    if repaired is None and end is not None:
        raise httpx2.StreamError(TOO_MANY_VALUES)
    return data if repaired is None else repaired.model_dump_json(by_alias=True, exclude_unset=True).encode()
