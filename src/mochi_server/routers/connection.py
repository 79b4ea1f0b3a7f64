"""Work that lasts only as long as the client is connected."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection; no response is read any more."""


async def until_disconnect(request: Request | Receive, work: Awaitable[T]) -> T:
    """Return the result of ``work``. Cancel it and raise ``ClientGone`` when the client disconnects."""
    with anyio.CancelScope() as scope:

        def cancel(watching: "asyncio.Future[None]") -> None:
            if not watching.cancelled():
                scope.cancel()

        watching = asyncio.ensure_future(_disconnect(request.receive if isinstance(request, Request) else request))
        watching.add_done_callback(cancel)
        try:
            return await work
        finally:
            watching.cancel()
    raise ClientGone


async def whole_body(request: Request) -> bytes:
    """Return the bytes of a body. Raises ``ClientGone`` when the client disconnects before its end."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientGone from error


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
