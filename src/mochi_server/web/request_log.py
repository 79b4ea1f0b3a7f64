"""An id for every request, and a line in the log when it has been answered. Knows no route and reads no body."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from time import perf_counter
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.telemetry.logging import FIELDS, REQUEST_ID
from mochi_server.web.asgi import ERROR, header

HEADER = "X-Request-ID"

_NAME = HEADER.lower().encode()
_SANE = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")
"""A client's id that can be repeated in headers and logs."""
_PATH_SHOWN = 300
_CLIENT_CLOSED = 499

logger = logging.getLogger(__name__)


class RequestLogMiddleware:
    """Outermost middleware: every response has the id, that of a failed app included."""

    def __init__(self, app: ASGIApp, on_ended: Callable[[str, int | None, str | None], None]) -> None:
        """``on_ended`` receives the method, the status and the error's code of each request."""
        self._app = app
        self._on_ended = on_ended

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._answer if scope["type"] == "http" else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = header(scope, _NAME)
        request_id = given if _SANE.fullmatch(given) else uuid4().hex
        # Never reset: what the server logs about this request after the app has failed has its id, too.
        REQUEST_ID.set(request_id)
        started = perf_counter()
        status: int | None = None
        ended: str | None = "client_left"

        def pass_on(message: Message) -> Awaitable[None]:  # called for every piece of a stream
            nonlocal status, ended
            if message["type"] == "http.response.body":
                ended = "client_left" if message.get("more_body", False) else None
            elif message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (_NAME, request_id.encode())]
                message = {**message, "headers": headers}
            return send(message)

        try:
            await self._app(scope, receive, pass_on)
        except BaseException as error:
            ended = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
            raise
        finally:
            client = scope.get("client")
            self._on_ended(scope["method"], status, scope.get(ERROR))
            report(
                method=scope["method"],
                path=(scope.get("raw_path") or b"").decode("ascii", "backslashreplace"),
                status=status,
                seconds=perf_counter() - started,
                client=client[0] if client else None,
                ended="client_left" if status == _CLIENT_CLOSED else ended,
                error=scope.get(ERROR),
            )


def report(
    *,
    method: str,
    path: str,
    status: int | None,
    seconds: float,
    client: str | None,
    ended: str | None = None,
    error: str | None = None,
) -> None:
    """One line for a request; the query is left out, because people put secrets there."""
    fields = {
        "method": method,
        "path": path[:_PATH_SHOWN],
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
        "client": client,
        "ended": ended,
        "error": error,
    }
    words = (method, fields["path"], status or "-", f"{fields['duration_ms']} ms", client or "-", error, ended)
    logger.info(" ".join(str(word) for word in words if word), extra={FIELDS: fields})
