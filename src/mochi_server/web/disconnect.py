"""Cancellation of a request's work when its client disconnects."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


class ClientDisconnected(Exception):
    """Signal that the client closed the connection before it received the response."""


async def until_disconnect(request: Request | Receive, work: Awaitable[T]) -> T:
    """Await ``work`` and return its result. On a disconnect, cancel ``work`` and raise ``ClientDisconnected``."""

    def cancel(disconnected: "asyncio.Future[None]") -> None:
        if not disconnected.cancelled():
            disconnected.exception()  # prevents a warning: a connection error counts as a disconnect
            task.cancel()

    task = asyncio.ensure_future(work)  # a task resumes fewer frames per event than an await
    disconnected = asyncio.ensure_future(_disconnect(request.receive if isinstance(request, Request) else request))
    disconnected.add_done_callback(cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if disconnected.done() and not disconnected.cancelled():
            raise ClientDisconnected from None
        raise
    finally:
        disconnected.cancel()


async def read_body(request: Request) -> bytes:
    """Return the request body. Raise ``ClientDisconnected`` if the client disconnects before the body is complete."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientDisconnected from error


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
