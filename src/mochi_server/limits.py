"""What a request may be, as plain ASGI middleware: its size, one meaning only, JSON or nothing. Knows no route."""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.asgi import header, refuse
from mochi_server.errors import BodyTooLarge, HeadersTooLarge, MalformedRequest, ValidationFailed

MAX_HEADER_BYTES = 64 * 1024

_ONCE = (b"host", b"origin", b"authorization", b"content-type", b"content-length", b"transfer-encoding")
_WITH_BODY = {"POST", "PUT", "PATCH", "DELETE"}


class HeadGuard:
    """Refuse oversized heads, and those that others on the way might read differently."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            if _head_bytes(scope) > MAX_HEADER_BYTES:
                return refuse(HeadersTooLarge(MAX_HEADER_BYTES), scope, send)
            if problem := _ambiguity(scope):
                return refuse(MalformedRequest(problem), scope, send)
        return self._app(scope, receive, send)


class JsonGuard:
    """Refuse bodies that are not declared as JSON, on every route: a web page's form must not do anything here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["method"] in _WITH_BODY and not _is_declared(scope):
            problem = "The body must be JSON, sent as `Content-Type: application/json`."
            return refuse(ValidationFailed(problem, errors=[]), scope, send)
        return self._app(scope, receive, send)


class BodyLimit:
    """Refuse bodies over ``max_bytes``, of a declared length or not."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._limit = max_bytes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        declared = header(scope, b"content-length")
        if declared.isdecimal():
            if int(declared) > self._limit:
                return refuse(BodyTooLarge(self._limit), scope, send)
            return self._app(scope, receive, send)
        if not header(scope, b"transfer-encoding"):
            return self._app(scope, receive, send)
        return self._measured(scope, receive, send)

    async def _measured(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._read(receive)
        if body is None:
            return await refuse(BodyTooLarge(self._limit), scope, send)
        return await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> list[Message] | None:
        """All of a body of unknown length; None when it is too long."""
        messages: list[Message] = []
        size = 0
        while True:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self._limit:
                return None
            if message["type"] != "http.request" or not message.get("more_body", False):
                return messages


def _head_bytes(scope: Scope) -> int:
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return size + sum(len(name) + len(value) for name, value in scope["headers"])


def _ambiguity(scope: Scope) -> str | None:
    """Return why a head could be read in two ways, or None."""
    names = [name for name, _ in scope["headers"] if name in _ONCE]
    if len(names) != len(set(names)):
        return "A header that may occur once occurs more often."
    if b"content-length" in names and b"transfer-encoding" in names:
        return "The body has two lengths."
    encoding = header(scope, b"transfer-encoding").strip().lower()
    if encoding and (encoding != "chunked" or scope.get("http_version") == "1.0"):
        return "`Transfer-Encoding` may only be `chunked`, in HTTP/1.1. Send the plain body with `Content-Length`."
    if b"host" not in names and scope.get("http_version") == "1.1":
        return "The Host header is missing."
    return None


def _is_declared(scope: Scope) -> bool:
    """Whether the body, if there is one, is declared as JSON."""
    declared = header(scope, b"content-type")
    if not declared:
        return header(scope, b"content-length") in ("", "0") and not header(scope, b"transfer-encoding")
    media_type = declared.partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json") and "," not in media_type
    )


def _replay(messages: list[Message], receive: Receive) -> Receive:
    pending = iter(messages)

    async def replay() -> Message:
        message = next(pending, None)
        return await receive() if message is None else message

    return replay
