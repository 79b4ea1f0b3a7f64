"""Request ID and access log: one log line for each request."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.errors import ShuttingDown
from mochi_server.sessions.audit import audit
from mochi_server.sessions.caller import CALLER, UNRESTRICTED
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.util.clock import new_id
from mochi_server.util.log_events import FIELDS_ATTRIBUTE
from mochi_server.web.requests import ERROR, header, protocol_of, send_error

HEADER = "X-Request-ID"

_HEADER_BYTES = HEADER.lower().encode()
_REFUSALS = ("UNAUTHORIZED", "FORBIDDEN", "RATE_LIMITED")
"""Error codes of requests that the server refuses because of their API key."""
_VALID_ID = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")  # safe in headers and logs

_QUERY = "mochi.query_string"
"""Key of a request's query in its ASGI scope while FastAPI makes the span of the request."""

logger = logging.getLogger(__name__)


def hide_query(scope: Scope) -> None:
    """Hide the query of a request until ``RequestLogMiddleware`` receives the request.

    A query can contain the words of a search, or secrets of OAuth.
    """
    query = scope.get("query_string")
    if query:
        scope[_QUERY] = query
        scope["query_string"] = b""


class RequestLogMiddleware:
    """Outermost middleware.

    It adds a request ID to every response, including responses to unexpected errors.
    """

    def __init__(
        self, app: ASGIApp, on_ended: Callable[[str, int | None, str | None], None]
    ) -> None:
        """``on_ended`` receives the method, status and error code of each request when the request
        ends.
        """
        self._app = app
        self._on_ended = on_ended

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _QUERY in scope:
            scope["query_string"] = scope.pop(_QUERY)
        return (self._handle if scope["type"] == "http" else self._app)(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        supplied = header(scope, _HEADER_BYTES)
        request_id = supplied if _VALID_ID.fullmatch(supplied) else new_id(32)
        # The ID is never reset, so that log lines after a failure of the app also contain it.
        REQUEST_ID.set(request_id)
        caller = CALLER.set(UNRESTRICTED)  # until a middleware has checked the API key
        names = [_HEADER_BYTES]
        if (protocol := protocol_of(scope)) and protocol.request_id_header:
            names.append(protocol.request_id_header.encode())
        started = perf_counter()
        status: int | None = None
        ended: str | None = "client_left"  # None after a complete response

        def send_with_id(message: Message) -> Awaitable[None]:  # called for every chunk of a stream
            nonlocal status, ended
            if message["type"] == "http.response.body":
                ended = "client_left" if message.get("more_body", False) else None
            elif message["type"] == "http.response.start":
                status = message["status"]
                audit_refusal(scope)
                headers = [
                    *message.get("headers", ()),
                    *((name, request_id.encode()) for name in names),
                ]
                turns = scope["app"].state.services.turns
                if turns.shutdown.is_set():  # so that clients connect to another server
                    headers = [
                        *(each for each in headers if each[0] != b"connection"),
                        (b"connection", b"close"),
                    ]
                message = {**message, "headers": headers}
            return send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and status is None:  # uvicorn cancels the last requests at a shutdown
                await send_error(ShuttingDown(), scope, send_with_id)
            ended = "cancelled" if is_cancelled else "failed"
            raise
        finally:
            code = scope.get(ERROR)
            self._on_ended(scope["method"], status, code)
            report(
                method=scope["method"],
                path=logged_path(scope),
                status=status,
                duration_ms=round((perf_counter() - started) * 1000, 1),
                client=scope["client"][0] if scope.get("client") else None,
                ended="client_left" if status == 499 else ended,
                error=code,
                key=CALLER.get().key or None,
            )
            CALLER.reset(caller)


def audit_refusal(scope: Scope) -> None:
    """Add a line to the audit log if the API key of a request was refused.

    It is called before the answer is sent, so that the caller cannot act before the line exists.
    """
    code = scope.get(ERROR)
    if code in _REFUSALS:
        audit("API key refused", error=code, method=scope["method"], path=logged_path(scope))


def logged_path(scope: Scope) -> str:
    """Return the start of a request's path, without the query, which may contain secrets."""
    path = scope.get("raw_path") or b""
    return path.decode("ascii", "backslashreplace")[:300]


def report(**fields: Any) -> None:
    """Log one line for an ended request: its method, path, status, duration_ms, client, ended,
    error and key.
    """
    duration = f"{fields['duration_ms']} ms"
    words = (
        *(fields[name] or "-" for name in ("method", "path", "status")),
        duration,
        fields["client"] or "-",
    )
    text = " ".join(str(word) for word in (*words, fields["error"], fields["ended"]) if word)
    logger.info(text, extra={FIELDS_ATTRIBUTE: fields})
