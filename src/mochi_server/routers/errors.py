"""How errors become answers: one envelope for everything, and what the documentation says of it."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mochi_server.asgi import ERROR, worded
from mochi_server.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    HostForbidden,
    InternalError,
    MalformedRequest,
    MethodNotAllowed,
    MochiError,
    OriginForbidden,
    RequestTimedOut,
    RouteNotFound,
    Unauthorized,
    ValidationFailed,
)
from mochi_server.models.common import ErrorEnvelope
from mochi_server.models.events import REFERENCE
from mochi_server.models.openai_answers import OpenAIErrorEnvelope
from mochi_server.openai.errors import openai_error, openai_status
from mochi_server.routers.connection import ClientGone
from mochi_server.routers.examples import example, sample

ANY_ROUTE: tuple[type[MochiError], ...] = (
    Unauthorized,
    OriginForbidden,
    HostForbidden,
    BodyTooLarge,
    HeadersTooLarge,
    MalformedRequest,
    RequestTimedOut,
    InternalError,
)
ANY_ERROR = "Any other error, among them what is refused before a route is asked: 401, 403, 408, 413, 431."
"""What the documentation says of ``ANY_ROUTE``."""


def answer(error: MochiError, request: Request) -> Response:
    """An error as a response."""
    request.scope[ERROR] = error.code
    status, body = worded(error, request.scope["path"])
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def responses(*errors: type[MochiError]) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that can end in these errors, an example of each among them."""
    by_status: dict[int, list[type[MochiError]]] = {}
    for error in errors:
        by_status.setdefault(int(error.status), []).append(error)
    return {status: described(*same) for status, same in sorted(by_status.items())}


def described(*errors: type[MochiError], description: str = "") -> dict[str, Any]:
    """A response that is one of these errors."""
    return _described(ErrorEnvelope, [example(error) for error in errors], description)


def openai_responses(*errors: type[MochiError]) -> dict[int | str, dict[str, Any]]:
    """The same for routes that answer with errors of OpenAI's form."""
    by_status: dict[int, list[type[MochiError]]] = {}
    for error in errors:
        by_status.setdefault(openai_status(sample(error)), []).append(error)
    return {status: openai_described(*same) for status, same in sorted(by_status.items())}


def openai_described(*errors: type[MochiError], description: str = "") -> dict[str, Any]:
    """A response that is one of these errors, in OpenAI's form."""
    return _described(OpenAIErrorEnvelope, [openai_error(sample(error)) for error in errors], description)


def _described(envelope: type[BaseModel], bodies: list[dict[str, Any]], description: str) -> dict[str, Any]:
    examples = {code: {"summary": code, "value": body} for body in bodies if (code := body["error"]["code"])}
    return {
        "description": description or ", ".join(f"`{code}`" for code in examples),
        # Named, for FastAPI would build a validator for each of some hundred models given here; the document knows it.
        "content": {"application/json": {"examples": examples, "schema": {"$ref": REFERENCE + envelope.__name__}}},
    }


def add_handlers(app: FastAPI) -> None:
    """Give every error of the app the one envelope."""
    app.add_exception_handler(MochiError, _on_mochi_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientGone, _on_client_gone)
    app.add_exception_handler(Exception, _on_unexpected)


_ERRORS_SHOWN = 20
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


async def _on_mochi_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MochiError)  # noqa: S101 - registered for it
    return answer(error, request)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    return answer(_validation_error(error), request)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    if error.status_code == 405:
        response = answer(MethodNotAllowed(request.method, request.url.path), request)
        response.headers["Allow"] = ", ".join(_methods(request))
        return response
    if error.status_code == 404:
        return answer(RouteNotFound(request.url.path), request)
    return answer(ValidationFailed(str(error.detail)), request)


def _methods(request: Request) -> list[str]:
    """What the path takes. The router names the methods of one route only, also where several share the path."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]


async def _on_client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=499)


async def _on_unexpected(request: Request, __: Exception) -> Response:
    return answer(InternalError(), request)


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
    """Where in the request something is wrong: pydantic's path, without its names for the kinds a field may be of."""
    part, *steps = problem["loc"]
    if part != "body" or problem["type"] == "json_invalid":
        return [part, *steps]
    place, named = [part], steps[-1:] if problem["type"] in ("missing", "extra_forbidden") else []
    for step in steps[: len(steps) - len(named)]:
        if (isinstance(body, dict) and step in body) or (isinstance(body, list) and isinstance(step, int)):
            place.append(step)
            body = body[step]
    return [*place, *named]
