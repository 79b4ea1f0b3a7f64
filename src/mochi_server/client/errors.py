"""Errors of the client.

ClientError
├── ApiError           the server rejected the request
└── ConnectionFailed   the server cannot be reached, or the connection was lost
"""

import json
from typing import Any

_GATEWAY_STATUSES = frozenset({502, 503, 504})
"""HTTP status codes that a proxy sends if it cannot reach the server."""


class ClientError(Exception):
    """Base class of the errors of the client."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, or the connection was lost. A turn that has started continues on the server.

    Call ``listen`` to receive the remaining events of the turn.
    """


class Unavailable(ConnectionFailed):
    """A proxy cannot reach the server at the moment."""


class ApiError(ClientError):
    """An error response with its HTTP ``status`` and the server's error ``code``, such as ``SESSION_BUSY``."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code} ({self.status}): {self.message}"


def parse_error(status: int, body: bytes) -> ClientError:
    """Return the exception for an error response: ``Unavailable`` if it is from a proxy, otherwise ``ApiError``."""
    try:
        error = json.loads(body)["error"]
        return ApiError(status, error["code"], error["message"], error.get("details") or {})
    except (ValueError, TypeError, LookupError):
        if status in _GATEWAY_STATUSES:
            return Unavailable(f"A proxy cannot reach the server (HTTP status {status}).")
        text = body[:200].decode(errors="replace")
        return ApiError(
            status, "UNKNOWN", f"The response is not from mochi-server; check the URL. It begins with: {text}", {}
        )
