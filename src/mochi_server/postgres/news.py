"""Notifications between processes: that there is something in a table for one of them, or for all.

A hint and no more: who waits for something looks for it now and then, so that a missed one costs a delay.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import psycopg

from mochi_server.postgres.database import Connection, Database

_RETRY_SECONDS = 0.5
_EVERYBODY = "mochi_everybody"

_log = logging.getLogger(__name__)


async def tell(connection: Connection, process: str | None, topic: str, subject: str = "") -> None:
    """Tell a process, or everybody, when the connection's transaction is through."""
    channel = _EVERYBODY if process is None else f"mochi_{process}"
    await connection.execute("SELECT pg_notify(%s, %s)", [channel, f"{topic} {subject}"])


class News:
    """What this process is told, on a connection of its own."""

    def __init__(self, database: Database, process: str) -> None:
        self.on: dict[str, Callable[[str], None]] = {}
        """Who hears of a topic; called with its subject."""
        self._database = database
        self._process = process
        self._listening: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to listen."""
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def aclose(self) -> None:
        """Listen no longer."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    async def _listen(self) -> None:
        while True:
            try:
                connection = await self._database.connect()
                async with connection:
                    await connection.execute(f"LISTEN {_EVERYBODY}")
                    await connection.execute(f"LISTEN mochi_{self._process}")
                    async for notification in connection.notifies():
                        self._hear(notification.payload)
            except psycopg.Error as error:
                _log.debug("deaf for a moment: %s", type(error).__name__)
            await asyncio.sleep(_RETRY_SECONDS)

    def _hear(self, payload: str) -> None:
        topic, _, subject = payload.partition(" ")
        with suppress(KeyError):
            self.on[topic](subject)
