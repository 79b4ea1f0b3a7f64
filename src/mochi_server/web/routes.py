"""Classes of routes, their documented errors, and the handlers that convert exceptions to error
responses.
"""

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from mochi_server import errors
from mochi_server.constants import API_PREFIX
from mochi_server.errors import MochiError, ValidationFailed
from mochi_server.schemas.common import REFERENCE
from mochi_server.sessions.settings import reject_unknown
from mochi_server.util.validation import MAX_REPORTED, describe, field_path, to_entry
from mochi_server.web.requests import (
    NATIVE_ERRORS,
    ClientDisconnected,
    ErrorFormat,
    drop_tracebacks,
    error_response,
    route_path,
)

Responses = dict[int | str, dict[str, Any]]

OLLAMA_ERRORS = (errors.OllamaUnreachable, errors.OllamaError, errors.OllamaBusy)
MODEL_ERRORS = (errors.ModelNotFound, *OLLAMA_ERRORS)
STORAGE_ERRORS = (errors.StorageFailed, errors.StorageBusy, errors.SessionTooNew)

_ANY_ERROR = "Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500."
_SAMPLES: dict[Any, Any] = {
    int: 1000,
    int | str: 3,
    int | None: 8192,
    OSError: OSError(28, "Disk full"),
}
_SAMPLES |= {"limit": 1000, "seconds": 60}
_REPLACED_PATHS: dict[str, list[str]] = {
    "/chat": [f"{API_PREFIX}/chat/{{session_id}}", "/v1/chat/completions"],
    "/chat/completion": ["/v1/chat/completions"],
    "/chat/completions": ["/v1/chat/completions"],
    "/generate": ["/v1/completions"],
    "/embed": ["/v1/embeddings"],
    "/tags": [f"{API_PREFIX}/models", "/v1/models"],
}
"""Routes that replace those of Ollama or of OpenAI, by the path without its prefix."""
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


class BodyReleasingRoute(APIRoute):
    """Route that frees the request body when the handler returns, not only after the response has
    been streamed.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            self.check(request)
            copy = Request(request.scope, request.receive)  # only the copy stores the body
            return await handler(copy)

        return handle

    def check(self, request: Request) -> None:
        """Raise ``RequestValidationError`` if the request has an invalid query."""


class StrictRoute(BodyReleasingRoute):
    """Route that rejects unknown query parameters. The error names the nearest known parameter.

    Known are the parameters of the handler, not those of its dependencies.
    """

    def check(self, request: Request) -> None:
        if request.scope["query_string"]:
            known = [parameter.alias for parameter in self.dependant.query_params]
            try:
                reject_unknown(request.query_params, known, kind="query parameter")
            except ValidationError as error:
                problems = [
                    {**problem, "loc": ("query", *problem["loc"])} for problem in error.errors()
                ]
                raise RequestValidationError(problems) from error


class PrefixRouter(APIRouter):
    """Router of strict routes that ignores paths without its prefix.

    FastAPI builds the routes of a router when it matches the first path. Because of the check of
    the prefix, that is the first path with the prefix.
    """

    def __init__(self, *, prefix: str, tags: list[str]) -> None:
        super().__init__(prefix=prefix, tags=[*tags], route_class=StrictRoute)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self.prefix in scope["path"] else (Match.NONE, {})


def responses(*kinds: type[MochiError], form: ErrorFormat = NATIVE_ERRORS) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that can return errors of ``kinds``.

    Each status has one example.
    """
    by_status: dict[int, dict[str, Any]] = {}
    for kind in kinds:
        status, error = _example(sample(kind), form)
        by_status.setdefault(status, {})[error["error"][form.code_field]] = error
    return {status: _response(examples, form) for status, examples in sorted(by_status.items())}


def any_error(form: ErrorFormat = NATIVE_ERRORS) -> Responses:
    """Return FastAPI's ``responses`` argument for the errors that all routes of a protocol can
    return.
    """
    _, error = _example(errors.InternalError(), form)
    return {"default": _response({"": error}, form) | {"description": _ANY_ERROR}}


def _example(error: MochiError, form: ErrorFormat) -> tuple[int, Any]:
    """Return the status and the body of an error.

    The body has no request ID, although a request may be running.
    """
    status, body = Context().run(form.encode, error)
    return status, orjson.loads(body)


def sample(error: type[MochiError]) -> MochiError:
    """Return an instance of an error class, with placeholders as arguments."""
    arguments = {}
    for parameter in inspect.signature(error).parameters.values():
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            fields = error.fields if error.template else ("message",)
            return error(*[_placeholder(name, name) for name in fields])
        if parameter.default is parameter.empty:
            arguments[parameter.name] = _placeholder(parameter.annotation, parameter.name)
    return error(**arguments)


def _placeholder(kind: Any, name: str) -> Any:
    return _SAMPLES.get(kind, f"<{name}>")


