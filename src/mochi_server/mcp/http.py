"""Transports of remote MCP servers: streamable HTTP, and the older SSE.

Unlike the transports of the SDK, these limit the size of messages and the time to close. Importing
this module takes a second and needs the extra ``mcp``.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from mochi_server.mcp.addresses import check_named_url
from mochi_server.mcp.config import RemoteServer
from mochi_server.mcp.credentials import Credentials
from mochi_server.mcp.limits import McpLimits
from mochi_server.mcp.messages import append, decode, read_lines
from mochi_server.mcp.oauth import is_oauth, provider_of
from mochi_server.mcp.session import McpSession, MessageTooLarge, OAuthFailed
from mochi_server.util.net import is_loopback

_CONNECT_SECONDS = 10
# Maximum seconds to wait for the response to the request that ends the HTTP session.
_CLOSE_SECONDS = 1
_TIMEOUTS = ("connect", "read", "write", "pool")
_REFUSED = (401, 403)


@asynccontextmanager
async def open_http(
    server: RemoteServer, session: McpSession, credentials: Credentials
) -> AsyncGenerator[Any, None]:
    """Open the transport of a remote MCP server, and yield its incoming and outgoing streams."""
    client = await http_client(server, session, provider_of(server, credentials, session))
    if server.type == "sse":
        # The SDK opens and closes the client.
        transport = sse_client(server.url, httpx_client_factory=lambda *_, **__: client)
        async with transport as (read, write):
            yield _SseMessages(read, session), write
        return
    limit = session.limits.message_bytes
    async with (
        client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


class _SseMessages:
    """Incoming messages over SSE. Their end ends the session, because the SDK ignores it."""

    def __init__(self, messages: Any, session: McpSession) -> None:
        self._messages = messages
        self._session = session

    async def receive(self) -> Any:
        try:
            return await self._messages.receive()
        except anyio.EndOfStream:
            self._session.end()
            raise

    async def aclose(self) -> None:
        await self._messages.aclose()


async def http_client(
    server: RemoteServer, session: McpSession, auth: httpx2.Auth | None
) -> httpx2.AsyncClient:
    """Return a client for the requests to an MCP server, and to its authorization server."""
    host = httpx2.URL(server.url).host
    certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if auth is not None or server.url.lower().startswith("https"):
        # This takes 50 ms. The authorization server of a server without TLS can require TLS.
        certificates = await anyio.to_thread.run_sync(httpx2.create_ssl_context)
    return httpx2.AsyncClient(
        # Compression would defeat the size limit.
        headers={**server.headers, "Accept-Encoding": "identity"},
        # The caller has a timeout for responses.
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=None),
        verify=certificates,
        trust_env=not is_loopback(host),
        auth=auth,
        event_hooks={
            "request": [partial(_prepare_request, server, session)],
            "response": [
                partial(_record_error, server, session),
                partial(_limit_body, server, session),
            ],
        },
    )


async def _prepare_request(
    server: RemoteServer, session: McpSession, request: httpx2.Request
) -> None:
    """Check the address of a request for OAuth. Set its timeouts, or those of a request that ends
    the session.

    Raises ``UnsafeAddress`` if the MCP server must not name the address.
    """
    if is_oauth(request):  # redirects are checked too
        # The MCP server's response, which required the authorization, is no error.
        session.error_status = None
        await check_named_url(server.url, str(request.url))
        request.extensions["timeout"] = dict.fromkeys(_TIMEOUTS, session.limits.connect_seconds)
    elif request.method == "DELETE":  # it ends the session
        request.extensions["timeout"] = dict.fromkeys(_TIMEOUTS, _CLOSE_SECONDS)


async def _record_error(
    server: RemoteServer, session: McpSession, response: httpx2.Response
) -> None:
    over_sse = server.type == "sse"
    is_post = response.request.method == "POST"
    # Streamable HTTP ignores error responses to other requests.
    if is_oauth(response.request) or not (is_post or over_sse):
        return
    session.error_status = response.status_code if response.is_error else None
    if is_post and over_sse and response.is_error:
        session.end()  # the SDK would wait for a response forever


async def _limit_body(server: RemoteServer, session: McpSession, response: httpx2.Response) -> None:
    body_type = _body_type(server, response)
    encoding = response.headers.pop("content-encoding", "identity")
    assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - the client is asynchronous
    response.stream = body_type(response.stream, encoding, session.limits)


def _body_type(server: RemoteServer, response: httpx2.Response) -> "type[_LimitedBody]":
    if is_oauth(response.request):
        return _OAuthBody
    content_type = response.headers.get("content-type", "").lower()
    if content_type.startswith("text/event-stream"):
        return _CheckedEvents
    # Over SSE, only events contain messages.
    if server.type == "sse":
        return _LimitedBody
    # The authorization reads the body of a refusal, which need not be a message.
    if response.status_code in _REFUSED:
        return _LimitedBody
    return _CheckedMessage


class _LimitedBody(httpx2.AsyncByteStream):
    """A response body of limited size."""

    max_bytes: int | None = None  # the default is the limit of a message

    error_type: type[Exception] = httpx2.StreamError  # the SDK reports no other type

    def __init__(self, body: httpx2.AsyncByteStream, encoding: str, limits: McpLimits) -> None:
        self._body = body
        self._limits = limits
        self._max_body_bytes = self.max_bytes or limits.message_bytes
        self._encoding = encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._encoding.strip().lower() not in ("", "identity"):
                raise httpx2.StreamError(
                    "it sent a compressed response, although the request forbids it"
                )
            async for part in self._parts():
                yield part
        except (MessageTooLarge, httpx2.StreamError) as error:
            raise self.error_type(str(error)) from error

    async def aclose(self) -> None:
        await self._body.aclose()

    async def _parts(self) -> AsyncIterator[bytes]:
        yield bytes(await self._whole())

    async def _whole(self) -> bytearray:
        data = bytearray()
        async for chunk in self._body:
            append(data, chunk, self._max_body_bytes)
            await asyncio.sleep(0)  # the body does not yield while there is data
        return data


class _OAuthBody(_LimitedBody):
    """The response body of an authorization server, which is small and arrives soon.

    Raises ``TimeoutError`` for a slow one.
    """

    max_bytes = 256 * 1024
    error_type = OAuthFailed

    async def _whole(self) -> bytearray:
        with anyio.fail_after(self._limits.connect_seconds):
            return await super()._whole()


class _CheckedMessage(_LimitedBody):
    """A response body that is one message. A malformed response becomes an error response.

    Raises ``StreamError`` for other data, because the request waits for a message.
    """

    async def _parts(self) -> AsyncIterator[bytes]:
        message = await _checked_message(await self._whole())
        if message is None:
            raise httpx2.StreamError("its response is not valid MCP: it is not a message")
        yield message


class _CheckedEvents(_LimitedBody):
    """An event stream whose messages are within the limits.

    Malformed responses become error responses. Other data is removed, so that the later events
    still arrive.
    """

    error_type = httpx2.SSEError

    async def _parts(self) -> AsyncIterator[bytes]:
        data = bytearray()
        others = bytearray()
        async for line in read_lines(self._body, self._max_body_bytes):
            text = line.rstrip(b"\r")
            if text.startswith(b"data:"):
                append(data, text[5:] + b"\n", self._max_body_bytes)
            elif text:
                append(others, text + b"\n", self._max_body_bytes)
            else:  # the event ends; a body that ends with a line end has an empty last line
                yield await _checked_event(bytes(others), data)
                data.clear()
                others.clear()


async def _checked_event(others: bytes, data: bytearray) -> bytes:
    """Return an event with its lines other than ``data``, and its message, if its data is one."""
    if b"event: endpoint\n" in others or b"event:endpoint\n" in others:
        # The data of this event is the path for messages over SSE.
        return others + b"data:" + bytes(data) + b"\n"
    message = await _checked_message(data)
    if message is None:
        return others + b"\n"
    return others + b"data: " + message + b"\n\n"


async def _checked_message(data: bytearray) -> bytes | None:
    """Return a message, or an error response in place of a malformed response.

    Return None for other data.
    """
    message = await decode(bytes(data))
    if message is None:
        return None
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
