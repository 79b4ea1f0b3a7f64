"""Waiting for something only as long as the client does."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection; nobody reads an answer."""


async def until_disconnect(request: Request | Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, or its error; it is cancelled when the client leaves, and ``ClientGone`` raised."""
    receive = request.receive if isinstance(request, Request) else request
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(receive))
    leaving.add_done_callback(lambda _: working.cancel())  # `asyncio.wait` takes more memory, for each open stream
    try:
        return await working
    except asyncio.CancelledError:
        if leaving.done():
            raise ClientGone from None
        raise
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def whole_body(request: Request) -> bytes:
    """The bytes of a body. Raises ``ClientGone`` when the client leaves before its end."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise ClientGone from error


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
