"""Errors in the format of Anthropic's Messages API."""

import json
from typing import Any, Literal

from pydantic import Field

from mochi_server.errors import ContextOverflow, MochiError, ShuttingDown, ValidationFailed
from mochi_server.protocols.openai_errors import http_status
from mochi_server.schemas.common import Schema
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.requests import ErrorFormat

_TYPES_BY_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_THREAD_DETAILS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class AnthropicError(Schema):
    """Error with a `type` for programs and a `message`."""

    type: str
    message: str
    details: dict[str, Any] | None = Field(
        None, description="Only for a request with `thread`: why the client must repeat it without."
    )


class AnthropicErrorEnvelope(Schema):
    """Response body of every error under `/v1/messages`."""

    type: Literal["error"]
    error: AnthropicError
    request_id: str


class ThreadUnsupported(ValidationFailed):
    """The request is part of a thread, whose earlier messages Anthropic's API would have stored.

    Anthropic's clients recognize the details, and can send the whole conversation instead.
    """

    def __init__(self) -> None:
        super().__init__(
            "thread: must be left out, because this server stores no threads. Send the whole "
            "conversation, or name a session in the header X-Mochi-Session."
        )


def encode(error: MochiError) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON body of an error."""
    status = http_status(error)
    if status == 503 and not isinstance(error, ShuttingDown):
        status = 529  # proxies repeat only a 503 at another server
    default = "api_error" if status >= 500 else "invalid_request_error"
    message = error.message
    if isinstance(error, ContextOverflow):
        # Clients shorten the conversation if they find these words.
        message = f"prompt is too long: {message}"
    content: dict[str, Any] = {
        "type": _TYPES_BY_STATUS.get(status, default),
        "message": message,
    }
    if isinstance(error, ThreadUnsupported):
        content["details"] = _THREAD_DETAILS
    body = {"type": "error", "error": content, "request_id": REQUEST_ID.get()}
    return status, json.dumps(body).encode()


def encode_error(error: MochiError) -> bytes:
    """Return the event that reports ``error`` and ends the stream."""
    _, body = encode(error)
    return b"event: error\ndata: %s\n\n" % body


ANTHROPIC_ERRORS = ErrorFormat(AnthropicErrorEnvelope, encode, code_field="type")
