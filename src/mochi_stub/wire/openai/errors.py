"""How OpenAI's API says no."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mochi_stub.answer import Answer, Handler, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.jsontext import dumps
from mochi_stub.reply import Failure
from mochi_stub.wire.asking import Failed, declared, headers_of
from mochi_stub.wire.fields import Check, Problem, Where, kind_of, read

JSON = b"application/json"

NOT_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
    "correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you have trouble "
    "figuring out how to fix this, please contact us through our help center at help.openai.com.)"
)


class Refused(Exception):
    """The request ends with this status and error."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, type: str | None = None
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.error = {"message": message, "type": type or _type(status), "param": param, "code": code}


def json_answer(value: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(status, dumps(value).encode(), JSON, headers)


Parsed = Callable[[Stub, Request, dict[str, Any]], Result]


def refusing(check: Check, handler: Parsed) -> Handler:
    """The handler, given the checked body, its refusals made into answers."""

    @wraps(handler)
    def answering(stub: Stub, request: Request) -> Result:
        try:
            return handler(stub, request, read(request.body, check))
        except Refused as refusal:
            return json_answer({"error": refusal.error}, refusal.status)
        except Problem as problem:
            return json_answer({"error": worded(problem).error}, 400)
        except Failed as failed:
            return failure_answer(failed.failure)

    return answering


def failure_answer(failure: Failure) -> Answer:
    return json_answer({"error": failure_error(failure)}, failure.status, _limits(failure) + headers_of(failure))


def failure_error(failure: Failure) -> dict[str, Any]:
    """The error of a model that failed, as it stands in a body and in a stream."""
    codes = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    return {
        "message": failure.message,
        "type": _type(failure.status),
        "param": None,
        "code": codes.get(failure.status),
    }


def find_model(stub: Stub, name: str) -> Model:
    """Raises Refused."""
    model = declared(stub.models, name)
    if model is None:
        raise missing_model(name)
    return model


def missing_model(name: str) -> Refused:
    message = f"The model `{name}` does not exist or you do not have access to it."
    return Refused(404, message, code="model_not_found")


def worded(problem: Problem) -> Refused:
    """What is wrong with a body, in OpenAI's words."""
    if problem.kind == "syntax":
        return Refused(400, NOT_JSON)
    path = dotted(problem.where)
    if problem.kind == "missing" and path == "model":
        return Refused(400, "you must provide a model parameter")
    message, code = _WORDS[problem.kind](problem, path)
    return Refused(400, message, param=path or None, code=code)


def dotted(where: Where) -> str:
    """`messages[0].content`"""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in where]
    return "".join(steps).removeprefix(".")


def _missing(_problem: Problem, path: str) -> tuple[str, str]:
    return f"Missing required parameter: '{path}'.", "missing_required_parameter"


def _type_words(problem: Problem, path: str) -> tuple[str, str]:
    named = f"Invalid type for '{path}'" if path else "Invalid type for the request body"
    return f"{named}: expected {_a(problem.wanted)}, but got {_a(kind_of(problem.found))} instead.", "invalid_type"


def _value(problem: Problem, _path: str) -> tuple[str, str]:
    names = [f"'{value}'" for value in problem.wanted]
    choice = names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"
    return f"Invalid value: '{problem.found}'. Supported values are: {choice}.", "invalid_value"


def _empty(problem: Problem, path: str) -> tuple[str, str]:
    expected = f"Expected an array with minimum length {problem.wanted}, but got an empty array instead."
    return f"Invalid '{path}': empty array. {expected}", "empty_array"


def _limit(problem: Problem, path: str) -> tuple[str, str]:
    kind, below = kind_of(problem.found), problem.kind == "low"
    side, sign = ("below minimum", ">=") if below else ("above maximum", "<=")
    code = f"{kind}_{'below_min' if below else 'above_max'}_value"
    expected = f"Expected a value {sign} {problem.wanted:g}, but got {problem.found} instead."
    return f"Invalid '{path}': {kind} {side} value. {expected}", code


_WORDS: dict[str, Callable[[Problem, str], tuple[str, str]]] = {
    "missing": _missing,
    "type": _type_words,
    "value": _value,
    "tag": _value,
    "empty": _empty,
    "low": _limit,
    "high": _limit,
}


def _a(kind: str) -> str:
    """With its article; OpenAI leaves null without one."""
    if kind == "null":
        return kind
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _type(status: int) -> str:
    if status == 429:
        return "requests"
    return "server_error" if status >= 500 else "invalid_request_error"


def _limits(failure: Failure) -> tuple[tuple[bytes, bytes], ...]:
    """What a rate limit tells beside the time to wait."""
    if failure.status != 429 or any(name.lower().startswith("x-ratelimit-") for name, _ in failure.headers):
        return ()
    return (
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"0"),
        (b"x-ratelimit-reset-requests", b"1s"),
    )
