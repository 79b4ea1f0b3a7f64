"""JSON and error responses of Anthropic's API, and the lookup of the requested model."""

from __future__ import annotations

from typing import Any

from mochi_stub.http.http_result import HttpResponse, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.replies.seeded_ids import ALPHANUMERIC, SeededIds
from mochi_stub.reply import Failure
from mochi_stub.wire import provider_pipeline as pipeline
from mochi_stub.wire.body_validation import ValidationError, quoted_list

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_KINDS = {"array": "list", "object": "dictionary", "decimal": "number"}


def json_answer(value: Any, ids: SeededIds, status: int = 200, headers: pipeline.Headers = ()) -> HttpResponse:
    """Return a JSON response with the header `request-id`."""
    return pipeline.json_answer(value, status, ((b"request-id", _request_id(ids).encode()), *headers))


def failure_answer(failure: Failure, ids: SeededIds, *_: object) -> HttpResponse:
    return json_answer(error_body(failure, ids), ids, failure.status, pipeline.headers_of(failure))


def error_body(failure: Failure, ids: SeededIds) -> dict[str, Any]:
    """Return the error object for a response body or a stream event."""
    kind = _TYPES.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": _request_id(ids)}


def _request_id(ids: SeededIds) -> str:
    return f"req_{ids.id(0, 24, ALPHANUMERIC)}"


def find_model(stub: Stub, name: str) -> Model:
    """Return the model with this name. Raises HttpError for an unknown name."""
    return pipeline.find_declared(stub.models, name, pipeline.HttpError(404, f"model: {name}"))


def format_error(error: ValidationError) -> pipeline.HttpError:
    """Return the HTTP error for an invalid body, in Anthropic's wording."""
    expected, message = error.expected, "Field required"
    match error.kind:
        case "syntax":
            message = f"The request body is not valid JSON: {error.found}"
        case "type":
            message = f"Input should be a valid {_KINDS.get(expected, expected)}"
        case "value":
            message = f"Input should be {quoted_list(expected, ' or ')}"
        case "tag":
            found = f"Input tag '{error.found}' found using '{error.location[-1]}'"
            message = f"{found} does not match any of the expected tags: {quoted_list(expected, ', ')}"
        case "empty":
            message = "at least one message is required"
        case "low":
            message = f"Input should be greater than or equal to {expected:g}"
        case "high":
            message = f"Input should be less than or equal to {expected:g}"
    path = ".".join(map(str, error.location))
    return pipeline.HttpError(400, f"{path}: {message}" if path else message)