def _response(examples: dict[str, Any], form: ErrorFormat) -> dict[str, Any]:
    # A reference instead of a model class, because FastAPI would build about a hundred validators.
    content = {
        "example": next(iter(examples.values())),
        "schema": {"$ref": REFERENCE + form.envelope.__name__},
    }
    return {
        "description": ", ".join(f"`{code}`" for code in examples),
        "content": {"application/json": content},
    }


def add_handlers(app: FastAPI) -> None:
    """Register exception handlers, so that all errors of the app have the same envelope."""
    for kind in (MochiError, RequestValidationError, HTTPException, ClientDisconnected):
        app.add_exception_handler(kind, _on_known_error)
    app.add_exception_handler(Exception, _on_error)


async def _on_known_error(request: Request, exception: Exception) -> Response:
    drop_tracebacks(exception)
    return await _on_error(request, exception)


async def _on_error(request: Request, exception: Exception) -> Response:
    if isinstance(exception, ClientDisconnected):
        return Response(status_code=499)
    error = _to_mochi_error(request, exception)
    headers = {}
    if isinstance(error, errors.MethodNotAllowed):
        headers["Allow"] = error.details["allowed"]
    return error_response(error, request.scope, headers)


def _methods(request: Request) -> set[str]:
    """Return the HTTP methods of all routes that match the path of the request."""
    methods = set()
    for method in _METHODS:
        if Match.FULL in _matches(request, method=method):
            methods.add(method)
    if "GET" in methods:
        methods.add("HEAD")  # see `answer_head`
    return methods


def _matches(request: Request, **changes: str) -> set[Match]:
    """Return how the routes of the app match the request with ``changes`` of its scope."""
    scope = {**request.scope, **changes}
    return {route.matches(scope)[0] for route in request.app.routes}


def _similar_routes(request: Request) -> list[str]:
    """Return paths that exist and that differ from the path of the request only in the prefix."""
    root = request.scope.get("root_path", "")
    rest = re.sub("^(/api|/v1)+(?=/)", "", route_path(request.scope)).rstrip("/")
    paths = _REPLACED_PATHS.get(rest) or [API_PREFIX + rest, "/v1" + rest]
    full = [root + path for path in paths]
    return [path for path in full if _matches(request, path=path) != {Match.NONE}]


def _lacks_session(request: Request) -> bool:
    """Return whether the path of the request would exist if it contained a session ID."""
    sent = request.scope["path"]
    path = re.sub("/(chat|sessions)//", r"/\1/0/", sent)
    if path == sent:
        return False
    matches = _matches(request, path=path)
    return matches != {Match.NONE}


def _to_mochi_error(request: Request, error: Exception) -> MochiError:
    cause = (
        error.__cause__ if isinstance(error, HTTPException) else error
    )  # FastAPI wraps errors of the body
    if isinstance(cause, MochiError):
        return cause
    if isinstance(error, RequestValidationError):
        return _validation_error(error)
    if not isinstance(error, HTTPException):
        return errors.InternalError()
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        return errors.MethodNotAllowed(request.method, request.url.path, allowed)
    if error.status_code == 404:
        return errors.RouteNotFound(
            request.url.path,
            _similar_routes(request),
            request.scope.get("root_path", ""),
            lacks_session=_lacks_session(request),
        )
    # FastAPI raises this error for a body that the JSON parser cannot even decode.
    problem = "The body is not valid JSON: it is not UTF-8, or it nests values too deeply."
    encoding = request.headers.get("Content-Encoding")
    if encoding is not None:
        problem = (
            f"The server does not support the header Content-Encoding: {encoding}. Send the body "
            "uncompressed."
        )
    return ValidationFailed(problem, errors=[])


def _validation_error(error: RequestValidationError) -> ValidationFailed:
    entries = []
    for problem in error.errors()[:MAX_REPORTED]:
        part, *steps = problem["loc"]
        if part == "body" and problem["type"] != "json_invalid":
            steps = [*field_path(problem, steps, error.body)]
        entries.append(to_entry(problem, [part, *steps]))
    message = describe(entries)
    if entries[0]["type"] == "json_invalid":
        message = _json_problem(str(error.body), int(entries[0]["loc"][-1]), error.errors()[0])
    elif entries[0]["type"] == "missing" and entries[0]["loc"] == ["body"]:
        message = "The body is missing. Send a JSON object."
    return ValidationFailed(message, errors=entries)


def _json_problem(text: str, position: int, problem: Mapping[str, Any]) -> str:
    """Return the error message for a body that is not JSON: what is wrong, and where."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    reason = problem["ctx"]["error"].removesuffix(" at")
    message = f"The body is not valid JSON: {reason} at line {line}, column {column}."
    if text[position : position + 1] == "'":
        message += " Use double quotes (\") instead of single quotes (')."
    elif text[:position].rstrip().endswith(",") and text[position : position + 1] in ("}", "]"):
        message += " Remove the comma before it."
    elif reason == "Invalid control character":
        message += r" Write a line break in a string as \n, and a tab as \t."
    return message
