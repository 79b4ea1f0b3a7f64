"""Requests and their clients: headers, the protocol of a path and its errors, and disconnects."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mochi_server.errors import MochiError, Unauthorized
from mochi_server.schemas.common import ErrorEnvelope

ERROR = "mochi.error"
"""Key in the ASGI scope of a request. Its value is the error code of the response."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """Format of the errors of a protocol."""

    envelope: type[BaseModel]
    """Schema of the body."""
    encode: Callable[[MochiError], tuple[int, bytes]]
    """Function that returns the HTTP status and the JSON body of an error."""
    code_field: str = "code"
    """Field in the object `error` of the body that identifies the kind of the error."""


NATIVE_ERRORS = ErrorFormat(ErrorEnvelope, lambda error: (error.status, error.body()))


@dataclass(frozen=True)
class Protocol:
    """Registration of a protocol.

    Its errors and headers apply to all paths below ``prefix`` plus the prefix of ``router``.
    """

    prefix: str
    router: APIRouter
    encode_error: Callable[[MochiError], bytes]
    """Function that returns the bytes that report an error and end a stream."""
    errors: ErrorFormat = NATIVE_ERRORS
    resumes: bool = True
    """Whether clients can resume a stream at another server."""
    turn_paths: Collection[str] = ()
    """Paths after ``prefix`` of the routes that start a turn in the session of the header
    `X-Mochi-Session`.
    """
    request_id_header: str | None = None
    """Header in lower case that contains the request ID, besides `X-Request-ID`."""
    description: str | None = None
    """Description of the router's tag in the OpenAPI document.

    None if another protocol describes the tag.
    """

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern for the paths of the protocol."""
        path = re.sub(r"\{\w+\}", "[^/]+", self.prefix + self.router.prefix)
        return re.compile(f"{path}(/|$)")


def protocol_at(path: str, protocols: Iterable[Protocol]) -> Protocol | None:
    """Return the protocol with the longest prefix of ``path``, or None if the path belongs to the
    native API.
    """
    found: Protocol | None = None
    longest = 0
    for protocol in protocols:
        length = len(protocol.pattern.pattern)
        if length > longest and protocol.pattern.match(path):
            found = protocol
            longest = length
    return found


def header(scope: Scope, name: bytes) -> str:
    """Return the first value of a header, or "" if it is absent. ``name`` is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


def route_path(scope: Scope) -> str:
    """Return the path of a request without the path prefix of a reverse proxy (``root_path``)."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def protocol_of(scope: Scope) -> Protocol | None:
    """Return the protocol of a request, or None for the native API and for middleware outside an
    app.
    """
    if "app" not in scope:
        return None
    return protocol_at(route_path(scope), scope["app"].state.protocols)


def error_response(
    error: MochiError, scope: Scope, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response for an error, with additional ``headers``.

    Store the error code in ``scope``.
    """
    scope[ERROR] = error.code
    protocol = protocol_of(scope)
    form = protocol.errors if protocol else NATIVE_ERRORS
    status, body = form.encode(error)
    sent = dict(headers or {})
    if isinstance(error, Unauthorized):
        sent["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        sent["Retry-After"] = str(error.retry_after)
    return Response(body, status, sent, media_type="application/json")


def body_message(data: bytes, *, more: bool = True) -> Message:
    """Return the ASGI message that sends ``data``.

    If ``more`` is false, the message ends the response.
    """
    return {"type": "http.response.body", "body": data, "more_body": more}


async def send_error(error: MochiError, scope: Scope, send: Send) -> None:
    """Send an error as a complete response."""
    response = error_response(error, scope)
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )
    await send(body_message(bytes(response.body), more=False))


def drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of an error and of the errors that caused it.

    A traceback refers to all data of its request, and often to its own error. Python's garbage
    collection, which runs rarely in this server, would then be needed to free the request.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        pending += [current.__cause__, current.__context__]


class ClientDisconnected(Exception):
    """Signal that the client closed the connection before it received the response."""


async def until_disconnect(request: Request | Receive, work: Awaitable[T]) -> T:
    """Await ``work`` and return its result.

    On a disconnect, or if ``receive`` fails, cancel ``work`` and raise ``ClientDisconnected``. A
    request body that is not yet read is discarded.
    """
    task = asyncio.ensure_future(work)  # a task resumes fewer frames per event than an await
    receive = request.receive if isinstance(request, Request) else request
    disconnected = asyncio.ensure_future(_disconnect(receive))
    disconnected.add_done_callback(partial(_cancel_unless_cancelled, task))
    try:
        return await task
    except asyncio.CancelledError:
        if disconnected.done() and not disconnected.cancelled():
            raise ClientDisconnected from None
        raise
    finally:
        disconnected.cancel()
        del task  # an error of the task refers to this frame


def _cancel_unless_cancelled(
    task: "asyncio.Future[T]", disconnected: "asyncio.Future[None]"
) -> None:
    if not disconnected.cancelled():
        disconnected.exception()  # prevents a warning: a connection error counts as a disconnect
        task.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(request: Request) -> bytes:
    """Return the request body.

    Raise ``ClientDisconnected`` if the client disconnects before the body is complete.
    """
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientDisconnected from error
