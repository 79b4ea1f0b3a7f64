"""This process among those that share a database: one connection holds all its locks while it lives.

PostgreSQL frees the locks of a connection that ends, however it ends: with its process, its host or the network.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import psycopg

from mochi_server.errors import StorageFailed, StorageUnavailable
from mochi_server.storage.postgres.errors import UNREACHABLE, failure
from mochi_server.storage.postgres.pool import Connection, Database, fetch_all, fetch_one
from mochi_server.util.clock import new_id

NAMESPACES = {"chats": 0x6D01, "agents": 0x6D02, "processes": 0x6D03}
"""Of advisory locks, which are 64-bit numbers; ids are 40 bits of them."""

_HEARTBEAT_SECONDS = 1.0
SILENT_SECONDS = 5
"""Age of a heartbeat that shows that a process is frozen."""
IS_SILENT = f"seen < clock_timestamp() - interval '{SILENT_SECONDS} s'"
_ANSWER_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_RECONNECT_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_HEARTBEAT = """
INSERT INTO processes (name, url) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp()"""
_HELD = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_QUIET = "SELECT name FROM processes WHERE seen < clock_timestamp() - interval '30 s'"
_TIDY = (
    "UPDATE runs SET ended = clock_timestamp() WHERE process = ANY(%(dead)s) AND ended IS NULL",
    "DELETE FROM runs WHERE ended < clock_timestamp() - interval '6 minutes'",
    "DELETE FROM idempotency_keys WHERE process = ANY(%(dead)s) OR claimed < clock_timestamp() - interval '1 day'",
    "DELETE FROM processes WHERE name = ANY(%(dead)s)",
)

logger = logging.getLogger(__name__)


def lock_key(namespace: str, name: str) -> int:
    """Return the number of the lock for a session or a process; names are ten hex digits."""
    return NAMESPACES[namespace] << 40 | int(name, 16)


class ServerProcess:
    """This process and its locks. Belongs to one event loop."""

    def __init__(self, database: Database, url: str = "") -> None:
        """``url`` is where other servers reach this process; empty if it serves no requests."""
        self.name = new_id()
        self.reconnected: Callable[[Connection], Awaitable[None]] | None = None
        """Called after an outage, when the locks that no other process took are held again."""
        self._url = url
        self._database = database
        self._connection: Connection | None = None
        self._held: set[int] = set()
        self._in_use = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether locks can be taken."""
        return self._connection is not None

    async def open(self) -> None:
        """Register this process. Raises ``StorageFailed``."""
        try:
            await self._connect()
        except psycopg.Error as error:
            raise failure("keep locks in the database", error) from error
        self._watching = asyncio.get_running_loop().create_task(self._run_heartbeat())

    async def take(self, key: int) -> bool:
        """Try to take a lock. Raises ``StorageFailed``."""
        try:
            taken = await self._lock("pg_try_advisory_lock", key)
        except StorageUnavailable:  # the pool may have reconnected before this connection
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._database.reachable.wait(), _RECONNECT_SECONDS)
            taken = await self._lock("pg_try_advisory_lock", key)
        if taken:
            self._held.add(key)
        return taken

    async def release(self, key: int) -> None:
        """Release a lock. If that fails, it is free already."""
        self._held.discard(key)
        with suppress(StorageFailed):
            await self._lock("pg_advisory_unlock", key)

    @staticmethod
    async def held(connection: Connection, keys: Iterable[int]) -> set[int]:
        """Return those of some locks that any process holds."""
        return set(keys) & {key for (key,) in await fetch_all(connection, _HELD)}

    async def reap_dead(self) -> None:
        """Remove what dead processes have left, and what is not needed any more. Raises ``StorageFailed``."""
        async with self._database.connection("tidy up") as connection:
            names = {name: lock_key("processes", name) for (name,) in await fetch_all(connection, _QUIET)}
            held = await self.held(connection, names.values())
            for statement in _TIDY:
                await connection.execute(statement, {"dead": [name for name, key in names.items() if key not in held]})

    async def aclose(self) -> None:
        """Release all locks at once: those of a connection that only ends are held for a moment longer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(connection.execute("SELECT pg_advisory_unlock_all()"), _CLOSE_SECONDS)
            await connection.close()

    async def _connect(self) -> None:
        connection = await self._database.connect()
        try:
            await connection.execute("SELECT pg_advisory_lock(%s)", [lock_key("processes", self.name)])
            await connection.execute(_HEARTBEAT, [self.name, self._url])
            for key in list(self._held):
                await connection.execute("SELECT pg_try_advisory_lock(%s)", [key])
            if self.reconnected is not None:
                await self.reconnected(connection)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        self._database.reachable.set()

    async def _lock(self, function: str, key: int) -> bool:
        async with self._in_use:
            if self._connection is None:
                raise StorageUnavailable("hold a session", OSError(5, UNREACHABLE))
            try:
                row = await fetch_one(self._connection, f"SELECT {function}(%(key)s)", {"key": key})
            except psycopg.Error as error:
                self._connection_lost(self._connection)
                raise failure("hold a session", error) from error
        return bool(row and row[0])

    async def _run_heartbeat(self) -> None:
        """Send heartbeats, and reconnect. A database that only cannot write keeps the locks."""
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS if self.connected else _RETRY_SECONDS)
            async with self._in_use:
                if (connection := self._connection) is None:
                    with suppress(psycopg.Error, TimeoutError, asyncio.TimeoutError):
                        await asyncio.wait_for(self._connect(), _ANSWER_SECONDS)
                        logger.warning("the database can be reached again")
                    continue
                try:
                    beat = connection.execute(_HEARTBEAT, [self.name, self._url])
                    await asyncio.wait_for(beat, _ANSWER_SECONDS)
                except psycopg.Error:
                    if connection.closed:
                        self._connection_lost(connection)
                except (TimeoutError, asyncio.TimeoutError):
                    self._connection_lost(connection)

    def _connection_lost(self, connection: Connection) -> None:
        logger.error("the connection to the database is lost; running turns go on and store their answers later")
        self._connection = None
        self._database.reachable.clear()
        connection.pgconn.finish()
