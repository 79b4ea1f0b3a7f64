"""Decoder of the messages of MCP servers, with limits.

The SDK rejects a whole message if a part of it is malformed, and the request then waits for its timeout. This decoder
returns an error response instead, so that only the one request fails, with the reason.
"""

import json
import re
from typing import Any

import anyio
import mcp_types
from mcp_types import JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from mochi_server.mcp.config import MAX_MESSAGE_BYTES, MessageTooLarge
from mochi_server.tools.execution import shorten

MAX_TOOLS = 1000
MAX_VALUES = 50_000
"""Maximum number of values in one message. A small value takes a hundred times its size in memory."""
PROBLEM = "mochi-server/problem"
"""Key that replaces the definition of a malformed tool. Its value is the reason."""

_MAX_REPAIRED_BYTES = 256 * 1024
_MAX_DEPTH = 200
_TOO_DEEP = "\udfff too deep"
"""Text that replaces a value that is nested too deeply. It is not valid Unicode, so no valid message contains it."""
_MAX_SHOWN = 100
TOO_MANY_VALUES = f"it has more than {MAX_VALUES:,} values"
_TOKEN = re.compile(rb'"[^"]*"?|[\[{]|[\]}]')
_RESPONSE_KEY = re.compile(rb'"(?:jsonrpc|result|code)"')
"""Key that a response has, but usually not a log line in JSON that a server writes to its stdout."""
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,100}")')


class MessageBuffer:
    """The bytes of one message, which arrive in chunks."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._values = 0
        self._is_in_string = False
        self._escape = b""
        self._end: int | None = None

    def add(self, chunk: bytes) -> None:
        """Add a chunk of at most 64 KiB. Raise ``MessageTooLarge`` if the message exceeds ``MAX_MESSAGE_BYTES``."""
        if len(self._data) + len(chunk) > MAX_MESSAGE_BYTES:
            raise MessageTooLarge
        self._values += self._count(chunk)
        if self._values > MAX_VALUES and self._end is None:
            self._end = len(self._data)
        self._data += chunk

    def take(self) -> tuple[bytes, int | None]:
        """Return the message and empty the buffer. If the message has too many values, also return where to cut it."""
        taken = bytes(self._data), self._end
        self.__init__()  # type: ignore[misc]  # the initial state
        return taken

    def _count(self, chunk: bytes) -> int:
        """Return the number of values that begin in a chunk, without the contents of strings."""
        text = self._escape + chunk
        backslashes = len(text) - len(text.rstrip(b"\\"))
        self._escape = text[len(text) - backslashes % 2 :]
        parts = _mask_escapes(text).split(b'"')
        outside = b" ".join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        return sum(map(outside.count, (b",", b"[", b"{")))


def parse(data: bytes, end: int | None) -> JSONRPCMessage | None:
    """Return a message, or None if it is malformed or has too many values. ``end`` is a result of ``take``."""
    try:
        return None if end is not None else jsonrpc_message_adapter.validate_python(from_json(data), by_name=False)
    except ValueError:
        return None


async def repair(data: bytes, end: int | None) -> JSONRPCMessage | None:
    """Return the error response for a malformed response, or its list of tools without the malformed parts.

    The ID of the error response is None if it cannot be found. The result is None if the data is not a response.
    """
    if not _RESPONSE_KEY.search(data):
        return None
    return await anyio.to_thread.run_sync(_repaired, data, end)  # takes up to a second


def _repaired(data: bytes, end: int | None) -> JSONRPCMessage | None:
    message, reason = _lenient(data, end)
    request_id = message["id"] if isinstance(message.get("id"), int | str) else _find_id(data)
    if "method" in message or (not message and b'"method"' in data[: _first_nested(data)]):
        return None
    result = message.get("result")
    if isinstance(result, dict) and isinstance(result.get("tools"), list):
        result["tools"] = [_without_fault(tool) for tool in result["tools"][: MAX_TOOLS + 1]]
        reason = None
    reason = reason or _fault(message)
    try:
        if reason is None and request_id is not None:
            return jsonrpc_message_adapter.validate_python({**message, "id": request_id}, by_name=False)
    except ValidationError as error:
        reason = _explain(error)
    details = mcp_types.ErrorData(
        code=mcp_types.PARSE_ERROR, message=f"its response is not valid MCP: {reason or 'its id is invalid'}"
    )
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=details)


def _lenient(data: bytes, end: int | None) -> tuple[dict[str, Any], str | None]:
    """Decode a malformed message as far as possible. Return the message and why it cannot be used, if that is known."""
    reason = None if end is None else TOO_MANY_VALUES
    try:
        if end is not None:
            message = from_json(data[:end], allow_partial=True)
        elif len(data) > _MAX_REPAIRED_BYTES:
            message, reason = {}, "it is not valid JSON, or contains text that is not valid Unicode"
        else:
            message = json.loads(_cut_depth(data).decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}, reason or "it is not valid JSON"
    return (message, reason) if isinstance(message, dict) else ({}, "it is not an object")


def _cut_depth(data: bytes) -> bytes:
    """Replace the values that are nested deeper than ``_MAX_DEPTH`` by ``_TOO_DEEP``."""
    depth, kept_until, pieces = 0, 0, []
    for token in _TOKEN.finditer(_mask_escapes(data)):
        if token[0] in b"[{":
            depth += 1
            if depth == _MAX_DEPTH:
                pieces += [data[kept_until : token.start()], json.dumps(_TOO_DEEP).encode()]
        elif token[0] in b"]}":
            depth -= 1
            if depth == _MAX_DEPTH - 1:
                kept_until = token.end()
    return b"".join([*pieces, data[kept_until:]])


def _mask_escapes(data: bytes) -> bytes:
    """Mask escaped backslashes and quotation marks, so that the others mark the ends of strings."""
    return data.replace(rb"\\", b"__").replace(rb"\"", b"__")


def _find_id(data: bytes) -> int | str | None:
    """Return the ID of a message that cannot be decoded, if it is before the first or after the last nested value."""
    closed = max(data.rfind(b"}", 0, data.rfind(b"}")), data.rfind(b"]"))
    found = _ID.search(data, 0, _first_nested(data)) or _ID.search(data, max(closed, 0))
    return None if found is None else json.loads(found[1])


def _first_nested(data: bytes) -> int:
    return min((at for at in (data.find(b"{", 1), data.find(b"[", 1)) if at > 0), default=len(data))


def _without_fault(tool: Any) -> Any:
    """Return a tool, or an entry with its name and the reason if its definition cannot be encoded."""
    if (fault := _fault(tool)) is None:
        return tool
    name = tool.get("name") if isinstance(tool, dict) else None
    return {"name": name if isinstance(name, str) and _fault(name) is None else "", PROBLEM: fault}


def _fault(value: Any) -> str | None:
    """Return why a value cannot be encoded as JSON, or None if it can."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        if error.object.startswith(_TOO_DEEP, error.start):
            return f"it is nested deeper than {_MAX_DEPTH} levels"
        return "it contains text that is not valid Unicode"
    except RecursionError:
        return f"it is nested deeper than {_MAX_DEPTH} levels"
    return None


def _explain(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False)
    # The first part of a location is the type of the message.
    responses = [each for each in details if each["loc"][0] == "JSONRPCResponse" and each["type"] != "missing"]
    first = next(iter(responses), details[-1])
    return shorten(f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}", _MAX_SHOWN)
