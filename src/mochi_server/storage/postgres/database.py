"""Connections to one PostgreSQL database, its error messages and its schema.

Errors do not quote the exceptions of the database, because their text may contain chat messages.
"""

import asyncio
import errno
import logging
import math
import re
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, errors, sql
from psycopg.abc import PQGen
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from mochi_server.config import without_credentials
from mochi_server.errors import StorageFailed, StorageUnavailable

Row = tuple[Any, ...]
Parameters = Mapping[str, Any] | Sequence[Any] | None
_Result = TypeVar("_Result")

CONNECTIONS = 10
"""Maximum number of connections in the pool.

Each process also has a dedicated connection for its locks.
"""
STATEMENT_SECONDS = 15
RESPONSE_SECONDS = STATEMENT_SECONDS + 5
"""Timeout for a response of the database.

A frozen database does not enforce its own timeout for statements.
"""
_START_SECONDS = 5
_WAIT_SECONDS = 10  # timeout for getting a connection from the pool
# The same timeout during an outage; it is short, because turns retry their writes.
_UNREACHABLE_SECONDS = 0.3

_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": 5,
    "application_name": "mochi-server",
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}
# The database ends an idle transaction after this time, because its process is probably frozen.
_LIMITS = (
    f"SET statement_timeout = '{STATEMENT_SECONDS}s'; SET idle_in_transaction_session_timeout = "
    "'5s'"
)
_KEEPALIVES = (
    "SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 2; "
    "SET tcp_user_timeout = '5s'"
)
"""Settings that let the database detect a lost client within seconds and release the locks of that
client.
"""

_UNREACHABLE = "the database cannot be reached"
_TOO_SLOW = "the database took too long"
_NO_ANSWER = "the database did not answer in time"
_CROWDED = "the database has no connections left"
_READ_ONLY = "the database is read-only"
_ABORTED = "the database aborted the transaction"
_TRANSIENT = {_UNREACHABLE, _TOO_SLOW, _NO_ANSWER, _CROWDED, _READ_ONLY, _ABORTED}
"""Reasons of errors that may be temporary, for example because the database restarts or fails over,
or because two transactions conflict.
"""
_REFUSED = "the database refuses the user or the password"
_REASONS: dict[type[Exception], str] = {
    errors.DiskFull: "the database's disk is full",
    errors.TooManyConnections: _CROWDED,
    errors.QueryCanceled: _TOO_SLOW,
    errors.LockNotAvailable: _TOO_SLOW,
    errors.ReadOnlySqlTransaction: _READ_ONLY,
    errors.DeadlockDetected: _ABORTED,
    errors.SerializationFailure: _ABORTED,
    errors.IdleInTransactionSessionTimeout: _ABORTED,
    errors.InsufficientPrivilege: "the database user lacks a privilege",
    PoolClosed: "the connections to the database are closed",
    PoolTimeout: _NO_ANSWER,
    TimeoutError: _NO_ANSWER,
}
_CONNECT_REASONS = {
    "invalid (URI|connection option|integer value|port)": "its URL is not a valid PostgreSQL URL",
    'password authentication failed|no password supplied|role ".*" does not exist|no pg_hba.conf '
    "entry": _REFUSED,
    'database ".*" does not exist': "there is no database with that name",
    "too many (clients|connections)|remaining connection slots": _CROWDED,
}
_CONNECTION_CLASSES = ("08", "57")
"""SQLSTATE classes: "08" is a lost connection, "57" an intervention of an operator."""

# "mochi" in ASCII; servers that start at the same time wait for each other.
_SCHEMA_LOCK = 0x6D6F636869
_SCHEMA = "CREATE TABLE mochi_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)"

logger = logging.getLogger(__name__)
# psycopg repeats its warnings on every attempt to connect
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


def unreachable(operation: str) -> StorageUnavailable:
    """Return the error of an operation while the database cannot be reached."""
    return StorageUnavailable(operation, OSError(errno.EIO, _UNREACHABLE))


