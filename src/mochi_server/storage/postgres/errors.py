"""Translation of database exceptions to API errors.

The API errors do not quote the exceptions, because the text of an exception may contain chat messages.
"""

import errno
import re

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from mochi_server.errors import StorageFailed, StorageUnavailable

_UNREACHABLE = "the database cannot be reached"
_TOO_SLOW = "the database took too long"
_NO_ANSWER = "the database did not answer in time"
_CROWDED = "the database has no connections left"
_READ_ONLY = "the database is read-only"
_TRANSIENT = {_UNREACHABLE, _TOO_SLOW, _NO_ANSWER, _CROWDED, _READ_ONLY}
"""Reasons of errors that may be temporary, for example because the database restarts or fails over."""
_REFUSED = "the database refuses the user or the password"
_REASONS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (errors.DiskFull, "the database's disk is full"),
    (errors.OutOfMemory, "the database is out of memory"),
    (errors.TooManyConnections, _CROWDED),
    ((errors.QueryCanceled, errors.LockNotAvailable), _TOO_SLOW),
    (errors.ReadOnlySqlTransaction, _READ_ONLY),
    ((errors.InvalidPassword, errors.InvalidAuthorizationSpecification), _REFUSED),
    (errors.InvalidCatalogName, "there is no database with that name"),
    (errors.InsufficientPrivilege, "the database user lacks a privilege"),
    (errors.UndefinedTable, "the database lacks tables; run `mochi-server migrate`"),
    (errors.UndefinedColumn, "the database schema has another version; run `mochi-server migrate`"),
    ((PoolTimeout, TimeoutError), _NO_ANSWER),
    (PoolClosed, "the connections to the database are closed"),
    ((psycopg.OperationalError, psycopg.InterfaceError), _UNREACHABLE),
)
_CONNECT_REASONS = {
    "invalid (URI|connection option|integer value|port)": "its URL is not a valid PostgreSQL URL",
    'password authentication failed|no password supplied|role ".*" does not exist|no pg_hba.conf entry': _REFUSED,
    'database ".*" does not exist': "there is no database with that name",
    "too many (clients|connections)|remaining connection slots": _CROWDED,
}
_CONNECTION_CLASSES = ("08", "57")  # SQLSTATE classes: "08" is a lost connection, "57" an intervention of an operator


def unreachable(operation: str) -> StorageUnavailable:
    return StorageUnavailable(operation, OSError(errno.EIO, _UNREACHABLE))


def failure(operation: str, error: Exception) -> StorageFailed:
    """Convert a database exception to ``StorageUnavailable`` if it may be temporary, otherwise to ``StorageFailed``."""
    known = next((text for kind, text in _REASONS if isinstance(error, kind)), None)
    state = getattr(error, "sqlstate", None)
    if not state:  # errors while connecting have no SQLSTATE
        known = next((text for pattern, text in _CONNECT_REASONS.items() if re.search(pattern, str(error))), known)
    if known == _UNREACHABLE and state and state[:2] not in _CONNECTION_CLASSES:
        known = None
    reason = known or f"the database reports an error{f' (SQLSTATE {state})' if state else ''}"
    number = errno.ENOSPC if isinstance(error, errors.DiskFull) else errno.EIO
    kind = StorageUnavailable if reason in _TRANSIENT else StorageFailed
    return kind(operation, OSError(number, reason))
