"""How Gemini's API says no."""

from __future__ import annotations

import re
from typing import Any

from mochi_stub.answer import Answer, Stub
from mochi_stub.catalogue import Model
from mochi_stub.jsontext import dumps
from mochi_stub.reply import Failure
from mochi_stub.wire.asking import declared, headers_of
from mochi_stub.wire.fields import Problem, Where

JSON = b"application/json; charset=UTF-8"

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
_TYPES = {
    "string": "TYPE_STRING",
    "integer": "TYPE_INT32",
    "decimal": "TYPE_DOUBLE",
    "boolean": "TYPE_BOOL",
    "array": "TYPE_REPEATED",
    "object": "TYPE_MESSAGE",
}


class Refused(Exception):
    """The request ends with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


def json_answer(value: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(status, dumps(value).encode(), JSON, headers)


def refused(status: int, message: str, *, listed: bool = False) -> Answer:
    """An error before anything was sent; `listed`: where a list was to come, the error stands in one."""
    body = error_body(Failure(message, status))
    return json_answer([body] if listed else body, status)


def failure_answer(failure: Failure, *, listed: bool) -> Answer:
    body = error_body(failure)
    return json_answer([body] if listed else body, failure.status, headers_of(failure))


def error_body(failure: Failure) -> dict[str, Any]:
    """An error, as it stands in a body and in a stream; one that asks for patience says for how long."""
    default = "INTERNAL" if failure.status >= 500 else "FAILED_PRECONDITION"
    status = _STATUSES.get(failure.status, default)
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": status}
    if failure.status == 429:
        wait = dict(headers_of(failure))[b"retry-after"].decode("latin-1")
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"}
        error["details"] = [retry]
    return {"error": error}


def find_model(stub: Stub, name: str, version: str, verb: str) -> Model:
    """Raises Refused."""
    model = declared(stub.models, name.removeprefix("models/"))
    if model is None or (verb in _GENERATING and not model.can("completion")):
        raise Refused(
            404,
            f"models/{name} is not found for API version {version}, or is not supported for {verb}. Call ListModels to "
            "see the list of available models and their supported methods.",
        )
    return model


_GENERATING = ("generateContent", "streamGenerateContent")


def worded(problem: Problem) -> str:
    """What is wrong with a body, in Gemini's words."""
    if problem.kind == "syntax":
        return f"Invalid JSON payload received. {problem.found}"
    path = snaked(problem.where)
    if problem.kind == "missing":
        return f"* {path}: {path.rpartition('.')[2]} is not specified\n"
    if problem.kind == "empty":
        return f"* {path}: must not be empty\n"
    if problem.kind in ("low", "high"):
        side = "greater than or equal to" if problem.kind == "low" else "less than or equal to"
        return f"* {path}: must be {side} {problem.wanted:g}, but is {problem.found}\n"
    if problem.kind in ("value", "tag"):
        return f"Invalid value at '{path}' (TYPE_ENUM), {dumps(problem.found)}"
    return f"Invalid value at '{path}' ({_TYPES[problem.wanted]}), {dumps(problem.found)}"


def snaked(where: Where) -> str:
    """`generation_config.max_output_tokens`: names as the protocol declares them, not as JSON writes them."""
    steps = [f"[{step}]" if isinstance(step, int) else "." + re.sub(r"[A-Z]", _lower, step) for step in where]
    return "".join(steps).removeprefix(".")


def _lower(letter: re.Match[str]) -> str:
    return f"_{letter[0].lower()}"
