"""Errors of Anthropic's API, and its answers as JSON."""

from __future__ import annotations

from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.replies.seeded_ids import ALPHANUMERIC, SeededIds
from mochi_stub.reply import Failure
from mochi_stub.wire import provider_pipeline as pipeline
from mochi_stub.wire.body_validation import Problem, choice

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_KINDS = {"array": "list", "object": "dictionary", "decimal": "number"}


def refusal(error: pipeline.HttpError | Problem, stub: Stub, request: Request) -> HttpResponse:
    """Return the answer to a request that is refused."""
    failure = Failure(format_problem(error), 400) if isinstance(error, Problem) else error.failure
    return failure_answer(failure, stub.seeded_ids(request.body))


def json_answer(value: Any, plan: SeededIds, status: int = 200, headers: pipeline.Headers = ()) -> HttpResponse:
    """Return a JSON answer with the ID of its request."""
    return pipeline.json_answer(value, status, ((b"request-id", _request_id(plan).encode()), *headers))


def failure_answer(failure: Failure, plan: SeededIds) -> HttpResponse:
    """Return a failure as an answer of its own."""
    return json_answer(error_body(failure, plan), plan, failure.status, pipeline.headers_of(failure))


def error_body(failure: Failure, plan: SeededIds) -> dict[str, Any]:
    """Return an error, for a body and for a stream."""
    kind = _TYPES.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": _request_id(plan)}


def _request_id(plan: SeededIds) -> str:
    return f"req_{plan.id(0, 24, ALPHANUMERIC)}"


def find_model(stub: Stub, name: str) -> Model:
    """Return the model of that name. Raises Refused."""
    return pipeline.find_declared(stub.models, name, pipeline.HttpError(404, f"model: {name}"))


def format_problem(problem: Problem) -> str:
    """Return what is wrong with a body, in Anthropic's words."""
    wanted, message = problem.wanted, "Field required"
    match problem.kind:
        case "syntax":
            return f"The request body is not valid JSON: {problem.found}"
        case "type":
            message = f"Input should be a valid {_KINDS.get(wanted, wanted)}"
        case "value":
            message = f"Input should be {choice(wanted, ' or ')}"
        case "tag":
            found = f"Input tag '{problem.found}' found using '{problem.where[-1]}'"
            message = f"{found} does not match any of the expected tags: {choice(wanted, ', ')}"
        case "empty":
            message = "at least one message is required"
        case "low":
            message = f"Input should be greater than or equal to {wanted:g}"
        case "high":
            message = f"Input should be less than or equal to {wanted:g}"
    path = ".".join(map(str, problem.where))
    return f"{path}: {message}" if path else message
