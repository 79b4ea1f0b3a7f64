"""Errors in the format of Anthropic's Messages API."""

import json
from typing import Literal

from mochi_server.errors import ContextOverflow, MochiError, ShuttingDown
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


class AnthropicErrorEnvelope(Schema):
    """Response body of every error under `/v1/messages`.

    `error` has a `type` for programs, and a `message`.
    """

    type: Literal["error"]
    error: dict[Literal["type", "message"], str]
    request_id: str


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
    body = {
        "type": "error",
        "error": {"type": _TYPES_BY_STATUS.get(status, default), "message": message},
        "request_id": REQUEST_ID.get(),
    }
    return status, json.dumps(body).encode()


def encode_error(error: MochiError) -> bytes:
    """Return the event that reports ``error`` and ends the stream."""
    _, body = encode(error)
    return b"event: error\ndata: %s\n\n" % body


ANTHROPIC_ERRORS = ErrorFormat(AnthropicErrorEnvelope, encode, code_field="type")
