"""Filter of malformed tools in the messages of an MCP server.

The SDK rejects the whole list of tools if one tool is malformed. This filter removes such tools before the SDK reads
the list.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from mochi_server.tools.execution import shorten

_METHOD = "tools/list"
_Item = SessionMessage | Exception
_Streams = tuple[Any, Any]
"""Streams of a transport: incoming and outgoing messages."""


class ToolFilter:
    """Filter of the messages of one connection. ``version`` returns the protocol version of the connection."""

    def __init__(self, version: Callable[[], str]) -> None:
        self._version = version
        self.problems: list[str] = []
        """Problems of the removed tools, in the order of their removal."""

    @asynccontextmanager
    async def wrap(self, transport: AbstractAsyncContextManager[_Streams]) -> AsyncGenerator[_Streams, None]:
        """Open ``transport`` and yield its streams with the filter applied to incoming messages."""
        async with transport as (read, write):
            yield _FilteredStream(read, self), write

    def apply(self, item: _Item) -> _Item:
        """Remove the malformed tools of a list of tools in place. Return all other messages unchanged."""
        message = item.message if isinstance(item, SessionMessage) else None
        if (
            isinstance(message, JSONRPCResponse)
            and isinstance(tools := message.result.get("tools"), list)
            and self._error_of(message.result) is not None
        ):
            problems = [_problem(tool, self._error_of({**message.result, "tools": [tool]})) for tool in tools]
            message.result["tools"] = [t for t, problem in zip(tools, problems, strict=True) if problem is None]
            self.problems += filter(None, problems)
        return item

    def _error_of(self, result: dict[str, Any]) -> ValidationError | None:
        """Return the error of a list of tools, or None if the list is valid."""
        try:
            parse_server_result(_METHOD, self._version(), result)
        except ValidationError as error:
            return error
        return None


def _problem(tool: Any, error: ValidationError | None) -> str | None:
    """Return the problem of a tool, or None if ``error`` is None."""
    if error is None:
        return None
    name = tool.get("name") if isinstance(tool, dict) else None
    shown = repr(shorten(name, 100)) if isinstance(name, str) else "without a name"
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"][2:]))
    return f"its tool {shown} cannot be used: its definition is not valid MCP: {field}: {first['msg']}"


class _FilteredStream:
    """Stream of incoming messages with a filter. It implements ``ReadStream`` of the SDK."""

    def __init__(self, stream: Any, tools: ToolFilter) -> None:
        self._stream = stream
        self._tools = tools

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # the SDK reads optional attributes

    async def receive(self) -> _Item:
        return self._tools.apply(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_FilteredStream":
        return self

    async def __anext__(self) -> _Item:
        return self._tools.apply(await self._stream.__anext__())

    async def __aenter__(self) -> "_FilteredStream":
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        is_handled: bool | None = await self._stream.__aexit__(kind, error, traceback)
        return is_handled
