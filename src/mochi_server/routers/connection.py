"""Work that lasts only as long as the client is connected."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection; no response is read any more."""


async def until_disconnect(request: Request | Receive, work: Awaitable[T]) -> T:
    """Return the result of ``work``. Cancel it and raise ``ClientGone`` when the client disconnects."""

    def cancel(watching: "asyncio.Future[None]") -> None:
        if not watching.cancelled():
            watching.exception()  # a broken connection is a closed one
            working.cancel()

    working = asyncio.ensure_future(work)  # a task of its own: each event then resumes few frames
    watching = asyncio.ensure_future(_disconnect(request.receive if isinstance(request, Request) else request))
    watching.add_done_callback(cancel)
    try:
        return await working
    except asyncio.CancelledError:
        if watching.done() and not watching.cancelled():
            raise ClientGone from None
        raise
    finally:
        watching.cancel()


class BodyReleasingRoute(APIRoute):
    """Route that frees the body of a request when its handler returns, although the response may last for minutes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(Request(request.scope, request.receive))  # a copy reads, and keeps, the body

        return handle


async def whole_body(request: Request) -> bytes:
    """Return the bytes of a body. Raises ``ClientGone`` when the client disconnects before its end."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientGone from error


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
