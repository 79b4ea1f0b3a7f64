"""The file ``.index.sqlite``: opened, made, thrown away, and the rows of the list in it. Knows nothing of sessions."""

import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import orjson

from mochi_server.sessions import disk
from mochi_server.sessions.listing import Row
from mochi_server.sessions.texts import TEXT_SCHEMA, add_trigrams, forget

_SCHEMA_VERSION = 3
_BUSY_SECONDS = 0.5
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS sessions ("
    "session_id TEXT PRIMARY KEY, inode INTEGER, modified_ns INTEGER, size INTEGER, updated REAL, entry BLOB)",
    "CREATE INDEX IF NOT EXISTS seen ON sessions (session_id, inode, modified_ns, size)",
    *TEXT_SCHEMA,
)
_ROWS = "SELECT session_id, inode, modified_ns, size, updated, entry FROM sessions"
_UPSERT = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM sessions WHERE session_id = ?"


class IndexFile:
    """A database that may be damaged, deleted or written by others at any time. Blocks; for threads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def signature(self) -> disk.Signature | None:
        """Tells whether somebody has written to it. Raises OSError."""
        return disk.signature(self._path)

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The database, made if need be. Raises OperationalError where there can be none, DatabaseError for damage."""
        if self._is_odd():
            raise sqlite3.DatabaseError("it is no file")
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _SCHEMA_VERSION):
                raise sqlite3.DatabaseError(f"it is of version {version}")
            _prepare(database, version)
            yield database

    def _is_odd(self) -> bool:
        """Whether it is a link, or a pipe, which SQLite would wait for. A directory is left: it does no harm."""
        try:
            mode = os.lstat(self._path).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    def discard(self) -> None:
        """Remove it; another one is made when it is opened."""
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()


def stored_rows(database: sqlite3.Connection) -> dict[str, Row]:
    """The rows of the list. Raises DatabaseError for what cannot have been written as one."""
    rows = {
        session_id: Row(disk.Signature(*signature) if signature[0] is not None else None, updated, entry)
        for session_id, *signature, updated, entry in database.execute(_ROWS)
    }
    try:
        orjson.loads(b"[" + b",".join(row.entry for row in rows.values()) + b"]")
        sorted(row.updated for row in rows.values())
    except (TypeError, ValueError) as error:
        raise sqlite3.DatabaseError("an entry is none") from error
    return rows


def store_rows(database: sqlite3.Connection, rows: Mapping[str, Row | None]) -> None:
    """Write rows of the list; None removes one, and the texts with it."""
    with database:
        for session_id in [session_id for session_id, row in rows.items() if row is None]:
            database.execute(_DELETE, (session_id,))
            forget(database, session_id)
        database.executemany(
            _UPSERT,
            [
                (session_id, *(row.signature or (None, None, None)), row.updated, row.entry)
                for session_id, row in rows.items()
                if row is not None
            ],
        )


def _prepare(database: sqlite3.Connection, version: int) -> None:
    # What a power cut takes from the index is made again, so writing need not wait for the disk.
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA secure_delete = ON")
    if version != _SCHEMA_VERSION:
        with database:
            for statement in _SCHEMA:
                database.execute(statement)
            add_trigrams(database)
            database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
