"""Errors in the format of Anthropic's API."""

import json
from typing import Literal

from pydantic import BaseModel

from mochi_server.errors import MochiError
from mochi_server.protocols.errors import http_status
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.protocol import ErrorFormat

_TYPES_BY_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicErrorEnvelope(BaseModel):
    """Response body of every error under `/v1/messages`. `error` has a `type` for programs, and a `message`."""

    type: Literal["error"]
    error: dict[Literal["type", "message"], str]
    request_id: str


def encode(error: MochiError) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON body of an error."""
    status = 529 if http_status(error) == 503 else http_status(error)
    fields = {"type": _TYPES_BY_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")}
    body = {"type": "error", "error": fields | {"message": error.message}, "request_id": REQUEST_ID.get()}
    return status, json.dumps(body).encode()


def encode_error(error: MochiError) -> bytes:
    """Return the event that reports ``error`` and ends the stream."""
    return b"event: error\ndata: %s\n\n" % encode(error)[1]


ANTHROPIC_ERRORS = ErrorFormat(AnthropicErrorEnvelope, encode, code_field="type")
