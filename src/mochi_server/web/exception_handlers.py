"""Exception handlers, and the error responses of the OpenAPI document."""

import inspect
from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mochi_server import errors
from mochi_server.constants import API_PREFIX, OPENAI_PREFIX
from mochi_server.errors import MochiError, ValidationFailed
from mochi_server.models.common import ErrorEnvelope
from mochi_server.models.events import REFERENCE
from mochi_server.models.openai_responses import OpenAIErrorEnvelope
from mochi_server.web.asgi import ERROR, format_error
from mochi_server.web.disconnect import ClientDisconnected

Responses = dict[int | str, dict[str, Any]]

OLLAMA_ERRORS = (errors.OllamaUnreachable, errors.OllamaError)
MODEL_ERRORS = (errors.ModelNotFound, *OLLAMA_ERRORS)
STORAGE_ERRORS = (errors.StorageFailed, errors.StorageBusy)

_ANY_ROUTE = (
    *(errors.Unauthorized, errors.OriginForbidden, errors.HostForbidden, errors.BodyTooLarge),
    *(errors.HeadersTooLarge, errors.MalformedRequest, errors.RequestTimedOut, errors.InternalError),
)
_ANY_ERROR = "Any other error, including those before routing: 400, 401, 403, 408, 413, 431."
_SAMPLES: dict[Any, Any] = {int: 1000, int | str: 3, int | None: 8192, float: 60, OSError: OSError(28, "Disk full")}
_ERRORS_SHOWN = 20
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def responses(*kinds: type[MochiError], prefix: str = API_PREFIX) -> Responses:
    """Return the `responses` of a route with these errors, with an example of each."""
    by_status: dict[int, list[bytes]] = {}
    for kind in kinds:
        status, body = format_error(sample(kind), prefix)
        by_status.setdefault(status, []).append(body)
    return {status: _described(bodies, prefix) for status, bodies in sorted(by_status.items())}


def any_error(prefix: str = API_PREFIX) -> Responses:
    """Return the `responses` that all routes below a prefix share."""
    bodies = [format_error(sample(error), prefix)[1] for error in _ANY_ROUTE]
    return {"default": _described(bodies, prefix) | {"description": _ANY_ERROR}}


def sample(error: type[MochiError]) -> MochiError:
    """Return an example of an error, with placeholders as arguments."""
    required = [each for each in inspect.signature(error).parameters.values() if each.default is each.empty]
    return error(**{p.name: _SAMPLES.get(p.annotation, f"<{p.name}>") for p in required if p.kind != p.VAR_KEYWORD})


def _described(bodies: Sequence[bytes], prefix: str) -> dict[str, Any]:
    envelope = OpenAIErrorEnvelope if prefix == OPENAI_PREFIX else ErrorEnvelope
    values = [orjson.loads(body) for body in bodies]
    examples = {value["error"]["code"]: {"value": value} for value in values}
    return {
        "description": ", ".join(f"`{code}`" for code in examples),
        # A reference, because FastAPI would build a validator for each of about a hundred models given here.
        "content": {"application/json": {"examples": examples, "schema": {"$ref": REFERENCE + envelope.__name__}}},
    }


def add_handlers(app: FastAPI) -> None:
    """Register the handlers that send every error of the app in one envelope."""
    for kind in (MochiError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(ClientDisconnected, _on_client_disconnected)


async def _on_client_disconnected(_: Request, __: Exception) -> Response:
    return Response(status_code=499)


async def _on_error(request: Request, exception: Exception) -> Response:
    error = _to_mochi_error(request, exception)
    request.scope[ERROR] = error.code
    status, body = format_error(error, request.scope["path"])
    headers = {"Allow": ", ".join(_methods(request))} if isinstance(error, errors.MethodNotAllowed) else None
    return Response(body, status, headers, media_type="application/json")


def _to_mochi_error(request: Request, error: Exception) -> MochiError:
    if isinstance(error, MochiError):
        return error
    if isinstance(error, RequestValidationError):
        return _validation_error(error)
    if not isinstance(error, HTTPException):
        return errors.InternalError()
    if error.status_code == 405:
        return errors.MethodNotAllowed(request.method, request.url.path)
    return errors.RouteNotFound(request.url.path) if error.status_code == 404 else ValidationFailed(str(error.detail))


def _methods(request: Request) -> list[str]:
    """Return the methods of a path. The router reports those of one route, even if several share the path."""
    routes, scope = request.app.routes, request.scope
    return [name for name in _METHODS if any(r.matches({**scope, "method": name})[0] is Match.FULL for r in routes)]


def _validation_error(error: RequestValidationError) -> ValidationFailed:
    problems = [
        {"loc": _place(item, error.body), "msg": item["msg"].removeprefix("Value error, "), "type": item["type"]}
        for item in error.errors()
    ]
    first, problems = problems[0], problems[:_ERRORS_SHOWN]
    if first["type"] == "json_invalid":
        return ValidationFailed("The body is not valid JSON.", errors=problems)
    # A field that may be of several kinds has a problem for each of them.
    said = "; ".join(dict.fromkeys(problem["msg"] for problem in problems if problem["loc"] == first["loc"]))
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    return ValidationFailed(f"{where}: {said}" if where else said, errors=problems)


def _place(problem: dict[str, Any], body: Any) -> list[str | int]:
    """Return the path of an invalid field: pydantic's path without the names of union members."""
    part, *steps = problem["loc"]
    if part != "body" or problem["type"] == "json_invalid":
        return [part, *steps]
    place, named = [part], steps[-1:] if problem["type"] in ("missing", "extra_forbidden") else []
    for step in steps[: len(steps) - len(named)]:
        if (isinstance(body, dict) and step in body) or (isinstance(body, list) and isinstance(step, int)):
            place.append(step)
            body = body[step]
    return [*place, *named]
