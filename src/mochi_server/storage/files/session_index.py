"""The list of sessions and the search over them, kept in one SQLite file: ``.index.sqlite``.

The session files are authoritative. One rule says when a file is read again: its signature (inode, mtime, size) is
not that of its row, or a turn log lies beside it. A list compares all signatures, unless it follows another list within
``TRUSTED_SECONDS`` and no other process has changed the directory since. Creating, replacing and deleting files
change a directory; editing a file in place does not, so an edit in place is listed after at most that time.

The index may be missing, damaged, locked or shared with other processes, and can be deleted at any time. When the file
cannot be used, a database in memory takes its place. Texts are added to the index by searches, not by lists.
"""

import json
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mochi_server.errors import StorageBusy
from mochi_server.sessions.search import words
from mochi_server.sessions.serialization import encode
from mochi_server.sessions.store import SessionPage
from mochi_server.sessions.types import SessionQuery
from mochi_server.storage.files.atomic_files import Signature, signature
from mochi_server.util.clock import timestamp

TRUSTED_SECONDS = 1.0

_VERSION = 4
_BUSY_SECONDS = 0.5
_STEP_SECONDS = 0.05
"""How long a search adds texts before other lists get their turn."""
_PAUSE_SECONDS = 0.001
"""Between two such steps: locks are not fair."""
_CACHED_BYTES = 16 * 2**20
_FEW = 200
"""Up to so many sessions are searched one by one; for more, a scan of all texts is faster."""
_TRIGRAMS_OF_A_WORD = 20

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions
    (session_id TEXT PRIMARY KEY, inode INTEGER, modified_ns INTEGER, size INTEGER, updated REAL, entry BLOB);
