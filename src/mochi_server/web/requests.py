"""Helpers for ASGI middleware: read request headers and send error responses.

Middleware that reads only the request head is a plain function that returns an awaitable. A coroutine would stay in
memory for as long as a stream is open.
"""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Message, Scope, Send

from mochi_server.errors import MochiError, Unauthorized
from mochi_server.web.protocol import NATIVE_ERRORS, Protocol, protocol_at


def header(scope: Scope, name: bytes) -> str:
    """Return the value of a header, or "" if it is absent."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def route_path(scope: Scope) -> str:
    """Return the path of a request without the path prefix of a reverse proxy (``root_path``)."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


ERROR = "mochi.error"
"""Key in the ASGI scope of a request. Its value is the error code of the response."""


def protocol_of(scope: Scope) -> Protocol | None:
    """Return the protocol of a request, or None for the native API and for middleware outside an app."""
    return protocol_at(route_path(scope), scope["app"].state.protocols) if "app" in scope else None


def error_response(error: MochiError, scope: Scope, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, with additional ``headers``. Store the error code in ``scope``."""
    scope[ERROR] = error.code
    protocol = protocol_of(scope)
    status, body = (protocol.errors if protocol else NATIVE_ERRORS).encode(error)
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
