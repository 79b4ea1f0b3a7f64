"""SQLite index for listing and searching the sessions of a directory, in the file
``.index.sqlite``.

The session files are authoritative. Every list compares the signatures (inode, mtime, size) of all
session files with the index, and reads the files again that have changed or have a turn log. The
latest page is kept in memory until a signature changes.

The index file can be deleted at any time. If it is locked or not writable, or if this process has
not locked the directory, a database in memory is used. If it is damaged, it is created again.
Searching adds texts to the index; listing does not.
"""

import json
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mochi_server.errors import StorageBusy
from mochi_server.sessions.change import Notice
from mochi_server.sessions.serialization import decode, encode
from mochi_server.sessions.session import ChatSession, is_session_id
from mochi_server.sessions.store import SessionPage, searchable_text, words
from mochi_server.sessions.types import SessionQuery
from mochi_server.storage.files.atomic_files import Signature
from mochi_server.util.clock import timestamp
from mochi_server.util.platform import scan_directory

_VERSION = 13
_BUSY_SECONDS = 0.5
_TRIGRAMS_PER_WORD = 20

_SCHEMA = """
CREATE TABLE sessions
    (session_id TEXT PRIMARY KEY, signature TEXT, updated REAL, owner TEXT, pinned INTEGER,
    archived INTEGER, temporary INTEGER, expires REAL, due REAL, entry BLOB, notices BLOB);
CREATE TABLE tags (session_id TEXT, tag TEXT);
CREATE INDEX signatures ON sessions (session_id, signature);
CREATE INDEX newest ON sessions (temporary, updated DESC, session_id, archived);
CREATE INDEX pinned_first ON sessions (temporary, pinned DESC, updated DESC, session_id);
CREATE INDEX parked ON sessions (due) WHERE due IS NOT NULL;
CREATE INDEX expiring ON sessions (expires) WHERE expires IS NOT NULL;
CREATE INDEX owned ON sessions (owner, temporary, updated DESC, session_id);
CREATE INDEX tagged ON tags (tag, session_id);
CREATE INDEX tags_of ON tags (session_id);
CREATE TABLE texts (id INTEGER PRIMARY KEY, session_id TEXT UNIQUE, text TEXT);
"""
_TRIGRAMS = """
CREATE VIRTUAL TABLE trigrams USING fts5
    (text, content='texts', content_rowid='id', tokenize='trigram case_sensitive 1', detail=none);
CREATE TRIGGER text_added AFTER INSERT ON texts BEGIN
    INSERT INTO trigrams (rowid, text) VALUES (new.id, new.text); END;
CREATE TRIGGER text_deleted AFTER DELETE ON texts BEGIN
    INSERT INTO trigrams (trigrams, rowid, text) VALUES ('delete', old.id, old.text); END;
"""
"""Table for fast searches. It requires SQLite 3.34; with older versions, searches scan all texts.
"""
# A killed process must not leave tables without a version.
_CREATION = f"BEGIN; {{tables}} PRAGMA user_version = {_VERSION}; COMMIT;"
_COUNT = "SELECT count(*) FROM sessions {where}"
_ENTRIES = "SELECT entry FROM sessions {where} ORDER BY {order} LIMIT ? OFFSET ?"
_NEWEST = "updated DESC, session_id"
_COUNT_TAGS = "SELECT tag, count(*) FROM tags JOIN sessions USING (session_id) {where} GROUP BY tag"
_EXPIRED = """
SELECT session_id FROM sessions WHERE expires <= ?
UNION SELECT session_id FROM sessions WHERE temporary = 1 AND updated <= ?"""
_INSERT = """
INSERT INTO sessions (session_id, signature, updated, owner, pinned, archived, temporary, expires,
    due, entry, notices)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_WITH_TAG = "session_id IN (SELECT session_id FROM tags WHERE tag = ?)"
_IN_IDS = "session_id IN (SELECT value FROM json_each(?))"
_TEXTS = "SELECT session_id FROM texts {where}"
_CONTAINS = "instr(text, ?)"
_BY_TRIGRAMS = "id IN (SELECT rowid FROM trigrams WHERE trigrams MATCH ?)"

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Files:
    """Signatures of the JSON files of a directory, and the sessions that have a turn log.

    Some of the files may have names that are no session IDs.
    """

    signatures: Mapping[str, str]
    logs: Set[str]


@dataclass(frozen=True)
class _LatestPage:
    """Latest page without a search, and the files that the index contained at this time."""

    query: SessionQuery
    files: _Files
    page: SessionPage


class _MemoryDatabase(sqlite3.Connection):
    """Database in memory, which closes when nothing refers to it: it is only a cache."""

    def __del__(self) -> None:
        self.close()


class SessionIndex:
    """Index of the sessions of a directory, for lists and full-text searches. Thread-safe."""

    def __init__(
        self, directory: Path, read: Callable[[str], tuple[ChatSession, Signature | None] | None]
    ) -> None:
        """``read`` returns a session and its signature (None if it has a turn log), or None if
        unreadable.
        """
        self._directory = directory
        self._path = directory / ".index.sqlite"
        self._read = read
        self._memory: _MemoryDatabase | None = None
        self._latest: _LatestPage | None = None
        self._lock = threading.RLock()

    def list(self, query: SessionQuery, *, use_file: bool) -> SessionPage:
        """Return one page of the sessions that match ``query``, most recently changed first.

        Pinned sessions precede all others if ``query.pinned_first`` is true. If ``use_file`` is
        false, use a database in memory. Raises OSError.
        """
        with self._lock:
            files = _scan(self._directory)
            latest = self._latest
            if latest is not None and latest.query == query and latest.files == files:
                return latest.page
            return self._run(lambda database: self._list(database, query, files), use_file=use_file)

    def count_tags(self, query: SessionQuery, *, use_file: bool) -> dict[str, int]:
        """Return how many of the sessions that match the filters of ``query`` have each tag.

        Raises OSError.
        """

        def count(database: sqlite3.Connection) -> dict[str, int]:
            self._refresh(database, _scan(self._directory))
            where, values = _filters(query, ids=None)
            return dict(database.execute(_COUNT_TAGS.format(where=where), values))

        return self._run(count, use_file=use_file)

    def expired(self, idle_seconds: float, moment: float, *, use_file: bool) -> Sequence[str]:
        """Return the IDs of the sessions that have expired at ``moment``. Raises OSError."""

        def find(database: sqlite3.Connection) -> Sequence[str]:
            self._refresh(database, _scan(self._directory))
            rows = database.execute(_EXPIRED, (moment, moment - idle_seconds))
            return [session_id for (session_id,) in rows]

        return self._run(find, use_file=use_file)

    def due_turns(self, until: float, *, use_file: bool) -> dict[str, float]:
        """Return the sessions whose turn is due at ``until``: Unix times by session ID.

        Turns of this server are also returned. Raises OSError.
        """

        def find(database: sqlite3.Connection) -> dict[str, float]:
            self._refresh(database, _scan(self._directory))
            return dict(
                database.execute("SELECT session_id, due FROM sessions WHERE due <= ?", (until,))
            )

        return self._run(find, use_file=use_file)

    def undelivered(self, *, use_file: bool) -> Sequence[Notice]:
        """Return the notices in all session files, oldest session first. Raises OSError."""

        def find(database: sqlite3.Connection) -> Sequence[Notice]:
            self._refresh(database, _scan(self._directory))
            rows = database.execute(
                "SELECT notices FROM sessions WHERE notices IS NOT NULL ORDER BY updated"
            ).fetchall()
            found = [Notice.from_dict(stored) for (notices,) in rows for stored in decode(notices)]
            return [notice for notice in found if notice is not None]

        return self._run(find, use_file=use_file)

    def _run(self, work: Callable[[sqlite3.Connection], _Result], *, use_file: bool) -> _Result:
        """Run ``work`` on the index file.

        If the file is damaged, run ``work`` again on a new file. Without a usable file, run it on a
        database in memory.
        """
        with self._lock:
            attempts = 2 if use_file else 0  # a damaged file is created again once
            for _ in range(attempts):
                try:
                    result = self._run_on_file(work)
                except sqlite3.OperationalError as error:
                    logger.debug(
                        "session index file is unusable; using an index in memory: %s", error
                    )
                    break
                except sqlite3.DatabaseError as error:
                    logger.warning("session index is outdated or damaged; rebuilding it: %s", error)
                    with suppress(OSError):
                        for path in self._directory.glob(f"{self._path.name}*"):
                            path.unlink()
                else:
                    self._memory = None
                    return result
            if self._memory is None:
                self._memory = _MemoryDatabase(":memory:", check_same_thread=False)
                _prepared(self._memory)
            return work(self._memory)

    def _run_on_file(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        with suppress(OSError):
            self._create_file()
        with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as database:
            return work(_prepared(database))

    def _create_file(self) -> None:
        """Create the index file with mode 0600, unless it exists."""
        if self._path.is_symlink():
            self._path.unlink()
        if self._path.exists() and not self._path.is_file():
            # An open would wait for a FIFO.
            raise sqlite3.OperationalError("it is not a regular file")
        os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))

    def _list(
        self, database: sqlite3.Connection, query: SessionQuery, files: "_Files"
    ) -> SessionPage:
        is_current = self._refresh(database, files)
        search_words = words(query.text)
        if search_words:
            self._add_texts(database)
            return _page(database, query, ids=_matching(database, search_words))
        page = _page(database, query, ids=None)
        if is_current:
            self._latest = _LatestPage(query, files, page)
        return page

    def _refresh(self, database: sqlite3.Connection, files: "_Files") -> bool:
        """Update the index, and return whether it was up to date.

        It never is while a session has a turn log or is unreadable, because such a session is
        always read again.
        """
        known = dict(database.execute("SELECT session_id, signature FROM sessions"))
        changed = set()
        for session_id, signature in files.signatures.items():
            is_outdated = session_id in files.logs or known.get(session_id) != signature
            if is_outdated and is_session_id(session_id):
                changed.add(session_id)
        removed = known.keys() - files.signatures.keys()
        self._update(database, changed, removed)
        return not changed and not removed

    def _update(self, database: sqlite3.Connection, changed: Set[str], removed: Set[str]) -> None:
        """Read changed sessions again, and remove unreadable and removed ones from the index."""
        rows = []
        tags = []
        outdated = [*removed]
        for session_id in changed:
            try:
                found = self._read(session_id)
            except StorageBusy:  # the index keeps the earlier content
                continue
            outdated.append(session_id)
            if found is not None:
                session, signature = found
                rows.append(_row(session_id, session, signature))
                tags += [(session_id, tag) for tag in session.metadata.tags]
        if not outdated:
            return
        with database:
            ids = [(session_id,) for session_id in outdated]
            database.executemany("DELETE FROM sessions WHERE session_id = ?", ids)
            database.executemany("DELETE FROM texts WHERE session_id = ?", ids)
            database.executemany("DELETE FROM tags WHERE session_id = ?", ids)
            database.executemany(_INSERT, rows)
            database.executemany("INSERT INTO tags VALUES (?, ?)", tags)

    def _add_texts(self, database: sqlite3.Connection) -> None:
        """Add the texts of indexed sessions that have none, as far as they can be read now."""
        missing = (
            "SELECT session_id FROM sessions WHERE session_id NOT IN (SELECT session_id FROM texts)"
        )
        with database:
            for (session_id,) in database.execute(missing).fetchall():
                with suppress(StorageBusy):
                    found = self._read(session_id)
                    if found is not None:
                        row = (session_id, searchable_text(found[0]))
                        database.execute("INSERT INTO texts (session_id, text) VALUES (?, ?)", row)


def _row(session_id: str, session: ChatSession, signature: Signature | None) -> tuple[object, ...]:
    """Return the row of the table ``sessions`` for a session, in the order of ``_INSERT``."""
    metadata = session.metadata
    entry = session.summary_object()
    return (
        session_id,
        None if signature is None else signature.text,
        timestamp(entry["updated_at"]),
        metadata.owner,
        metadata.pinned,
        metadata.archived,
        metadata.temporary,
        timestamp(metadata.expires_at) if metadata.expires_at else None,
        metadata.turn.due if metadata.turn else None,
        encode(entry),
        encode(metadata.notices) if metadata.notices else None,
    )


def session_ids(directory: Path) -> Sequence[str]:
    """Return the IDs of the session files in a directory. Raises OSError."""
    return [name for name in _scan(directory).signatures if is_session_id(name)]


def _scan(directory: Path) -> _Files:
    """Return the session files and the turn logs in a directory. A missing one has none."""
    signatures: dict[str, str] = {}
    logs = set[str]()
    with suppress(FileNotFoundError), scan_directory(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(".turn.jsonl"):
                logs.add(name.removeprefix(".").removesuffix(".turn.jsonl"))
            elif name.endswith(".json"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    signatures[name.removesuffix(".json")] = Signature.of(status).text
    return _Files(signatures, logs)


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    """Create the tables of a new database, and return the database.

    Raises ``sqlite3.DatabaseError`` if its version is another, or if it has tables but no version.
    """
    # Writes need no fsync: an index that a power failure damages is rebuilt.
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA secure_delete = ON")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in (0, _VERSION):
        raise sqlite3.DatabaseError(f"it has version {version}")
    if version == 0:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'sessions'").fetchone():
            raise sqlite3.DatabaseError("it has tables but no version")
        try:
            database.executescript(_CREATION.format(tables=_SCHEMA + _TRIGRAMS))
        except sqlite3.OperationalError:
            database.rollback()
            database.executescript(_CREATION.format(tables=_SCHEMA))
    return database


def _page(database: sqlite3.Connection, query: SessionQuery, ids: set[str] | None) -> SessionPage:
    """Return the page of ``query`` among the sessions with these ids, or all if ``ids`` is None."""
    where, values = _filters(query, ids)
    (total,) = database.execute(_COUNT.format(where=where), values).fetchone()
    limit = -1 if query.limit is None else query.limit
    order = f"pinned DESC, {_NEWEST}" if query.pinned_first else _NEWEST
    entries = _ENTRIES.format(where=where, order=order)
    rows = database.execute(entries, [*values, limit, query.offset])
    return SessionPage.of([entry for (entry,) in rows], total)


def _filters(query: SessionQuery, ids: set[str] | None) -> tuple[str, list[object]]:
    """Return the WHERE clause for the filters of a query and these ids, and its values."""
    filters = {
        _IN_IDS: None if ids is None else _array(ids),
        "owner = ?": query.owner,
        "archived = ?": query.archived,
        "temporary = ?": query.temporary,
    }
    used = {condition: value for condition, value in filters.items() if value is not None}
    conditions = [*used, *[_WITH_TAG] * len(query.tags)]
    return _where(conditions), [*used.values(), *query.tags]


def _matching(database: sqlite3.Connection, search_words: Sequence[str]) -> set[str]:
    """Return the ids of the sessions that contain every word. There is at least one word."""
    trigrams = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'trigrams'").fetchone()
    ids: set[str] | None = None
    for word in search_words:
        conditions = []
        values = []
        if ids is not None:
            conditions.append(_IN_IDS)
            values.append(_array(ids))
        if trigrams is not None and len(word) >= 3:
            conditions.append(_BY_TRIGRAMS)
            values.append(_trigram_query(word))
        where = _where([*conditions, _CONTAINS])  # trigrams alone also find other texts
        rows = database.execute(_TEXTS.format(where=where), [*values, word])
        ids = {session_id for (session_id,) in rows}
    return ids or set()


def _where(conditions: Sequence[str]) -> str:
    return "WHERE " + " AND ".join(conditions) if conditions else ""


def _array(ids: set[str]) -> str:
    return json.dumps([*ids])


def _trigram_query(word: str) -> str:
    """Return the FTS5 query for the first trigrams of a word, each as a quoted string."""
    count = min(len(word) - 2, _TRIGRAMS_PER_WORD)
    trigrams = {word[start : start + 3] for start in range(count)}
    quoted = ['"' + trigram.replace('"', '""') + '"' for trigram in sorted(trigrams)]
    return " AND ".join(quoted)
