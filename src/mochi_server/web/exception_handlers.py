"""Exception handlers, and the error responses of the OpenAPI document."""

import inspect
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mochi_server import errors
from mochi_server.errors import MochiError, ValidationFailed
from mochi_server.models.common import REFERENCE
from mochi_server.util.validation import MAX_REPORTED, describe, field_path, to_entry
from mochi_server.web.asgi import error_response
from mochi_server.web.disconnect import ClientDisconnected
from mochi_server.web.protocol import NATIVE_ERRORS, ErrorFormat

Responses = dict[int | str, dict[str, Any]]

OLLAMA_ERRORS = (errors.OllamaUnreachable, errors.OllamaError, errors.OllamaBusy)
MODEL_ERRORS = (errors.ModelNotFound, *OLLAMA_ERRORS)
STORAGE_ERRORS = (errors.StorageFailed, errors.StorageBusy, errors.SessionTooNew)

_ANY_ERROR = "Any other error. All routes can return 400, 401, 403, 408, 413, 422, 431 and 500."
_SAMPLES: dict[Any, Any] = {int: 1000, int | str: 3, int | None: 8192, OSError: OSError(28, "Disk full")}
_SAMPLES |= {"limit": 1000, "seconds": 60}
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


def responses(*kinds: type[MochiError], form: ErrorFormat = NATIVE_ERRORS) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that can return errors of ``kinds``.

    Each status has one example.
    """
    by_status: dict[int, dict[str, Any]] = {}
    for kind in kinds:
        status, body = form.encode(sample(kind))
        error = orjson.loads(body)
        by_status.setdefault(status, {})[error["error"][form.code_field]] = error
    return {status: _response(examples, form) for status, examples in sorted(by_status.items())}


def any_error(form: ErrorFormat = NATIVE_ERRORS) -> Responses:
    """Return FastAPI's ``responses`` argument for the errors that all routes of a protocol can return."""
    body = orjson.loads(form.encode(errors.InternalError())[1])
    return {"default": _response({"": body}, form) | {"description": _ANY_ERROR}}


def sample(error: type[MochiError]) -> MochiError:
    """Return an instance of an error class, with placeholders as arguments."""
    required = [p for p in inspect.signature(error).parameters.values() if p.default is p.empty]
    if required[:1] and required[0].kind == inspect.Parameter.VAR_POSITIONAL:
        return error(*(_SAMPLES.get(name, f"<{name}>") for name in (error.fields if error.template else ("message",))))
    return error(**{p.name: _SAMPLES.get(p.annotation, f"<{p.name}>") for p in required})


def _response(examples: dict[str, Any], form: ErrorFormat) -> dict[str, Any]:
    # A reference instead of a model class, because FastAPI would build about a hundred validators.
    content = {"example": next(iter(examples.values())), "schema": {"$ref": REFERENCE + form.envelope.__name__}}
    return {"description": ", ".join(f"`{code}`" for code in examples), "content": {"application/json": content}}


def add_handlers(app: FastAPI) -> None:
    """Register exception handlers, so that all errors of the app have the same envelope."""
    for kind in (MochiError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(ClientDisconnected, _on_client_disconnected)


async def _on_client_disconnected(_: Request, __: Exception) -> Response:
    return Response(status_code=499)


async def _on_error(request: Request, exception: Exception) -> Response:
    error = _to_mochi_error(request, exception)
    headers = {"Allow": ", ".join(_methods(request))} if isinstance(error, errors.MethodNotAllowed) else None
    return error_response(error, request.scope, headers)


def _to_mochi_error(request: Request, error: Exception) -> MochiError:
    if isinstance(error, MochiError):
        return error
    if isinstance(error, RequestValidationError):
        return _validation_error(error)
    if not isinstance(error, HTTPException):
        return errors.InternalError()
    if error.status_code == 405:
        return errors.MethodNotAllowed(request.method, request.url.path)
    if error.status_code == 404:
        return errors.RouteNotFound(request.url.path)
    # FastAPI raises this error for a body that the JSON parser cannot even decode.
    return ValidationFailed("The body is not valid JSON: it is not UTF-8, or it nests values too deeply.", errors=[])


def _methods(request: Request) -> list[str]:
    """Return the HTTP methods of all routes that match the path of the request."""
    routes, scope = request.app.routes, request.scope
    names = {n for n in _METHODS if any(r.matches({**scope, "method": n})[0] is Match.FULL for r in routes)}
    return sorted(names | ({"HEAD"} if "GET" in names else set()))  # see `answer_head`


def _validation_error(error: RequestValidationError) -> ValidationFailed:
    entries = [to_entry(item, _location(item, error.body)) for item in error.errors()[:MAX_REPORTED]]
    message = describe(entries)
    if entries[0]["type"] == "json_invalid":
        message = "The body is not valid JSON."
    elif entries[0]["type"] == "missing" and entries[0]["loc"] == ["body"]:
        message = "The body is missing. Send a JSON object."
    return ValidationFailed(message, errors=entries)


def _location(error: dict[str, Any], body: Any) -> list[str | int]:
    part, *steps = error["loc"]
    if part != "body" or error["type"] == "json_invalid":
        return [part, *steps]
    return [part, *field_path(error, steps, body)]