def failure(operation: str, error: Exception) -> StorageFailed:
    """Convert a database exception to ``StorageUnavailable`` if it may be temporary, otherwise to
    ``StorageFailed``.
    """
    reason = _reason_of(error)
    number = errno.ENOSPC if isinstance(error, errors.DiskFull) else errno.EIO
    kind = StorageUnavailable if reason in _TRANSIENT else StorageFailed
    return kind(operation, OSError(number, reason))


def _reason_of(error: Exception) -> str:
    state = getattr(error, "sqlstate", None)
    if not state:  # errors while connecting have no SQLSTATE
        for pattern, reason in _CONNECT_REASONS.items():
            if re.search(pattern, str(error)):
                return reason
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    is_of_connection = not state or state[:2] in _CONNECTION_CLASSES
    if is_of_connection and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return _UNREACHABLE
    return "the database reports an error" + (f" (SQLSTATE {state})" if state else "")


class Connection(AsyncConnection[Row]):
    """Connection to the database.

    After ``response_seconds`` without a response, the connection counts as lost.
    """

    response_seconds: float = RESPONSE_SECONDS

    async def wait(self, gen: PQGen[_Result], *args: Any, **kwargs: Any) -> _Result:
        """Wait for a response.

        After the timeout, raise ``OperationalError``, as for a lost connection.
        """
        timer = asyncio.get_running_loop().call_later(self.response_seconds, self._disconnect)
        try:
            return await super().wait(gen, *args, **kwargs)
        except asyncio.CancelledError:
            with suppress(psycopg.Error, RuntimeError):
                # after the connection is closed, psycopg's cleanup would fail and print a traceback
                gen.close()
            raise
        finally:
            timer.cancel()

    def _disconnect(self) -> None:
        connected = socket.socket(fileno=self.pgconn.socket)
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)
        connected.detach()  # psycopg closes the file descriptor


class _MigrationConnection(Connection):
    """Connection that waits without a limit: a migration of a large database may take minutes."""

    response_seconds = math.inf


class Database:
    """Connections to the database at ``url``. Open and use an instance in one event loop only."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.reachable = asyncio.Event()
        """Event that is set while the database is reachable. ``ServerProcess`` sets and clears it.

        During an outage, requests have a shorter timeout.
        """
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
        """Open the pool, waiting up to ``wait_seconds`` until the database is reachable.

        Any error of the database, also a wrong password, is retried until then. The last attempt
        may end later. Raises ``StorageFailed``.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                connection = await self.connect()
                await connection.close()
                break
            except psycopg.Error as error:
                if time.monotonic() > deadline:
                    raise failure(
                        f"use the database {without_credentials(self._url)}", error
                    ) from error
            await asyncio.sleep(0.2)
        await self._pool.open()

    @asynccontextmanager
    async def connection(
        self, operation: str, wait_seconds: float = _WAIT_SECONDS
    ) -> AsyncIterator[Connection]:
        """Provide a connection from the pool in autocommit mode.

        Database errors and timeouts, also of the ``with`` body, become ``StorageFailed``.
        """
        timeout = (
            wait_seconds if self.reachable.is_set() else min(wait_seconds, _UNREACHABLE_SECONDS)
        )
        try:
            async with self._pool.connection(timeout) as connection:
                try:
                    yield connection
                except asyncio.CancelledError:
                    # a late cancel request could cancel the next statement
                    await connection.close()
                    raise
        except (psycopg.Error, TimeoutError) as error:
            raise failure(operation, error) from error

    @asynccontextmanager
    async def transaction(self, operation: str) -> AsyncIterator[Connection]:
        """Provide a connection from the pool in a transaction. An error of the body rolls it back.

        Errors become those of ``connection``.
        """
        async with self.connection(operation) as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[Connection]:
        """Provide a connection in a transaction whose statements have no timeout.

        Database errors become ``StorageFailed``.
        """
        try:
            connection = await self.connect(_MigrationConnection)
            async with connection, connection.transaction():
                await connection.execute("SET LOCAL statement_timeout = 0")
                yield connection
        except psycopg.Error as error:
            raise failure("migrate the database schema", error) from error

    async def connect(self, kind: type[Connection] = Connection) -> Connection:
        """Open a dedicated connection outside the pool. Raises ``psycopg.Error``."""
        connection = await kind.connect(self._url, **_OPTIONS)
        try:
            await _configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def aclose(self) -> None:
        with suppress(PoolTimeout):
            await self._pool.close(timeout=1)


