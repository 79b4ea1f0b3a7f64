"""Requests of one connection to an MCP server that wait for their responses."""

from collections import deque
from typing import Any

import mcp_types
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

_ENDLESS = "subscriptions/listen"
"""Method of the request whose response arrives when the connection ends."""
_MAX_KNOWN = 1000
_UNKNOWN_ID = mcp_types.ErrorData(
    code=mcp_types.PARSE_ERROR, message="its response is not valid MCP: no request has its id"
)


class PendingRequests:
    """Requests without a response.

    The SDK ignores a response with an unknown ID, and the request then waits for its timeout. If only one request
    is pending, the response belongs to it.
    """

    def __init__(self) -> None:
        self._pending: dict[str, RequestId] = {}
        self._known: deque[str] = deque(maxlen=_MAX_KNOWN)
        """IDs of the latest requests. A response to one of them may arrive late or twice."""

    def sent(self, message: Any) -> None:
        """Note a message before it is sent to the server."""
        if isinstance(message, JSONRPCRequest):
            self._known.append(str(message.id))
            if message.method != _ENDLESS:
                self._pending[str(message.id)] = message.id
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._pending.pop(str((message.params or {}).get("requestId")), None)

    def received(self, message: Any) -> Any:
        """Return a message of the server. If its ID is unknown, return the error of the only pending request."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return message
        if str(message.id) in self._known:
            self._pending.pop(str(message.id), None)
            return message
        if len(self._pending) != 1:
            return message
        _, request_id = self._pending.popitem()
        error = message.error if isinstance(message, JSONRPCError) else _UNKNOWN_ID
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
