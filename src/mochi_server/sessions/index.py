"""The list of sessions and what they are searched in, kept in ``.index.sqlite`` so that no file is read
again that has not changed.

The files are the truth: each list call compares every row with its file, so the index may be stale, damaged, shared
with other processes or deleted at any time. Where it cannot be kept on disk it is kept in memory.
"""

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from mochi_server.sessions.disk import Signature
from mochi_server.sessions.encoding import encode
from mochi_server.sessions.search import words
from mochi_server.sessions.session import timestamp
from mochi_server.sessions.texts import TEXT_SCHEMA, Read, SearchedTexts, add_trigrams, forget
from mochi_server.sessions.types import SessionPage, SessionQuery

Scan = Callable[[], dict[str, Signature | None]]
"""Every session's id with its file's signature; None where an entry is only good for now."""

Summarise = Callable[[str], tuple[dict[str, Any], Signature | None] | None]
"""A session's list entry with the signature of what was read; None for what is no session."""

_log = logging.getLogger(__name__)
_SCHEMA_VERSION = 2
_BUSY_SECONDS = 0.5
_OTHERS_SECONDS = 0.001
"""A lock is not handed over: without a rest between the steps of a search, who waits for it might wait to the end."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS sessions ("
    "session_id TEXT PRIMARY KEY, inode INTEGER, modified_ns INTEGER, size INTEGER, updated REAL, entry BLOB)",
    "CREATE INDEX IF NOT EXISTS seen ON sessions (session_id, inode, modified_ns, size)",
    "CREATE INDEX IF NOT EXISTS newest ON sessions (updated DESC, session_id)",
    *TEXT_SCHEMA,
)
_UPSERT = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)"
_PAGE = "SELECT entry FROM sessions ORDER BY updated DESC, session_id LIMIT ? OFFSET ?"
_ALL = "SELECT session_id FROM sessions ORDER BY updated DESC, session_id"
_ENTRY = "SELECT entry FROM sessions WHERE session_id = ?"
_ENTRIES = "SELECT session_id, entry FROM sessions"
_MANY = 500


class SessionIndex:
    """List entries by their last change, of all sessions or of those with certain words. Blocks; for threads."""

    def __init__(self, directory: Path, scan: Scan, summarise: Summarise, read: Read) -> None:
        self._path = directory / ".index.sqlite"
        self._scan = scan
        self._summarise = summarise
        self._texts = SearchedTexts(read)
        self._memory: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def list(self, query: SessionQuery) -> SessionPage:
        """Entries of the sessions that are there now, or of those that are found, newest first. Raises OSError."""
        wanted = words(query.text)
        while (page := self._step(query, wanted)) is None:
            time.sleep(_OTHERS_SECONDS)
        return page

    def _step(self, query: SessionQuery, wanted: Sequence[str]) -> SessionPage | None:
        """The answer; None when there are more files to be read for it than others should have to wait for."""
        with self._lock:
            files = self._scan()
            if not files:
                return SessionPage([], 0)
            for open_database in (self._on_disk, self._on_disk_afresh):
                try:
                    with open_database() as database:
                        self._refresh(database, files)
                        ids = self._texts.found(database, wanted) if wanted else None
                        return None if wanted and ids is None else _page(database, query, ids)
                except sqlite3.OperationalError as error:
                    _log.debug("the session index stays in memory: %s", error)
                    break
                except sqlite3.DatabaseError as error:
                    _log.warning("the session index is damaged and is made again: %s", error)
            self._refresh(self._in_memory(), files)
            return _page(self._in_memory(), query, self._texts.found_in_files(files, wanted) if wanted else None)

    def _refresh(self, database: sqlite3.Connection, found: dict[str, Signature | None]) -> None:
        """Bring the rows up to date."""
        rows = database.execute("SELECT session_id, inode, modified_ns, size FROM sessions")
        known = {row[0]: row[1:] for row in rows}
        gone = [(session_id,) for session_id in known if session_id not in found]
        changed = [
            session_id
            for session_id, signature in found.items()
            if signature is None or known.get(session_id) != signature
        ]
        if not gone and not changed:
            return
        fresh = [self._row(session_id) for session_id in changed]
        gone += [(session_id,) for session_id, row in zip(changed, fresh, strict=True) if row is None]
        with database:
            database.executemany("DELETE FROM sessions WHERE session_id = ?", gone)
            database.executemany(_UPSERT, [row for row in fresh if row is not None])
            for (session_id,) in gone:
                forget(database, session_id)

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


def _page(database: sqlite3.Connection, query: SessionQuery, ids: set[str] | None) -> SessionPage:
    """A part of the list, or of the list of these sessions."""
    if ids is None:
        (total,) = database.execute("SELECT count(*) FROM sessions").fetchone()
        rows = database.execute(_PAGE, (-1 if query.limit is None else query.limit, query.offset))
        return SessionPage(_entries(row[0] for row in rows), total)
    found = [session_id for (session_id,) in database.execute(_ALL) if session_id in ids]
    end = None if query.limit is None else query.offset + query.limit
    return SessionPage(_entries(_stored(database, found[query.offset : end])), len(found))


def _stored(database: sqlite3.Connection, ids: list[str]) -> list[bytes]:
    if len(ids) < _MANY:
        return [database.execute(_ENTRY, (session_id,)).fetchone()[0] for session_id in ids]
    entries = dict(database.execute(_ENTRIES))
    return [entries[session_id] for session_id in ids]


def _entries(rows: Iterable[bytes]) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = orjson.loads(b"[" + b",".join(rows) + b"]")
    except (TypeError, ValueError) as error:
        raise sqlite3.DatabaseError("an entry is no JSON") from error
    return entries


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
