"""ASGI middleware that rejects requests with oversized, ambiguous or malformed heads and bodies."""

import re
from collections import deque
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.errors import BodyTooLarge, HeadersTooLarge, MalformedRequest, MochiError, ValidationFailed
from mochi_server.web.asgi import header, send_error

MAX_HEADER_BYTES = 64 * 1024
WRONG_ENCODING = "`Transfer-Encoding` must be `chunked`, in HTTP/1.1. Otherwise send the body with `Content-Length`."

_SINGLE_HEADERS = (b"host", b"origin", b"authorization", b"content-type", b"content-length", b"transfer-encoding")
_WITH_BODY = {"POST", "PUT", "PATCH", "DELETE"}

Check = Callable[[Scope], MochiError | None]
"""Check of a request head. The check returns the error to send, or None if the head is valid."""


class CheckMiddleware:
    """Middleware that runs a check on each request and sends the error if the check fails."""

    def __init__(self, app: ASGIApp, check: Check) -> None:
        self._app = app
        self._check = check

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and (error := self._check(scope)) is not None:
            return send_error(error, scope, send)
        return self._app(scope, receive, send)


def head_check(scope: Scope) -> MochiError | None:
    """Return an error if the request head is too large, invalid or ambiguous. Return None for a valid head.

    A proxy and this server could interpret an ambiguous head as different requests.
    """
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
        return HeadersTooLarge(MAX_HEADER_BYTES)
    problem = _ambiguity(scope)
    return MalformedRequest(problem) if problem else None


def json_check(scope: Scope) -> MochiError | None:
    """Return an error if the body has no JSON content type, so that HTML forms of other sites cannot send requests."""
    if scope["method"] not in _WITH_BODY or _is_json_or_empty(scope):
        return None
    return ValidationFailed("The body must be JSON, sent as `Content-Type: application/json`.", errors=[])


class BodyLimitMiddleware:
    """Middleware that rejects bodies of more than ``max_bytes``, with or without `Content-Length`."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._limit = max_bytes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        declared = header(scope, b"content-length")
        if declared.isdecimal() and int(declared) > self._limit:
            return send_error(BodyTooLarge(self._limit), scope, send)
        if declared.isdecimal() or not header(scope, b"transfer-encoding"):
            return self._app(scope, receive, send)
        return self._call_with_limit(scope, receive, send)

    async def _call_with_limit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body of unknown length completely before the application receives it."""
        messages: deque[Message] = deque()
        size, more = 0, True
        while more:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self._limit:
                return await send_error(BodyTooLarge(self._limit), scope, send)
            more = message["type"] == "http.request" and message.get("more_body", False)

        async def replay() -> Message:
            return messages.popleft() if messages else await receive()

        return await self._app(scope, replay, send)


def _ambiguity(scope: Scope) -> str | None:
    """Return a message that explains why a request head is ambiguous or invalid, or None if it is valid."""
    names = [name for name, _ in scope["headers"] if name in _SINGLE_HEADERS]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        return f"The header {repeated.decode().title()} occurs more than once. Send it once."
    if b"content-length" in names and b"transfer-encoding" in names:
        return "The request has both Content-Length and Transfer-Encoding. Send one of them."
    encoding = header(scope, b"transfer-encoding").strip().lower()
    if encoding and (encoding != "chunked" or scope.get("http_version") == "1.0"):
        return WRONG_ENCODING
    if b"host" not in names and scope.get("http_version") == "1.1":
        return "The Host header is missing. HTTP/1.1 requires it."
    return None


def _is_json_or_empty(scope: Scope) -> bool:
    """Return whether the request has no body or declares it as JSON."""
    declared = header(scope, b"content-type")
    if not declared:
        return header(scope, b"content-length") in ("", "0") and not header(scope, b"transfer-encoding")
    media_type = declared.partition(";")[0].strip().lower()
    return re.fullmatch(r"application/([^,]*\+)?json", media_type) is not None
