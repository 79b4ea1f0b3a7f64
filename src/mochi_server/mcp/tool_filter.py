"""Filter of malformed tools in the messages of an MCP server.

The SDK rejects the whole list of tools if one tool is malformed. This filter removes such tools before the SDK reads
the list.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from mochi_server.tools.execution import shorten

_METHOD = "tools/list"
_Streams = tuple[Any, Any]
"""Streams of a transport: first the incoming messages, then the outgoing messages."""


@dataclass(eq=False)
class ToolFilter(ObjectReceiveStream[Any]):
    """Stream of the incoming messages of one connection, without malformed tools."""

    version: Callable[[], str]
    """Function that returns the protocol version of the connection."""
    problems: list[str] = field(default_factory=list)
    """One error message for each removed tool, in the order of removal."""
    _messages: Any = field(default=None, init=False)

    @asynccontextmanager
    async def wrap(self, transport: AbstractAsyncContextManager[_Streams]) -> AsyncGenerator[_Streams, None]:
        """Open ``transport`` and yield its streams with the filter applied to incoming messages."""
        async with transport as (self._messages, write):
            yield self, write

    async def receive(self) -> Any:
        item = await self._messages.receive()
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            self._remove_malformed(item.message.result)
        return item

    async def aclose(self) -> None:
        await self._messages.aclose()

    def _remove_malformed(self, result: dict[str, Any]) -> None:
        """Remove the malformed tools from ``result`` if it is a list of tools."""
        tools = result.get("tools")
        if isinstance(tools, list) and self._error_of(result) is not None:
            problems = [_problem(tool, self._error_of({**result, "tools": [tool]})) for tool in tools]
            result["tools"] = [tool for tool, problem in zip(tools, problems, strict=True) if problem is None]
            self.problems.extend(filter(None, problems))

    def _error_of(self, result: dict[str, Any]) -> ValidationError | None:
        """Return the validation error of a result of ``tools/list``, or None if the result is valid."""
        try:
            parse_server_result(_METHOD, self.version(), result)
        except ValidationError as error:
            return error
        return None


def _problem(tool: Any, error: ValidationError | None) -> str | None:
    """Return a message that explains why ``tool`` is malformed, or None if ``error`` is None."""
    if error is None:
        return None
    name = tool.get("name") if isinstance(tool, dict) else None
    shown = repr(shorten(name, 100)) if isinstance(name, str) else "without a name"
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"][2:]))
    return f"its tool {shown} cannot be used: its definition is not valid MCP: {field}: {first['msg']}"
