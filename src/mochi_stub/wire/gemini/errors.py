"""Errors of Gemini's API."""

from __future__ import annotations

from functools import partial
from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.reply import Failure
from mochi_stub.wire import provider_pipeline as pipeline
from mochi_stub.wire.body_validation import Problem, snake_case
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


def refusal(error: pipeline.HttpError | Problem, _stub: Stub, request: Request) -> HttpResponse:
    """Return the answer to a request that is refused."""
    failure = Failure(format_problem(error), 400) if isinstance(error, Problem) else error.failure
    sends_list = request.path.endswith(":streamGenerateContent") and request.query.get("alt") != "sse"
    return failure_answer(failure, listed=request.method == "POST" and sends_list)


def failure_answer(failure: Failure, *, listed: bool) -> HttpResponse:
    """Return a failure as an answer of its own."""
    body = error_body(failure)
    return json_answer([body] if listed else body, failure.status, pipeline.headers_of(failure))


def error_body(failure: Failure) -> dict[str, Any]:
    """Return an error, for a body and for a stream. A 429 says how long to wait."""
    default = "INTERNAL" if failure.status >= 500 else "FAILED_PRECONDITION"
    status = _STATUSES.get(failure.status, default)
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": status}
    if failure.status == 429:
        wait = dict(pipeline.headers_of(failure))[b"retry-after"].decode("latin-1")
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"}
        error["details"] = [retry]
    return {"error": error}


def find_model(stub: Stub, name: str, version: str, verb: str) -> Model:
    """Return the model of that name. Raises Refused."""
    unsupported = (
        f"models/{name} is not found for API version {version}, or is not supported for {verb}. Call ListModels to "
        "see the list of available models and their supported methods."
    )
    model = pipeline.find_declared(stub.models, name.removeprefix("models/"), pipeline.HttpError(404, unsupported))
    if verb in _GENERATING and not model.can("completion"):
        raise pipeline.HttpError(404, unsupported)
    return model


def format_problem(problem: Problem) -> str:
    """Return what is wrong with a body, in Gemini's words. Names are in snake case, as the protocol declares them."""
    steps = [f"[{step}]" if isinstance(step, int) else "." + snake_case(step) for step in problem.where]
    path = "".join(steps).removeprefix(".")
    match problem.kind:
        case "syntax":
            return f"Invalid JSON payload received. {problem.found}"
        case "missing":
            return f"* {path}: {path.rpartition('.')[2]} is not specified\n"
        case "empty":
            return f"* {path}: must not be empty\n"
        case "low" | "high":
            side = "greater" if problem.kind == "low" else "less"
            return f"* {path}: must be {side} than or equal to {problem.wanted:g}, but is {problem.found}\n"
        case "value" | "tag":
            return f"Invalid value at '{path}' (TYPE_ENUM), {dumps(problem.found)}"
    return f"Invalid value at '{path}' (TYPE_{_TYPES.get(problem.wanted, 'MESSAGE')}), {dumps(problem.found)}"
