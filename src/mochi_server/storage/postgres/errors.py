"""Translate exceptions of the database, without its own text, which may quote a conversation."""

import errno
import re

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from mochi_server.errors import StorageFailed, StorageUnavailable

UNREACHABLE = "the database cannot be reached"
_TOO_SLOW = "the database took too long"
_NO_ANSWER = "the database did not answer in time"
_CROWDED = "the database has no connections left"
_READ_ONLY = "the database is read-only"
_TRANSIENT = {UNREACHABLE, _TOO_SLOW, _NO_ANSWER, _CROWDED, _READ_ONLY}
"""Reasons that a restart or a failover of the database explains."""
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (errors.DiskFull, "the database's disk is full"),
    (errors.OutOfMemory, "the database is out of memory"),
    (errors.TooManyConnections, _CROWDED),
    (errors.QueryCanceled, _TOO_SLOW),
    (errors.LockNotAvailable, _TOO_SLOW),
    (errors.ReadOnlySqlTransaction, _READ_ONLY),
    (errors.InvalidPassword, "the database refuses the user or the password"),
    (errors.InvalidAuthorizationSpecification, "the database refuses the user or the password"),
    (errors.InvalidCatalogName, "there is no database of that name"),
    (errors.InsufficientPrivilege, "the database's user has no right to"),
    (errors.UndefinedTable, "the database lacks tables; `mochi-server migrate` makes them"),
    (errors.UndefinedColumn, "the database's schema is another version's; `mochi-server migrate` brings it up to date"),
    (PoolTimeout, _NO_ANSWER),
    (PoolClosed, "the connections to the database are closed"),
    (TimeoutError, _NO_ANSWER),
    (psycopg.OperationalError, UNREACHABLE),
    (psycopg.InterfaceError, UNREACHABLE),
)
_REFUSALS = {
    "invalid (URI|connection option|integer value|port)": "its URL has something that PostgreSQL does not know",
    'password authentication failed|no password supplied|role ".*" does not exist|no pg_hba.conf entry': (
        "the database refuses the user or the password"
    ),
    'database ".*" does not exist': "there is no database of that name",
    "too many (clients|connections)|remaining connection slots": _CROWDED,
}
_CONNECTION_CLASSES = ("08", "57")
"""Classes of SQLSTATEs: lost connections, and connections that an operator ended."""


def describe_error(error: Exception) -> str:
    """Return what is wrong, in words that may be shown to any client."""
    known = next((text for kind, text in _REASONS if isinstance(error, kind)), None)
    state = getattr(error, "sqlstate", None)
    if not state:  # as failures of connecting
        known = next((text for words, text in _REFUSALS.items() if re.search(words, str(error))), known)
    if known == UNREACHABLE and state and state[:2] not in _CONNECTION_CLASSES:
        known = None
    return known or f"the database refuses it{f' (SQLSTATE {state})' if state else ''}"


def failure(operation: str, error: Exception) -> StorageFailed:
    """Return the error for clients."""
    number = errno.ENOSPC if isinstance(error, errors.DiskFull) else errno.EIO
    reason = describe_error(error)
    kind = StorageUnavailable if reason in _TRANSIENT else StorageFailed
    return kind(operation, OSError(number, reason))
