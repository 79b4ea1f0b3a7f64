"""Errors in the format of OpenAI's APIs."""

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from mochi_server.errors import (
    AgentNotFound,
    ContextOverflow,
    MochiError,
    OllamaBusy,
    Unauthorized,
    ValidationFailed,
)
from mochi_server.schemas.common import Schema
from mochi_server.web.requests import ErrorFormat

_CODES = {
    Unauthorized.code: "invalid_api_key",
    ContextOverflow.code: "context_length_exceeded",
    AgentNotFound.code: "model_not_found",
}
"""Mapping of this server's error codes to OpenAI's error codes. Other codes are sent in lower case.
"""

OPENAI_DONE = b"data: [DONE]\n\n"
"""Server-sent event that ends a stream."""


class OpenAIError(Schema):
    """An error. ``code`` is meant for programs. ``param`` is the invalid field."""

    message: str
    type: str
    param: str | None = None
    code: str


class OpenAIErrorEnvelope(Schema):
    """Response body of every error of OpenAI's routes under `/v1`."""

    error: OpenAIError


def http_status(error: MochiError) -> int:
    """Return the HTTP status of an error in OpenAI's and Anthropic's APIs: 400 for 422, and the
    ``upstream_status`` of ``OllamaBusy``, which is 503 if this server's own queue is full.
    """
    if isinstance(error, OllamaBusy):
        return int(error.details["upstream_status"])
    if error.status == 422:
        return 400
    return error.status


def openai_error(error: MochiError) -> dict[str, Any]:
    """Return an error in OpenAI's format, for an error response or as the last chunk of a failed
    stream.
    """
    fields: dict[str, str | None] = {
        "message": error.message,
        "type": _error_type(http_status(error)),
        "param": None,
        "code": _CODES.get(error.code, error.code.lower()),
    }
    if isinstance(error, ValidationFailed):
        fields |= _first_problem(error)
    elif isinstance(error, AgentNotFound) or ("model" in error.details and error.status < 500):
        fields["param"] = "model"
    return {"error": fields}


def _error_type(status: int) -> str:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "server_error"
    return "invalid_request_error"


def openai_body(error: MochiError) -> bytes:
    return json.dumps(openai_error(error), default=str).encode()


def openai_stream_error(error: MochiError) -> bytes:
    """Return the server-sent events that report ``error`` and end a stream."""
    return b"data: %s\n\n" % openai_body(error) + OPENAI_DONE


OPENAI_ERRORS = ErrorFormat(
    OpenAIErrorEnvelope, lambda error: (http_status(error), openai_body(error))
)


def _first_problem(error: ValidationFailed) -> dict[str, str | None]:
    """Return the message, code and field of the first invalid field of a request."""
    problems = error.details.get("errors")
    if not problems:
        return {"message": error.message, "code": "invalid_request"}
    first = problems[0]
    if first["type"] == "json_invalid":
        return {"message": error.message, "code": "invalid_json"}
    path = _field_path(first["loc"])
    # A field with a union type has one problem per member of the union.
    same_field = [problem["msg"] for problem in problems if _field_path(problem["loc"]) == path]
    text = "; ".join(dict.fromkeys(same_field))
    return {
        "message": f"{path}: {text}" if path else error.message,
        "param": path or None,
        "code": "missing_required_parameter" if first["type"] == "missing" else "invalid_value",
    }


def _field_path(location: Sequence[str | int]) -> str:
    """Return the path of a field in OpenAI's notation, such as ``messages[0].content``.

    ``location`` begins with the part of the request, such as ``body``.
    """
    path = ""
    for step in location[1:]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")
