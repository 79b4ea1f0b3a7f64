"""Checks of the messages of MCP servers, before the SDK reads them.

The SDK rejects a whole message if a part of it is malformed, and ignores a response with an unknown
ID. These checks remove malformed tools, and return error responses for other faults, so that only
one request fails, with the reason.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from mochi_server.mcp.session import MessageTooLarge
from mochi_server.tools.execution import shorten

MAX_TOOLS = 1000
# maximum number of values in one message. A small value takes a hundred times its size in memory
MAX_VALUES = 50_000
_MAX_BLOCKS = 1000
_MAX_SHOWN = 100
_CHUNK_BYTES = 64 * 1024
_INVALID = "its response is not valid MCP: "

_RESPONSE_KEY = re.compile(rb'"(?:jsonrpc|result|code)"')
"""Key that a response has, but usually not a log line in JSON that a server writes to its stdout.
"""
_METHOD = re.compile(rb'\s*\{[^{\[]*?"method"')
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,100}")'
_FIRST_ID = re.compile(rb"\s*\{[^{\[]*?" + _ID)
_LAST_ID = re.compile(_ID + rb"[^{}\[\]]*\}\s*$")
"""ID of a message that cannot be decoded, before its first and after its last nested value."""
_TAIL_BYTES = 300

# Method of the request whose response arrives when the connection ends.
_ENDLESS = "subscriptions/listen"
_USED_KEYS = ("name", "title", "description", "inputSchema", "annotations")
"""Keys of a tool that are used.

The SDK would evaluate the other keys, such as slow patterns in ``outputSchema``.
"""


def append(buffer: bytearray, data: bytes, limit: int) -> None:
    """Append data to the buffer of a message.

    Raise ``MessageTooLarge`` if the buffer then has more than ``limit`` bytes.
    """
    buffer += data
    if len(buffer) > limit:
        raise MessageTooLarge(limit)


async def read_lines(chunks: AsyncIterable[bytes], limit: int) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, without their ends.

    The line after the last line end is also yielded, even if it is empty. Raise
    ``MessageTooLarge`` if a line has more than ``limit`` bytes.
    """
    line = bytearray()
    async for chunk in chunks:
        *ends, start = chunk.split(b"\n")
        for end in ends:
            append(line, end, limit)
            yield bytes(line)
            line.clear()
        append(line, start, limit)
        await asyncio.sleep(0)  # a stream does not yield while there is data
    yield bytes(line)


async def decode(data: bytes) -> JSONRPCMessage | None:
    """Return a message, an error response in place of a malformed response, or None for other
    malformed data.
    """
    await asyncio.sleep(0)  # a flood of messages must not delay requests
    if not data.lstrip().startswith(b"{"):
        return None
    if await _has_too_many_values(data):
        return _error_response(data, f"it has more than {MAX_VALUES:,} values")
    try:
        return mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        return await anyio.to_thread.run_sync(_repaired, data)  # takes up to a second


async def _has_too_many_values(data: bytes) -> bool:
    """Return whether a message has more than ``MAX_VALUES`` values.

    The contents of strings do not count.
    """
    if len(data) <= MAX_VALUES:
        return False
    values = 0
    starts_in_string = False
    cut_escape = b""  # a backslash whose character is in the next chunk
    for start in range(0, len(data), _CHUNK_BYTES):
        text = cut_escape + data[start : start + _CHUNK_BYTES]
        backslashes = len(text) - len(text.rstrip(b"\\"))
        cut_escape = text[len(text) - backslashes % 2 :]
        parts = text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        outside = b" ".join(parts[starts_in_string::2])
        starts_in_string ^= len(parts) % 2 == 0  # an odd number of quotes
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        await asyncio.sleep(0)
    return values > MAX_VALUES


def _repaired(data: bytes) -> JSONRPCMessage | None:
    """Return a message after replacing its invalid UTF-8 and lone surrogates.

    If it is still invalid, return what ``_error_response`` returns.
    """
    with suppress(ValueError, RecursionError):  # a ValidationError is a ValueError
        text = json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)
        return mcp_types.jsonrpc_message_adapter.validate_json(
            text.encode("utf-8", "replace"), by_name=False
        )
    return _error_response(data, "it is malformed")


def _error_response(data: bytes, reason: str) -> JSONRPCError | None:
    """Return an error response in place of a malformed response.

    Its ID is None if no valid one is found in the data. Return None if the data is probably not a
    response.
    """
    if _METHOD.match(data) or not _RESPONSE_KEY.search(data):
        return None
    tail = max(0, len(data) - _TAIL_BYTES)
    found = _FIRST_ID.match(data) or _LAST_ID.search(data, tail)
    request_id = None
    if found is not None:
        with suppress(ValueError):  # the ID itself can be malformed, such as 007
            request_id = json.loads(found[1])
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=_parse_error(reason))