async def fetch_one(
    connection: Connection, statement: str, values: Parameters = None
) -> Row | None:
    """Run a statement and return the first row of its result, or None if the result is empty."""
    return await (await connection.execute(statement, values)).fetchone()


async def fetch_all(connection: Connection, statement: str, values: Parameters = None) -> list[Row]:
    """Run a statement and return all rows of its result."""
    return await (await connection.execute(statement, values)).fetchall()


async def _configure(connection: Connection) -> None:
    await connection.execute(_LIMITS)
    with suppress(psycopg.Error):  # fails for a Unix socket, which has no TCP settings
        await connection.execute(_KEEPALIVES)


async def migrate(database: Database) -> int:
    """Run the missing files ``schema/<version>*.sql``, and return the latest version.

    Raises ``StorageFailed``, also for the schema of a later mochi-server.
    """
    scripts = _schema_scripts()
    async with database.migration() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_SCHEMA_LOCK])
        statement = "SELECT to_regclass(quote_ident(current_schema()) || '.mochi_schema') IS NULL"
        ((is_new,),) = await fetch_all(connection, statement)
        if is_new:  # CREATE TABLE IF NOT EXISTS would always require the privilege to create
            await connection.execute(_SCHEMA)
        statement = "SELECT coalesce(max(version), 0) FROM mochi_schema"
        ((version,),) = await fetch_all(connection, statement)
        latest = max(scripts)
        _refuse_later(version, latest)
        missing = [number for number in sorted(scripts) if number > version]
        for number in missing:
            await connection.execute(sql.SQL(scripts[number]))
            await connection.execute(
                "INSERT INTO mochi_schema VALUES (%s, clock_timestamp())", [number]
            )
    if version < latest:
        logger.info("database schema migrated version=%d", latest)
    return latest


async def require_current_schema(database: Database) -> None:
    """Check that the schema has the version of this mochi-server, without a migration.

    Raises ``StorageFailed`` for another version, and for a database without a schema.
    """
    latest = max(_schema_scripts())
    async with database.connection("read the version of the database schema") as connection:
        try:
            row = await fetch_one(connection, "SELECT max(version) FROM mochi_schema")
        except errors.UndefinedTable:
            row = None
    version = (row and row[0]) or 0
    _refuse_later(version, latest)
    if version < latest:
        text = (
            f"its schema has version {version}, but this mochi-server reads version {latest}. "
            "Start a server of this version once, or use the mochi-server of that version"
        )
        raise StorageFailed("use the database", OSError(errno.EINVAL, text))


def _schema_scripts() -> dict[int, str]:
    """Return the SQL script that migrates to each schema version."""
    folder = files("mochi_server.storage.postgres") / "schema"
    scripts = {}
    for path in folder.iterdir():
        if path.name.endswith(".sql"):
            scripts[int(path.name[:4])] = path.read_text()
    return scripts


def _refuse_later(version: int, latest: int) -> None:
    """Raise ``StorageFailed`` for the schema of a later mochi-server."""
    if version > latest:
        text = (
            f"its schema has version {version}, but this mochi-server supports only versions up to "
            f"{latest}"
        )
        raise StorageFailed("use the database", OSError(errno.EINVAL, text))


async def prepare(url: str) -> int:
    """Migrate the database at ``url`` and return the version of its schema.

    Raises ``StorageFailed``.
    """
    database = Database(url)
    try:
        await database.open()
        return await migrate(database)
    finally:
        await database.aclose()
