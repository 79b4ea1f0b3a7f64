"""Waiting for something only as long as the client does."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio
from fastapi import Request

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection; nobody reads an answer."""


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves. Raises ``ClientGone`` then."""
    result: list[T] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        result.append(await work)
        group.cancel_scope.cancel()
    if not result:
        raise ClientGone
    return result[0]
