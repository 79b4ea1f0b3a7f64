"""Error responses of Gemini's API, and the lookup of the requested model."""

from __future__ import annotations

from functools import partial
from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.replies.seeded_ids import SeededIds
from mochi_stub.reply import Failure
from mochi_stub.wire import provider_pipeline as pipeline
from mochi_stub.wire.body_validation import ValidationError, snake_case
from mochi_stub.wire.json_encoding import dumps

JSON = b"application/json; charset=UTF-8"
json_answer = partial(pipeline.json_answer, content_type=JSON)

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "INVALID_ARGUMENT",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TYPES = {"string": "STRING", "integer": "INT32", "decimal": "DOUBLE", "boolean": "BOOL", "array": "REPEATED"}
_GENERATING = ("generateContent", "streamGenerateContent")


def failure_answer(failure: Failure, _ids: SeededIds, request: Request) -> HttpResponse:
    body = error_body(failure)
    is_list = request.method == "POST" and is_streaming(request) and not sends_events(request)
    return json_answer([body] if is_list else body, failure.status, pipeline.headers_of(failure))


def is_streaming(request: Request) -> bool:
    return request.path.endswith(":streamGenerateContent")


def sends_events(request: Request) -> bool:
    """Return whether a stream consists of server-sent events. Otherwise, it is a JSON array."""
    return request.query.get("alt") == "sse"


def error_body(failure: Failure) -> dict[str, Any]:
    """Return the error object for a response body or a stream. For status 429, it contains the delay before a retry."""
    default = "INTERNAL" if failure.status >= 500 else "FAILED_PRECONDITION"
    status = _STATUSES.get(failure.status, default)
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": status}
    if failure.status == 429:
        delay = dict(pipeline.headers_of(failure))[b"retry-after"].decode("latin-1")
        retry_info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{delay}s"}
        error["details"] = [retry_info]
    return {"error": error}


def find_model(stub: Stub, name: str, version: str, verb: str) -> Model:
    """Return the model with this name. Raises HttpError if the model is unknown or does not support `verb`."""
    message = (
        f"models/{name} is not found for API version {version}, or is not supported for {verb}. Call ListModels to "
        "see the list of available models and their supported methods."
    )
    model = pipeline.find_declared(stub.models, name.removeprefix("models/"), pipeline.HttpError(404, message))
    if verb in _GENERATING and not model.can("completion"):
        raise pipeline.HttpError(404, message)
    return model


def format_error(error: ValidationError) -> pipeline.HttpError:
    """Return the HTTP error for an invalid body. Field names are in snake case, as in Gemini's messages."""
    steps = [f"[{step}]" if isinstance(step, int) else "." + snake_case(step) for step in error.location]
    path = "".join(steps).removeprefix(".")
    match error.kind:
        case "syntax":
            message = f"Invalid JSON payload received. {error.found}"
        case "missing":
            message = f"* {path}: {path.rpartition('.')[2]} is not specified\n"
        case "empty":
            message = f"* {path}: must not be empty\n"
        case "low" | "high":
            side = "greater" if error.kind == "low" else "less"
            message = f"* {path}: must be {side} than or equal to {error.expected:g}, but is {error.found}\n"
        case "value" | "tag" | "type":
            expected = _TYPES.get(error.expected, "MESSAGE") if error.kind == "type" else "ENUM"
            message = f"Invalid value at '{path}' (TYPE_{expected}), {dumps(error.found)}"
    return pipeline.HttpError(400, message)
