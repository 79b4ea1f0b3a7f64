"""Cancellation of the work for a request when its client disconnects."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


class ClientDisconnected(Exception):
    """The client closed the connection and reads no response."""


async def until_disconnect(request: Request | Receive, work: Awaitable[T]) -> T:
    """Return the result of ``work``. Cancel it and raise ``ClientDisconnected`` when the client disconnects."""

    def cancel(watching: "asyncio.Future[None]") -> None:
        if not watching.cancelled():
            watching.exception()  # retrieve it: a broken connection counts as closed
            working.cancel()

    working = asyncio.ensure_future(work)  # a separate task resumes fewer frames for each event
    watching = asyncio.ensure_future(_disconnect(request.receive if isinstance(request, Request) else request))
    watching.add_done_callback(cancel)
    try:
        return await working
    except asyncio.CancelledError:
        if watching.done() and not watching.cancelled():
            raise ClientDisconnected from None
        raise
    finally:
        watching.cancel()


class BodyReleasingRoute(APIRoute):
    """Route that frees the request body when its handler returns. The response may last for minutes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(Request(request.scope, request.receive))  # the copy reads and holds the body

        return handle


async def read_body(request: Request) -> bytes:
    """Return the bytes of a request body. Raises ``ClientDisconnected`` if the client disconnects before its end."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientDisconnected from error


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