CREATE INDEX IF NOT EXISTS signatures ON sessions (session_id, inode, modified_ns, size);
CREATE INDEX IF NOT EXISTS newest ON sessions (updated DESC, session_id);
CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, session_id TEXT, position INTEGER, text TEXT);
CREATE INDEX IF NOT EXISTS pieces ON texts (session_id, position);
CREATE TABLE IF NOT EXISTS searched (session_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS session_changed AFTER UPDATE ON sessions BEGIN
    DELETE FROM searched WHERE session_id = old.session_id; END;
CREATE TRIGGER IF NOT EXISTS session_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM searched WHERE session_id = old.session_id; END;
"""
_TRIGRAMS = """
CREATE VIRTUAL TABLE IF NOT EXISTS trigrams USING fts5
    (text, content='texts', content_rowid='id', tokenize='trigram case_sensitive 1', detail=none)
"""
"""FTS5 knows trigrams since SQLite 3.34. Without them, searches scan all texts."""
_UPSERT = """
INSERT INTO sessions (session_id, inode, modified_ns, size, updated, entry) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET inode = excluded.inode, modified_ns = excluded.modified_ns,
    size = excluded.size, updated = excluded.updated, entry = excluded.entry
WHERE (inode, modified_ns, size, entry) IS NOT (excluded.inode, excluded.modified_ns, excluded.size, excluded.entry)
"""
_UNSEARCHED = """
SELECT session_id, inode IS NOT NULL FROM sessions
WHERE inode IS NULL OR session_id NOT IN (SELECT session_id FROM searched) ORDER BY inode IS NULL
"""
_COUNT = "SELECT count(*) FROM sessions"
_ENTRIES = "SELECT entry FROM sessions {where} ORDER BY updated DESC, session_id LIMIT ? OFFSET ?"
_OF_THESE = "WHERE session_id IN (SELECT value FROM json_each(?))"
_CONTAINING = "SELECT session_id FROM texts {where} instr(text, ?)"
_BY_TRIGRAMS = "id IN (SELECT rowid FROM trigrams WHERE trigrams MATCH ?) AND"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Comparison:
    """Signatures before and after a comparison of all files, and how long (monotonic time) the comparison is valid."""

    directory: Signature | None
    index: Signature | None
    until: float


class SessionIndex:
    """List entries by their last change, of all sessions or of those that contain certain words. For threads."""

    def __init__(
        self,
        directory: Path,
        scan: Callable[[Mapping[str, tuple[int | None, ...]]], tuple[set[str], set[str]]],
        summarise: Callable[[str], tuple[dict[str, Any], Signature | None] | None],
        read_texts: Callable[[str], Sequence[str] | None],
    ) -> None:
        """``summarise`` reads a session's list entry and signature (None while a turn log lies beside it).

        ``read_texts`` reads the texts that it is searched in. Both return None for what is not a session or cannot
        be read; ``summarise`` raises StorageBusy while the file is being written.
        """
        self._directory = directory
        self._path = directory / ".index.sqlite"
        self._scan = scan
        self._summarise = summarise
        self._read_texts = read_texts
        self._memory: sqlite3.Connection | None = None
        self._compared: _Comparison | None = None
        self._unsettled: set[str] = set()
        """Sessions with a turn log, which are read for each list."""
        self._changed: set[str] = set()
        """Sessions that this process has changed since the last list. Threads add and remove, and never iterate."""
        self._has_all_texts = False
        """Whether the last search found or added the texts of every session."""
        self._last: tuple[SessionQuery, SessionPage] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, session_id: str) -> Iterator[None]:
        """Note a change that this process makes: the next list reads this session, and need not compare all files."""
        before = self._directory_signature()
        try:
            yield
        finally:
            if (seen := self._compared) is not None:
                self._changed.add(session_id)
                if seen.directory == before:
                    self._compared = replace(seen, directory=self._directory_signature())
                if time.monotonic() >= seen.until:
                    self._compared = None

    def list(self, query: SessionQuery) -> SessionPage:
        """Return the entries of existing or matching sessions, newest first. Raises OSError."""
        wanted = words(query.text)
        while (page := self._try(query, wanted)) is None:
            time.sleep(_PAUSE_SECONDS)
        return page

    def _try(self, query: SessionQuery, wanted: Sequence[str]) -> SessionPage | None:
        """Return the page, or None if a search has to add more texts first."""
        with self._lock:
            is_read = not self._unsettled and not self._changed
            if self._last and self._last[0] == query and is_read and self._is_unchanged():
                return self._last[1]
            for _ in range(2):
                try:
                    with self._opened() as database:
                        page = self._query(database, query, wanted)
                except sqlite3.OperationalError as error:
                    logger.debug("session index kept in memory: %s", error)
                    break
                except sqlite3.DatabaseError as error:
                    logger.warning("session index rebuilt because it is damaged: %s", error)
                    self._discard()
                else:
                    self._memory = None
                    if self._compared:
                        self._compared = replace(self._compared, index=signature(self._path))
                    return page
            self._compared = None
            self._memory = self._memory or _prepared(sqlite3.connect(":memory:", check_same_thread=False))
            page = self._query(self._memory, query, wanted)
            self._compared = None  # it is not valid for the file
            return page

    def _query(self, database: sqlite3.Connection, query: SessionQuery, wanted: Sequence[str]) -> SessionPage | None:
        self._last = None
        self._refresh(database)
        if not wanted:
            page = _page(database, query, None)
            if len(page.encoded) <= _CACHED_BYTES:
                self._last = query, page
            return page
        return _page(database, query, _matching(database, wanted)) if self._add_texts(database) else None

    def _is_unchanged(self) -> bool:
        seen, now = self._compared, time.monotonic()
        if seen is None or now >= seen.until:
            return False
        return (seen.directory, seen.index) == (self._directory_signature(), signature(self._path))

    def _directory_signature(self) -> Signature | None:
        try:
            return Signature.of(self._directory.stat())
        except FileNotFoundError:
            return None

    def _refresh(self, database: sqlite3.Connection) -> None:
        """Bring the rows up to date with the files."""
        own = {self._changed.pop() for _ in range(len(self._changed))}
        if self._is_unchanged():
            if not self._update(database, self._unsettled | own, set()):
                self._compared = None
            return
        self._compared, self._has_all_texts = None, False
        directory, began = self._directory_signature(), time.monotonic()
        is_settled = directory is None or directory.is_settled
        rows = database.execute("SELECT session_id, inode, modified_ns, size FROM sessions")
        is_complete = self._update(database, *self._scan({row[0]: row[1:] for row in rows}))
        if is_settled and is_complete:
            self._compared = _Comparison(directory, None, began + TRUSTED_SECONDS)

    def _update(self, database: sqlite3.Connection, changed: set[str], gone: set[str]) -> bool:
        """Read changed files into their rows; whether all could be read. The row of a file being written stays."""
        rows, removed, unsettled, is_complete = [], set(gone), set(), True
        for session_id in changed:
            try:
                entry, seen = self._summarise(session_id) or (None, None)
            except StorageBusy:
                is_complete = False
                continue
            if entry is None:
                removed.add(session_id)
                is_complete = False
                continue
            if seen is None:
                unsettled.add(session_id)
            rows.append((session_id, *(seen or (None, None, None)), timestamp(entry["updated_at"]), encode(entry)))
        if rows or removed:
            self._has_all_texts = False
            with database:
                for session_id in removed:
                    _store_texts(database, session_id, ())
                    database.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
                database.executemany(_UPSERT, rows)
        self._unsettled = unsettled
        return is_complete

    def _add_texts(self, database: sqlite3.Connection) -> bool:
        """Add texts of sessions that have changed, for a while; whether these were all. Running turns come last."""
        if self._has_all_texts:
            return True
        until, is_first = time.monotonic() + _STEP_SECONDS, True
        with database:
            for session_id, is_settled in database.execute(_UNSEARCHED).fetchall():
                if is_settled and not is_first and time.monotonic() > until:
                    return False
                if (texts := self._read_texts(session_id)) is not None:
                    _store_texts(database, session_id, texts)
                    database.execute("INSERT OR IGNORE INTO searched VALUES (?)", (session_id,))
                    is_first = False
        self._has_all_texts = True
        return True

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open or create the file. Raises OperationalError if that is impossible, DatabaseError if it is damaged."""
        with suppress(OSError):
            mode = os.lstat(self._path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # SQLite would follow a link, and wait for a pipe
                raise sqlite3.DatabaseError("it is not a file")
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as database:
            yield _prepared(database)

    def _discard(self) -> None:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink()


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    # A power cut may damage the index, which is then rebuilt: writes do not wait for the disk.
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA secure_delete = ON")
    database.execute("PRAGMA cache_size = -32768")  # KiB
    database.execute("PRAGMA journal_mode = TRUNCATE")  # deleting the journal would change the directory
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise sqlite3.DatabaseError(f"it has version {version}")
    if version == 0:
        database.execute("PRAGMA page_size = 16384")  # four times fewer reads than with the default
        database.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        with suppress(sqlite3.OperationalError):
            database.execute(_TRIGRAMS)
    return database


def _page(database: sqlite3.Connection, query: SessionQuery, ids: set[str] | None) -> SessionPage:
    """Return a part of the list of all sessions, or of those with these ids. Raises DatabaseError for damaged rows."""
    where, values = ("", []) if ids is None else (_OF_THESE, [json.dumps([*ids])])
    total = database.execute(_COUNT).fetchone()[0] if ids is None else len(ids)
    statement, limit = _ENTRIES.format(where=where), -1 if query.limit is None else query.limit
    entries = [row[0] for row in database.execute(statement, [*values, limit, query.offset])]
    # Parsing all entries would cost more than everything else. Damage that SQLite does not notice cuts an entry off.
    if not all(isinstance(entry, bytes) and entry.startswith(b"{") and entry.endswith(b"}") for entry in entries):
        raise sqlite3.DatabaseError("an entry is not JSON")
    return SessionPage.of(entries, total)


def _has_trigrams(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = 'trigrams'").fetchone() is not None


def _store_texts(database: sqlite3.Connection, session_id: str, texts: Sequence[str]) -> None:
    """Store the texts of a session; those that have not changed are not written again."""
    rows = database.execute("SELECT id, position, text FROM texts WHERE session_id = ?", (session_id,)).fetchall()
    kept = {position for _, position, text in rows if position < len(texts) and texts[position] == text}
    if len(kept) == len(rows) == len(texts):
        return
    has_trigrams = _has_trigrams(database)
    for row_id, position, text in rows:
        if position not in kept:
            if has_trigrams:
                database.execute("INSERT INTO trigrams (trigrams, rowid, text) VALUES ('delete', ?, ?)", (row_id, text))
            database.execute("DELETE FROM texts WHERE id = ?", (row_id,))
    for position, text in enumerate(texts):
        if position not in kept:
            insert = "INSERT INTO texts (session_id, position, text) VALUES (?, ?, ?)"
            row_id = database.execute(insert, (session_id, position, text)).lastrowid
            if has_trigrams:
                database.execute("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", (row_id, text))


def _matching(database: sqlite3.Connection, wanted: Sequence[str]) -> set[str]:
    """Return the ids of the sessions that contain every word, each in any of their texts."""
    has_trigrams = _has_trigrams(database)
    ids: set[str] | None = None
    for word in wanted:
        where, values = "WHERE", []
        if ids is not None and len(ids) <= _FEW:
            where, values = f"{_OF_THESE} AND", [json.dumps([*ids])]
        if has_trigrams and len(word) >= 3:
            where, values = f"{where} {_BY_TRIGRAMS}", [*values, _trigram_query(word)]
        found = {row[0] for row in database.execute(_CONTAINING.format(where=where), [*values, word])}
        ids = found if ids is None else ids & found
    return ids or set()


def _trigram_query(word: str) -> str:
    trigrams = sorted({word[start : start + 3] for start in range(min(len(word) - 2, _TRIGRAMS_OF_A_WORD))})
    return " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
