"""Error responses of OpenAI's API, and the lookup of the requested model."""

from __future__ import annotations

from typing import Any

from mochi_stub.http.http_result import Headers, HttpResponse, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.providers.body_validation import ValidationError, kind_of, quoted_list
from mochi_stub.providers.provider_pipeline import find_declared, headers_of, json_response, list_models
from mochi_stub.reply import Failure, HttpError

NOT_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
    "correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you have trouble "
    "figuring out how to fix this, please contact us through our help center at help.openai.com.)"
)
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def error_response(failure: Failure, *_: object, **details: Any) -> HttpResponse:
    headers = (*_rate_limit_headers(failure), *headers_of(failure))
    return json_response({"error": failure_error(failure, **details)}, failure.status, headers)


def failure_error(failure: Failure, **details: Any) -> dict[str, Any]:
    """Return the error object for a response body or a stream event."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    return {
        "message": failure.message,
        "type": "requests" if failure.status == 429 else kind,
        "param": None,
        "code": _CODES.get(failure.status),
        **details,
    }


def find_model(stub: Stub, name: str | None, capability: str) -> Model:
    """Return the model with this name. Without a name, return the first listed model that has the capability.

    Raises HttpError if there is no such model.
    """
    if name is None:
        capable = [model for model in list_models(stub.models) if model.has_capability(capability)]
        if not capable:
            raise HttpError(400, "you must provide a model parameter")
        return capable[0]
    missing = HttpError(404, f"The model `{name}` does not exist or you do not have access to it.")
    return find_declared(stub.models, name, missing)


def format_error(error: ValidationError) -> HttpError:
    """Return the HTTP error for an invalid body, in OpenAI's wording."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.location).removeprefix(".")
    found, expected = error.found, error.expected
    match error.kind:
        case "syntax":
            return HttpError(400, NOT_JSON)
        case "missing":
            message, code = f"Missing required parameter: '{path}'.", "missing_required_parameter"
        case "type":
            place = f"Invalid type for '{path}'" if path else "Invalid type for the request body"
            message = f"{place}: expected {_with_article(expected)}, but got {_with_article(kind_of(found))} instead."
            code = "invalid_type"
        case "value" | "tag":
            supported = quoted_list(expected, " and " if len(expected) == 2 else ", and ")
            message = f"Invalid value: '{found}'. Supported values are: {supported}."
            code = "invalid_value"
        case "empty":
            explanation = f"Expected an array with minimum length {expected}, but got an empty array instead."
            message, code = f"Invalid '{path}': empty array. {explanation}", "empty_array"
        case "low" | "high":
            side, sign, suffix = _LIMITS[error.kind]
            explanation = f"Expected a value {sign} {expected:g}, but got {found} instead."
            message = f"Invalid '{path}': {error.type_name} {side} value. {explanation}"
            code = f"{error.type_name}_{suffix}_value"
    return HttpError(400, message, param=path or None, code=code)


_LIMITS = {"low": ("below minimum", ">=", "below_min"), "high": ("above maximum", "<=", "above_max")}


def _with_article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _rate_limit_headers(failure: Failure) -> Headers:
    if failure.status != 429 or any(name.lower().startswith("x-ratelimit-") for name, _ in failure.headers):
        return ()
    return (
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"0"),
        (b"x-ratelimit-reset-requests", b"1s"),
    )
