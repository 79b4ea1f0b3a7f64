"""An id for every request, and a line in the log when it has been answered. Knows no route and reads no body."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from time import perf_counter
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.asgi import ERROR, header
from mochi_server.logs import FIELDS, REQUEST_ID

HEADER = "X-Request-ID"

_NAME = HEADER.lower().encode()
_SANE = re.compile(r"[A-Za-z0-9._:/+=@~-]{1,128}")
_PATH_SHOWN = 300
_CLIENT_CLOSED = 499

logger = logging.getLogger(__name__)


class RequestLog:
    """Outermost: what any other part of the app answers bears the id."""

    def __init__(self, app: ASGIApp, ended: Callable[[str, int | None, str | None], None]) -> None:
        """``ended`` receives the method, the status and the error's code of each request."""
        self._app = app
        self._ended = ended

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._answer if scope["type"] == "http" else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, self._ended)
        # Never reset: what the server says about this request after the app has failed is of this request, too.
        REQUEST_ID.set(exchange.request_id)
        try:
            await self._app(scope, receive, exchange.through(send))
        except asyncio.CancelledError:
            exchange.report("cancelled")
            raise
        except BaseException:
            exchange.report("failed")
            raise
        exchange.report(None if exchange.is_whole else "client_left")


class _Exchange:
    """A request and how far its answer has come."""

    def __init__(self, scope: Scope, ended: Callable[[str, int | None, str | None], None]) -> None:
        self.request_id = accepted(header(scope, _NAME))
        self.is_whole = False
        self._scope = scope
        self._ended = ended
        self._started = perf_counter()
        self._status: int | None = None

    def through(self, send: Send) -> Send:
        """``send``, noting what passes: called for every piece of a stream, so it does next to nothing."""

        def pass_on(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body":
                self.is_whole = not message.get("more_body", False)
            elif message["type"] == "http.response.start":
                message = self._marked(message)
            return send(message)

        return pass_on

    def report(self, ended: str | None) -> None:
        """Write the line. ``ended`` says why, where the answer did not come to its end."""
        if self._status == _CLIENT_CLOSED:
            ended = "client_left"
        client = self._scope.get("client")
        self._ended(self._scope["method"], self._status, self._scope.get(ERROR))
        report(
            method=self._scope["method"],
            path=(self._scope.get("raw_path") or b"").decode("ascii", "backslashreplace"),
            status=self._status,
            seconds=perf_counter() - self._started,
            client=client[0] if client else None,
            ended=ended,
            error=self._scope.get(ERROR),
        )

    def _marked(self, message: Message) -> Message:
        self._status = message["status"]
        return {**message, "headers": [*message.get("headers", ()), (_NAME, self.request_id.encode())]}


def accepted(given: str) -> str:
    """A client's id for its request, or a fresh one where that is none to be repeated in headers and logs."""
    return given if _SANE.fullmatch(given) else uuid4().hex


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
    words = [
        method,
        fields["path"],
        status or "-",
        f"{fields['duration_ms']} ms",
        client or "-",
        error or "",
        ended or "",
    ]
    logger.info(" ".join(str(word) for word in words if word != ""), extra={FIELDS: fields})
