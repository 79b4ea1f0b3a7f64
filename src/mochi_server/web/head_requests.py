"""Middleware for HEAD requests. Their responses have the status and headers of a GET response, but no body."""

from collections.abc import Awaitable

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.web.asgi import ERROR


class HeadMiddleware:
    """Middleware that handles HEAD requests as GET requests and drops the body of the response.

    The app receives an empty body, and a disconnect as soon as the response has started, so that streams end at once.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        return self._head(scope, send) if is_head else self._app(scope, receive, send)

    async def _head(self, scope: Scope, send: Send) -> None:
        get, started = {**scope, "method": "GET"}, anyio.Event()
        body: list[Message] = [{"type": "http.request"}]

        async def receive_until_start() -> Message:
            if body:
                return body.pop()
            await started.wait()
            return {"type": "http.disconnect"}

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                started.set()

        await self._app(get, receive_until_start, send_start)
        if ERROR in get:
            scope[ERROR] = get[ERROR]
        if started.is_set():
            await send({"type": "http.response.body", "body": b""})