def _parse_error(reason: str) -> mcp_types.ErrorData:
    return mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message=_INVALID + reason)


class PendingRequests:
    """Requests of one connection without a response.

    If only one is pending, a response with an unknown ID belongs to it.
    """

    def __init__(self) -> None:
        self._pending: dict[str, mcp_types.RequestId] = {}
        self._known: deque[str] = deque(maxlen=1000)
        """IDs of requests whose response may arrive late or twice."""

    def sent(self, message: Any) -> None:
        """Record a message before it is sent to the server."""
        if isinstance(message, JSONRPCRequest):
            self._known.append(str(message.id))
            if message.method != _ENDLESS:
                self._pending[str(message.id)] = message.id
        elif (
            isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled"
        ):
            self._pending.pop(str((message.params or {}).get("requestId")), None)

    def received(self, message: Any) -> Any:
        """Return a message of the server, or an error response in place of it.

        If a response has an unknown ID while exactly one request is pending, return an error
        response to that request.
        """
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return message
        key = str(message.id)
        if key in self._pending or key in self._known:
            self._pending.pop(key, None)
        elif len(self._pending) == 1:
            _, request_id = self._pending.popitem()
            error = _parse_error("no request has its id")
            if isinstance(message, JSONRPCError):
                error = message.error
            return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
        return message


class MessageFilter(ObjectReceiveStream[Any]):
    """Stream of the incoming messages of one connection, without malformed tools.

    ``PendingRequests`` replaces responses with unknown IDs while exactly one request is
    pending.
    """

    def __init__(self, version: Callable[[], str]) -> None:
        """``version`` returns the protocol version of the connection."""
        self._version = version
        self._requests = PendingRequests()
        self._messages: Any = None
        # `McpConnection.tools` resets both before it lists the tools.
        self.problems: list[str] = []  # one for each malformed tool
        self.listed = 0  # number of tools in the current listing, with the removed tools

    @asynccontextmanager
    async def wrap(self, transport: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any, None]:
        """Open ``transport`` and yield its incoming and outgoing streams with the filter
        applied.
        """
        async with transport as (self._messages, write):
            yield self, _Outgoing(write, self._requests)

    async def receive(self) -> Any:
        item = await self._messages.receive()
        if isinstance(item, SessionMessage):
            item.message = self._requests.received(item.message)
            if isinstance(item.message, JSONRPCResponse):
                await self._drop_unusable(item.message.result)
        return item

    async def aclose(self) -> None:
        await self._messages.aclose()

    async def _drop_unusable(self, result: dict[str, Any]) -> None:
        """Remove malformed tools, and the tools after the first ``MAX_TOOLS``.

        Replace too many content blocks by a text, which makes this one result invalid.
        """
        content = result.get("content")
        if isinstance(content, list) and len(content) > _MAX_BLOCKS:
            result["content"] = f"a list of more than {_MAX_BLOCKS} content blocks"
        tools = result.get("tools")
        if not isinstance(tools, list):
            return
        kept: list[Any] = []
        result["tools"] = kept
        for tool in tools[: max(0, MAX_TOOLS - self.listed)]:
            used = tool
            if isinstance(tool, dict):
                used = {key: tool[key] for key in _USED_KEYS if key in tool}
            try:
                parse_server_result("tools/list", self._version(), {**result, "tools": [used]})
                kept.append(used)
            except ValidationError as error:
                self.problems.append(_tool_problem(tool, error))
            await asyncio.sleep(0)  # so that a long list does not delay requests
        self.listed += len(tools)


class _Outgoing(ObjectSendStream[Any]):
    """Stream of the outgoing messages of one connection, which records the pending requests."""

    def __init__(self, stream: Any, requests: PendingRequests) -> None:
        self._stream = stream
        self._requests = requests

    async def send(self, item: Any) -> None:
        self._requests.sent(item.message)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _tool_problem(tool: Any, error: ValidationError) -> str:
    shown = "without a name"
    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
        shown = repr(shorten(tool["name"], _MAX_SHOWN))
    first = error.errors(include_url=False, include_input=False)[0]
    path = first["loc"][2:]  # without "tools" and the index of the tool
    field = shorten(".".join(map(str, path)), _MAX_SHOWN)
    problem = f"its definition is not valid MCP: {field}: {first['msg']}"
    return f"its tool {shown} cannot be used: {problem}"
