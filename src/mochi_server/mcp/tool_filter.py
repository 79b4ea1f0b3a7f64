"""Filter of malformed tools in the messages of an MCP server.

The SDK rejects the whole list of tools if one tool is malformed. This filter removes such tools before the SDK reads
the list.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from mochi_server.mcp.messages import MAX_TOOLS, PROBLEM
from mochi_server.mcp.pending import PendingRequests
from mochi_server.tools.execution import shorten

_METHOD = "tools/list"
_MAX_BLOCKS = 1000
_MAX_WAITING_WRITES = 100
"""Maximum number of messages that wait for the server. If there are more, requests of the server are ignored."""
_USED_KEYS = ("name", "title", "description", "inputSchema", "annotations")
"""Keys of a tool that are used. The SDK would evaluate the other keys, such as slow patterns in ``outputSchema``."""
_Streams = tuple[Any, Any]
"""Streams of a transport: first the incoming messages, then the outgoing messages."""


@dataclass(eq=False)
class ToolFilter(ObjectReceiveStream[Any]):
    """Stream of the incoming messages of one connection, without malformed tools and unknown IDs."""

    version: Callable[[], str]
    """Function that returns the protocol version of the connection."""
    problems: list[str] = field(default_factory=list)
    """One error message for each removed tool, in the order of removal."""
    listed: int = 0
    """Number of tools in the current listing, with the removed tools."""
    _messages: Any = field(default=None, init=False)
    _writes: "_Writes" = field(init=False)

    @asynccontextmanager
    async def wrap(self, transport: AbstractAsyncContextManager[_Streams]) -> AsyncGenerator[_Streams, None]:
        """Open ``transport`` and yield its streams with the filter applied to incoming messages."""
        async with transport as (self._messages, write):
            self._writes = _Writes(write)
            yield self, self._writes

    def start_listing(self) -> None:
        """Forget the tools and problems of the previous listing."""
        self.listed = 0
        self.problems.clear()

    async def receive(self) -> Any:
        item = await self._messages.receive()
        while self._writes.waiting >= _MAX_WAITING_WRITES and _is_request(item):
            item = await self._messages.receive()
        if isinstance(item, SessionMessage):
            item.message = self._writes.requests.received(item.message)
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result = item.message.result
            if isinstance(result.get("tools"), list):
                await self._remove_malformed(result)
            if isinstance(content := result.get("content"), list) and len(content) > _MAX_BLOCKS:
                result["content"] = f"a list of more than {_MAX_BLOCKS} content blocks"
        return item

    async def aclose(self) -> None:
        await self._messages.aclose()

    async def _remove_malformed(self, result: dict[str, Any]) -> None:
        """Remove the malformed tools from a list of tools, and the tools after the first ``MAX_TOOLS``."""
        tools = result["tools"]
        result["tools"] = kept = []
        for tool in tools[: max(0, MAX_TOOLS - self.listed)]:
            used = {key: tool[key] for key in _USED_KEYS if key in tool} if isinstance(tool, dict) else tool
            if (error := self._error_of({**result, "tools": [used]})) is None:
                kept.append(used)
            else:
                self.problems.append(_problem(tool, error))
            await asyncio.sleep(0)  # so that a long list does not delay requests
        self.listed += len(tools)

    def _error_of(self, result: dict[str, Any]) -> ValidationError | None:
        """Return the validation error of a result of ``tools/list``, or None if the result is valid."""
        try:
            parse_server_result(_METHOD, self.version(), result)
        except ValidationError as error:
            return error
        return None


class _Writes(ObjectSendStream[Any]):
    """Stream of the outgoing messages of one connection.

    A server can send requests and read no responses. Each response then waits, in its own task.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.waiting = 0
        """Number of messages that wait until the server reads them."""
        self.requests = PendingRequests()

    async def send(self, item: Any) -> None:
        self.requests.sent(item.message)
        self.waiting += 1
        try:
            await self._stream.send(item)
        finally:
            self.waiting -= 1

    async def aclose(self) -> None:
        await self._stream.aclose()


def _is_request(item: Any) -> bool:
    return isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest)


def _problem(tool: Any, error: ValidationError) -> str:
    """Return a message that explains why ``tool`` is malformed."""
    name = tool.get("name") if isinstance(tool, dict) else None
    shown = repr(shorten(name, 100)) if isinstance(name, str) else "without a name"
    if isinstance(tool, dict) and isinstance(reason := tool.get(PROBLEM), str):
        return f"its tool {shown} cannot be used: {shorten(reason, 100)}"
    first = error.errors(include_url=False, include_input=False)[0]
    field = shorten(".".join(map(str, first["loc"][2:])), 100)
    return f"its tool {shown} cannot be used: its definition is not valid MCP: {field}: {first['msg']}"
