"""Connections to one database: a pool for everything short, and single ones for who needs to keep one."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from mochi_server.config import without_credentials
from mochi_server.postgres.errors import failure, storage

Connection = AsyncConnection[tuple[Any, ...]]

CONNECTIONS = 10
"""The most that a process uses, besides its two single ones."""

STATEMENT_SECONDS = 15
_CONNECT_SECONDS = 5
_START_SECONDS = 5
_PATIENCE_SECONDS = 10
"""How long a request waits for a free connection."""
_UNREACHABLE_SECONDS = 0.3
"""The same while the database is known to be unreachable; turns retry their writes."""

_LIMITS = f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET idle_in_transaction_session_timeout = '15s'"
_NOTICED_WITHIN_SECONDS = (
    "SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 2; "
    "SET tcp_user_timeout = '5s'"
)
"""A host that is gone without a word is one for the database as well, and its locks are free."""

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it quotes the server's words at every try


class Database:
    """One database, by its URL. Belongs to one event loop; open it there."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.reachable = True
        """Cleared while nobody gets through to it: then each request need not wait to find that out."""
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=_PATIENCE_SECONDS,
            reconnect_timeout=0.5,
            kwargs={"autocommit": True, "connect_timeout": _CONNECT_SECONDS, "application_name": "mochi-server"},
            configure=_limit,
            check=AsyncConnectionPool.check_connection,
            open=False,
        )

    async def open(self, patience: float = _START_SECONDS) -> None:
        """Connect; a database that is just starting is waited for that many seconds. Raises ``StorageFailed``."""
        deadline = time.monotonic() + patience
        while True:
            try:
                await (await self.connect()).close()
                break
            except psycopg.Error as error:
                if time.monotonic() > deadline:
                    raise failure(f"use the database {without_credentials(self._url)}", error) from error
            await asyncio.sleep(0.2)
        await self._pool.open()

    @asynccontextmanager
    async def connection(self, doing: str, patience: float = _PATIENCE_SECONDS) -> AsyncIterator[Connection]:
        """A connection in autocommit mode. Raises ``StorageFailed``, which says what was being done."""
        timeout = patience if self.reachable else min(patience, _UNREACHABLE_SECONDS)
        with storage(doing):
            async with self._pool.connection(timeout) as connection:
                try:
                    yield connection
                except asyncio.CancelledError:
                    await connection.close()  # or the cancellation of a statement may still hit the next one
                    raise

    @asynccontextmanager
    async def transaction(self, doing: str) -> AsyncIterator[Connection]:
        """A connection inside a transaction, whose statements go out together where nobody waits for them."""
        async with self.connection(doing) as connection, connection.pipeline(), connection.transaction():
            yield connection

    async def connect(self) -> Connection:
        """A connection of one's own, whose end the database notices within seconds. Raises ``psycopg.Error``."""
        connection = await AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            application_name="mochi-server",
            keepalives_idle=2,
            keepalives_interval=1,
            keepalives_count=3,
            tcp_user_timeout=5000,
        )
        try:
            await _limit(connection)
            with suppress(psycopg.Error):  # not of a socket without TCP
                await connection.execute(_NOTICED_WITHIN_SECONDS)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        """Close the pool."""
        with suppress(PoolTimeout):
            await self._pool.close(timeout=1)


async def _limit(connection: Connection) -> None:
    await connection.execute(_LIMITS)
