"""The connection pool of the PostgreSQL store gets every connection back."""

import asyncio
import gc
import sys
import time
from contextlib import AsyncExitStack

import anyio
import pytest
from psycopg.waiting import MAX_BUSY_TIME

from mochi_server.storage.postgres.database import CONNECTIONS, Database

pytestmark = pytest.mark.slow


async def test_cancelled_work_returns_every_connection(database: str) -> None:
    opened = Database(database)
    await opened.open()
    try:
        for count in range(1, 3 * CONNECTIONS):
            await cancelled_after(count, opened)
        with anyio.fail_after(30):
            await all_at_once(opened)
    finally:
        await opened.aclose()


async def test_work_cancelled_on_a_busy_event_loop_ends_without_a_message(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", messages.append)
    opened = Database(database)
    await opened.open()

    async def work() -> None:
        async with opened.connection("work") as connection, connection.pipeline():
            keep_event_loop_busy()
            current = asyncio.current_task()
            assert current is not None
            current.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(work())
    gc.collect()
    await opened.aclose()
    assert messages == []


def keep_event_loop_busy() -> None:
    """Run so long that psycopg's next statement yields to the event loop before it is sent."""
    end = time.monotonic() + 2 * MAX_BUSY_TIME
    while time.monotonic() < end:
        pass


async def cancelled_after(count: int, database: Database) -> None:
    """Start more tasks than there are connections, and cancel all after `count` have ended."""
    ended = asyncio.Semaphore(0)

    async def work() -> None:
        async with database.transaction("work") as connection:
            await connection.execute("SELECT 1")
        ended.release()

    tasks = [asyncio.ensure_future(work()) for _ in range(4 * CONNECTIONS)]
    for _ in range(count):
        await ended.acquire()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError)


async def all_at_once(database: Database) -> None:
    """Borrow all connections of the pool."""
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = await stack.enter_async_context(database.connection("borrow"))
            await connection.execute("SELECT 1")
