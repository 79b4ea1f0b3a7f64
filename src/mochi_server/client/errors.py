"""What a client raises.

ClientError
├── ApiError           the server refuses: code, status and details as in its reference
└── ConnectionFailed   there is no connection, or it was lost for good
"""

import json
from typing import Any

_GATEWAY_STATUSES = frozenset({502, 503, 504})
"""What a proxy says while the server is away."""


class ClientError(Exception):
    """Base of both."""


class ConnectionFailed(ClientError):
    """The server cannot be reached. A turn that had begun goes on, and can be listened to again."""


class Unavailable(ConnectionFailed):
    """A proxy says that the server is away, perhaps for a moment."""


class ApiError(ClientError):
    """The server's own error. ``code`` is for programs (``SESSION_BUSY``), ``status`` the HTTP status."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code} ({self.status}): {self.message}"


def error_of(status: int, body: bytes) -> ClientError:
    """The error that an answer is. One without the envelope comes from something between us and the server."""
    try:
        error = json.loads(body)["error"]
        return ApiError(status, error["code"], error["message"], error.get("details") or {})
    except (ValueError, TypeError, LookupError):
        if status in _GATEWAY_STATUSES:
            return Unavailable(f"Something before the server answers {status}.")
        text = body[:200].decode(errors="replace")
        return ApiError(status, "UNKNOWN", f"The answer is none of mochi-server's: {text}", {})
