"""The list of sessions, kept in ``.index.sqlite`` so that an unchanged file is not read for it again.

The files are the truth: each list call compares every row with its file, so the index may be stale, damaged, shared
with other processes or deleted at any time. Where it cannot be kept on disk it is kept in memory.
"""

import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from mochi_server.sessions.disk import Signature
from mochi_server.sessions.encoding import encode
from mochi_server.sessions.session import timestamp
from mochi_server.sessions.types import SessionPage, SessionQuery

Scan = Callable[[], dict[str, Signature | None]]
"""Every session's id with its file's signature; None where an entry is only good for now."""

Summarise = Callable[[str], tuple[dict[str, Any], Signature | None] | None]
"""A session's list entry with the signature of what was read; None for what is no session."""

_log = logging.getLogger(__name__)
_SCHEMA_VERSION = 1
_BUSY_SECONDS = 0.5
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS sessions ("
    "session_id TEXT PRIMARY KEY, inode INTEGER, modified_ns INTEGER, size INTEGER, updated REAL, entry BLOB)",
    "CREATE INDEX IF NOT EXISTS seen ON sessions (session_id, inode, modified_ns, size)",
    "CREATE INDEX IF NOT EXISTS newest ON sessions (updated DESC, session_id)",
)
_UPSERT = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)"
_PAGE = "SELECT entry FROM sessions ORDER BY updated DESC, session_id LIMIT ? OFFSET ?"


class SessionIndex:
    """List entries by their last change. Blocks; for threads."""

    def __init__(self, directory: Path, scan: Scan, summarise: Summarise) -> None:
        self._path = directory / ".index.sqlite"
        self._scan = scan
        self._summarise = summarise
        self._memory: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def list(self, query: SessionQuery) -> SessionPage:
        """Entries of the sessions that are there now, newest first. Raises OSError."""
        with self._lock:
            found = self._scan()
            if not found:
                return SessionPage([], 0)
            for open_database in (self._on_disk, self._on_disk_afresh):
                try:
                    with open_database() as database:
                        return self._answer(database, found, query)
                except sqlite3.OperationalError as error:
                    _log.debug("the session index stays in memory: %s", error)
                    break
                except sqlite3.DatabaseError as error:
                    _log.warning("the session index is damaged and is made again: %s", error)
            return self._answer(self._in_memory(), found, query)

    def _answer(
        self, database: sqlite3.Connection, found: dict[str, Signature | None], query: SessionQuery
    ) -> SessionPage:
        total = self._refresh(database, found)
        limit = -1 if query.limit is None else query.limit
        rows = database.execute(_PAGE, (limit, query.offset))
        try:
            return SessionPage(orjson.loads(b"[" + b",".join(row[0] for row in rows) + b"]"), total)
        except (TypeError, ValueError) as error:
            raise sqlite3.DatabaseError("an entry is no JSON") from error

    def _refresh(self, database: sqlite3.Connection, found: dict[str, Signature | None]) -> int:
        """Bring the rows up to date; their number."""
        rows = database.execute("SELECT session_id, inode, modified_ns, size FROM sessions")
        known = {row[0]: row[1:] for row in rows}
        gone = [(session_id,) for session_id in known if session_id not in found]
        changed = [
            session_id
            for session_id, signature in found.items()
            if signature is None or known.get(session_id) != signature
        ]
        if not gone and not changed:
            return len(known)
        fresh = [self._row(session_id) for session_id in changed]
        gone += [(session_id,) for session_id, row in zip(changed, fresh, strict=True) if row is None]
        with database:
            database.executemany("DELETE FROM sessions WHERE session_id = ?", gone)
            database.executemany(_UPSERT, [row for row in fresh if row is not None])
            (total,) = database.execute("SELECT count(*) FROM sessions").fetchone()
        return int(total)

    def _row(self, session_id: str) -> tuple[object, ...] | None:
        summary = self._summarise(session_id)
        if summary is None:
            return None
        entry, signature = summary
        return session_id, *(signature or (None, None, None)), timestamp(entry["updated_at"]), encode(entry)

    @contextmanager
    def _on_disk(self) -> Iterator[sqlite3.Connection]:
        if self._path.is_symlink():
            raise sqlite3.DatabaseError("it is a link")
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _SCHEMA_VERSION):
                raise sqlite3.DatabaseError(f"it is of version {version}")
            _prepare(database, version)
            yield database

    @contextmanager
    def _on_disk_afresh(self) -> Iterator[sqlite3.Connection]:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()
        with self._on_disk() as database:
            yield database

    def _in_memory(self) -> sqlite3.Connection:
        if self._memory is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False)
            weakref.finalize(self, self._memory.close)
            _prepare(self._memory, 0)
        return self._memory


def _prepare(database: sqlite3.Connection, version: int) -> None:
    # What a power cut takes from the index is made again, so writing need not wait for the disk.
    database.execute("PRAGMA synchronous = OFF")
    if version != _SCHEMA_VERSION:
        with database:
            for statement in _SCHEMA:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
