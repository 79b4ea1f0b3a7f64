"""How Anthropic's API says no."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mochi_stub.answer import Answer, Handler, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.jsontext import dumps
from mochi_stub.plan import ALPHANUMERIC, Plan
from mochi_stub.reply import Failure
from mochi_stub.wire.asking import declared, headers_of
from mochi_stub.wire.fields import Check, Problem, read

JSON = b"application/json"

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
_KINDS = {
    "string": "string",
    "array": "list",
    "object": "dictionary",
    "integer": "integer",
    "decimal": "number",
    "boolean": "boolean",
}


class Refused(Exception):
    """The request ends with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


Parsed = Callable[[Stub, Request, dict[str, Any]], Result]


def refusing(check: Check, handler: Parsed) -> Handler:
    """The handler, given the checked body, its refusals made into answers."""

    @wraps(handler)
    def answering(stub: Stub, request: Request) -> Result:
        try:
            return handler(stub, request, read(request.body, check))
        except Refused as refusal:
            return refused(refusal.status, refusal.message, stub.plan(request.body))
        except Problem as problem:
            return refused(400, worded(problem), stub.plan(request.body))

    return answering


def json_answer(value: Any, plan: Plan, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(status, dumps(value).encode(), JSON, ((b"request-id", request_id(plan).encode()), *headers))


def refused(status: int, message: str, plan: Plan) -> Answer:
    return json_answer(error_body(status, message, plan), plan, status)


def failure_answer(failure: Failure, plan: Plan) -> Answer:
    body = error_body(failure.status, failure.message, plan)
    return json_answer(body, plan, failure.status, headers_of(failure))


def error_body(status: int, message: str, plan: Plan) -> dict[str, Any]:
    """An error, as it stands in a body and in a stream."""
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id(plan)}


def request_id(plan: Plan) -> str:
    return f"req_{plan.id(0, 24, ALPHANUMERIC)}"


def find_model(stub: Stub, name: str) -> Model:
    """Raises Refused."""
    model = declared(stub.models, name)
    if model is None:
        raise Refused(404, f"model: {name}")
    return model


def worded(problem: Problem) -> str:
    """What is wrong with a body, in Anthropic's words."""
    if problem.kind == "syntax":
        return f"The request body is not valid JSON: {problem.found}"
    path = ".".join(map(str, problem.where))
    said = _WORDS[problem.kind](problem)
    return f"{path}: {said}" if path else said


def _values(problem: Problem) -> str:
    names = [f"'{value}'" for value in problem.wanted]
    choice = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f"Input should be {choice}"


def _tag(problem: Problem) -> str:
    expected = ", ".join(f"'{value}'" for value in problem.wanted)
    found = f"Input tag '{problem.found}' found using '{problem.where[-1]}'"
    return f"{found} does not match any of the expected tags: {expected}"


_WORDS: dict[str, Callable[[Problem], str]] = {
    "missing": lambda _problem: "Field required",
    "type": lambda problem: f"Input should be a valid {_KINDS[problem.wanted]}",
    "value": _values,
    "tag": _tag,
    "empty": lambda _problem: "at least one message is required",
    "low": lambda problem: f"Input should be greater than or equal to {problem.wanted:g}",
    "high": lambda problem: f"Input should be less than or equal to {problem.wanted:g}",
}
