"""Connections to one PostgreSQL database: a pool for short operations, and dedicated connections outside the pool."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncPipeline
from psycopg.abc import PQGen
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from mochi_server.config import without_credentials
from mochi_server.storage.postgres.errors import failure

Row = tuple[Any, ...]
Parameters = Mapping[str, Any] | Sequence[Any] | None
_Result = TypeVar("_Result")

CONNECTIONS = 10
"""Maximum number of connections in the pool. Each process also has two dedicated connections."""
STATEMENT_SECONDS = 15
RESPONSE_SECONDS = STATEMENT_SECONDS + 5
"""Timeout for a response of the database. A frozen database does not enforce its own timeout for statements."""
_CONNECT_SECONDS = 5
_START_SECONDS = 5
_WAIT_SECONDS = 10  # timeout for getting a connection from the pool
_UNREACHABLE_SECONDS = 0.3  # the same timeout during an outage; it is short, because turns retry their writes

_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": _CONNECT_SECONDS,
    "application_name": "mochi-server",
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}
_IDLE_SECONDS = 5  # after this time, the database ends an idle transaction, whose process is probably frozen
_LIMITS = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'"
)
_KEEPALIVES = (
    "SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 2; "
    "SET tcp_user_timeout = '5s'"
)
"""Settings that let the database detect a lost client within seconds and release the locks of that client."""

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # psycopg repeats its warnings on every attempt to connect


class Connection(AsyncConnection[Row]):
    """Connection to the database."""

    pipeline_block: AsyncPipeline | None = None
    """Batch of statements of the current transaction, or None outside of transactions."""
    response_seconds: float | None = RESPONSE_SECONDS
    """Time after which a connection without a response counts as lost, or None for no limit."""

    async def wait(self, gen: PQGen[_Result], *args: Any, **kwargs: Any) -> _Result:
        """Wait for a response. After ``response_seconds``, raise ``OperationalError``, as for a lost connection."""
        if self.response_seconds is None:
            return await super().wait(gen, *args, **kwargs)
        timer = asyncio.get_running_loop().call_later(self.response_seconds, self._disconnect)
        try:
            return await super().wait(gen, *args, **kwargs)
        except asyncio.CancelledError:
            with suppress(psycopg.Error, RuntimeError):
                gen.close()  # after the connection is closed, psycopg's cleanup would fail and print a traceback
            raise
        finally:
            timer.cancel()

    def _disconnect(self) -> None:
        """Shut down the socket, so that the pending read ends. A cancellation would need a response of the database."""
        connected = socket.socket(fileno=self.pgconn.socket)
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)
        connected.detach()


class Database:
    """Connections to the database at ``url``. Open and use an instance in one event loop only."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.reachable = asyncio.Event()
        """Event that is set while the database is reachable. During an outage, requests have a shorter timeout."""
        self.reachable.set()
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            connection_class=Connection,
            min_size=1,
            max_size=CONNECTIONS,
            reconnect_timeout=0.5,
            kwargs=_OPTIONS,
            configure=_configure,
            check=AsyncConnectionPool.check_connection,
            open=False,
        )

    async def open(self, wait_seconds: float = _START_SECONDS) -> None:
        """Open the pool, waiting up to ``wait_seconds`` until the database is reachable. Raises ``StorageFailed``."""
        deadline = time.monotonic() + wait_seconds
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
    async def connection(self, operation: str, wait_seconds: float = _WAIT_SECONDS) -> AsyncIterator[Connection]:
        """Provide a connection from the pool in autocommit mode.

        Database errors are converted to ``StorageFailed``. ``operation`` is the failed operation in the error message.
        """
        timeout = wait_seconds if self.reachable.is_set() else min(wait_seconds, _UNREACHABLE_SECONDS)
        try:
            async with self._pool.connection(timeout) as connection:
                try:
                    yield connection
                except asyncio.CancelledError:
                    await connection.close()  # a late cancel request could cancel the next statement
                    raise
        except (psycopg.Error, TimeoutError) as error:
            raise failure(operation, error) from error

    @asynccontextmanager
    async def transaction(self, operation: str) -> AsyncIterator[Connection]:
        """Provide a connection from the pool in a transaction. Statements are sent in batches to save round trips."""
        async with self.connection(operation) as connection, connection.pipeline() as pipeline:
            connection.pipeline_block = pipeline
            try:
                async with connection.transaction():
                    yield connection
            finally:
                connection.pipeline_block = None

    async def connect(self) -> Connection:
        """Open a dedicated connection outside the pool. Raises ``psycopg.Error``."""
        connection = await Connection.connect(self._url, **_OPTIONS)
        try:
            await _configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        with suppress(PoolTimeout):
            await self._pool.close(timeout=1)


async def fetch_one(connection: Connection, statement: str, values: Parameters = None) -> Row | None:
    """Run a statement and return the first row of its result, or None if the result is empty."""
    return await (await _run(connection, statement, values)).fetchone()


async def fetch_all(connection: Connection, statement: str, values: Parameters = None) -> list[Row]:
    """Run a statement and return all rows of its result."""
    return await (await _run(connection, statement, values)).fetchall()


async def _run(connection: Connection, statement: str, values: Parameters) -> AsyncCursor[Row]:
    """Run a statement and end its batch, because the database applies the idle timeout only between batches."""
    cursor = await connection.execute(statement, values)
    if connection.pipeline_block is not None:
        await connection.pipeline_block.sync()
    return cursor


async def _configure(connection: Connection) -> None:
    await connection.execute(_LIMITS)
    with suppress(psycopg.Error):  # fails for a Unix socket, which has no TCP settings
        await connection.execute(_KEEPALIVES)
