"""Helpers for ASGI middleware: read request headers and send error responses.

Middleware that reads only the request head is a plain function that returns an awaitable. A coroutine would stay in
memory for as long as a stream is open.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from mochi_server.errors import MochiError, Unauthorized
from mochi_server.models.common import ErrorEnvelope


def header(scope: Scope, name: bytes) -> str:
    """Return the value of a header, or "" if it is absent."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def route_path(scope: Scope) -> str:
    """Return the path of a request without the path prefix of a reverse proxy (``root_path``)."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


ERROR = "mochi.error"
"""Key in the ASGI scope of a request. Its value is the error code of the response."""


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """Format of the errors of a protocol."""

    envelope: type[BaseModel]
    """Schema of the body."""
    encode: Callable[[MochiError], tuple[int, bytes]]
    """Function that returns the HTTP status and the JSON body of an error."""


NATIVE_ERRORS = ErrorFormat(ErrorEnvelope, lambda error: (error.status, error.body()))


def _error_format(scope: Scope) -> ErrorFormat:
    """Return the format for the path of a request: that of the longest prefix in the app's ``error_formats``."""
    path, formats = f"{route_path(scope)}/", scope["app"].state.error_formats if "app" in scope else {}
    found = [prefix for prefix in formats if path.startswith(f"{prefix}/")]
    return formats[max(found, key=len)] if found else NATIVE_ERRORS


def error_response(error: MochiError, scope: Scope, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, with additional ``headers``. Store the error code in ``scope``."""
    scope[ERROR] = error.code
    status, body = _error_format(scope).encode(error)
    own = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
    if error.retry_after is not None:
        own["Retry-After"] = str(error.retry_after)
    return Response(body, status, {**own, **(headers or {})}, media_type="application/json")


def body_message(data: bytes, *, more: bool = True) -> Message:
    """Return the ASGI message that sends ``data``. If ``more`` is false, the message ends the response."""
    return {"type": "http.response.body", "body": data, "more_body": more}


async def send_error(error: MochiError, scope: Scope, send: Send) -> None:
    """Send an error as a complete response."""
    await error_response(error, scope)(scope, _no_body, send)


async def _no_body() -> Message:
    return {"type": "http.disconnect"}
