"""The searched texts of sessions in the index's database: which are stale, and which hold every word of a query.

A text is read only when somebody searches, and then only where the list's entry tells of another state of its file.
Words of three characters and more are looked up by their trigrams where SQLite can (FTS5, 3.34 and newer), others are
looked for in every text.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence

from mochi_server.sessions.disk import Signature
from mochi_server.sessions.search import matches

Read = Callable[[str], tuple[Sequence[str], Signature | None] | None]
"""A session's pieces with the signature of what was read; None for what is no session."""

TEXT_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS searched "
    "(session_id TEXT PRIMARY KEY, inode INTEGER, modified_ns INTEGER, size INTEGER)",
    "CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, session_id TEXT, position INTEGER, text TEXT)",
    "CREATE INDEX IF NOT EXISTS pieces ON texts (session_id, position)",
)
_TRIGRAMS = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS trigrams USING fts5 "
    "(text, content='texts', content_rowid='id', tokenize='trigram case_sensitive 1', detail=none)"
)
_STALE = (
    "SELECT l.session_id, l.inode IS NOT NULL FROM sessions l LEFT JOIN searched t ON t.session_id = l.session_id "
    "WHERE l.inode IS NULL OR t.inode IS NOT l.inode OR t.modified_ns IS NOT l.modified_ns OR t.size IS NOT l.size "
    "ORDER BY l.inode IS NULL"
)
"""Those whose turn runs are read each time, the last of all."""
_HOLDING = "SELECT session_id FROM texts WHERE {of}instr(text, ?)"
_OF_THESE = "+session_id IN (SELECT value FROM json_each(?)) AND "
_WITH_TRIGRAMS = "id IN (SELECT rowid FROM trigrams WHERE trigrams MATCH ?) AND "
"""What costs least comes first: SQLite asks in this order. The sign keeps it from going through an index of its own."""
_LOOKED_UP = 20
"""Trigrams of a word; the text has the last word, anyway."""
_FEW = 200
"""Sessions that are looked at one by one; for more, it is quicker to look at all."""
_STEP_SECONDS = 0.05


def add_trigrams(database: sqlite3.Connection) -> None:
    """Make the table of trigrams, where SQLite has such."""
    try:
        database.execute(_TRIGRAMS)
    except sqlite3.OperationalError:
        return


class SearchedTexts:
    """Answers searches of one directory. Blocks; for threads, one at a time."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def found(self, database: sqlite3.Connection, words: Sequence[str]) -> set[str] | None:
        """Ids of the listed sessions that hold every word; None when a step was made and more are to be read."""
        with database:
            if not self._refresh(database):
                return None
        by_trigrams, half = _has_trigrams(database), _count(database) / 2
        ids: set[str] | None = None
        for word in words:
            looked_up = by_trigrams and len(word) >= 3
            if ids is not None and len(ids) <= _FEW and not looked_up:
                ids = _holding_of_few(database, word, ids)
            else:
                of_these = ids if ids is not None and len(ids) < half else None
                holding = _holding(database, word, of_these, looked_up=looked_up)
                ids = holding if ids is None else ids & holding
            if not ids:
                break
        return ids or set()

    def found_in_files(self, files: Iterable[str], words: Sequence[str]) -> set[str]:
        """The same without an index: every file is read."""
        read = ((session_id, self._read(session_id)) for session_id in files)
        return {session_id for session_id, text in read if text is not None and matches(text[0], words)}

    def _refresh(self, database: sqlite3.Connection) -> bool:
        """Take in what has changed since, for a while; whether that was everything."""
        until = time.monotonic() + _STEP_SECONDS
        for number, (session_id, is_settled) in enumerate(database.execute(_STALE).fetchall()):
            if is_settled and number and time.monotonic() > until:
                return False
            self._take(database, session_id)
        return True

    def _take(self, database: sqlite3.Connection, session_id: str) -> None:
        if (read := self._read(session_id)) is None:
            forget(database, session_id)
            return
        pieces, signature = read
        _replace(database, session_id, pieces)
        row = (session_id, *(signature or (None, None, None)))
        database.execute("INSERT OR REPLACE INTO searched VALUES (?, ?, ?, ?)", row)


def forget(database: sqlite3.Connection, session_id: str) -> None:
    """Remove the texts of a session."""
    _replace(database, session_id, [])
    database.execute("DELETE FROM searched WHERE session_id = ?", (session_id,))


def _replace(database: sqlite3.Connection, session_id: str, pieces: Sequence[str]) -> None:
    """Store the pieces of a session; those that are the same stay as they are."""
    rows = database.execute("SELECT id, position, text FROM texts WHERE session_id = ?", (session_id,)).fetchall()
    kept = {position for _, position, text in rows if position < len(pieces) and pieces[position] == text}
    old = [(row_id, text) for row_id, position, text in rows if position not in kept]
    new = [(position, piece) for position, piece in enumerate(pieces) if position not in kept]
    if not old and not new:
        return
    by_trigrams = _has_trigrams(database)
    for row_id, text in old:
        if by_trigrams:
            database.execute("INSERT INTO trigrams (trigrams, rowid, text) VALUES ('delete', ?, ?)", (row_id, text))
        database.execute("DELETE FROM texts WHERE id = ?", (row_id,))
    for position, piece in new:
        insert = "INSERT INTO texts (session_id, position, text) VALUES (?, ?, ?)"
        row_id = database.execute(insert, (session_id, position, piece)).lastrowid
        if by_trigrams:
            database.execute("INSERT INTO trigrams (rowid, text) VALUES (?, ?)", (row_id, piece))


def _holding(database: sqlite3.Connection, word: str, ids: set[str] | None, *, looked_up: bool) -> set[str]:
    """Which sessions, of these or of all, have a piece that holds a word."""
    conditions, values = "", []
    if ids is not None:
        conditions, values = _OF_THESE, [json.dumps([*ids])]
    if looked_up:
        conditions, values = conditions + _WITH_TRIGRAMS, [*values, _match(word)]
    return {row[0] for row in database.execute(_HOLDING.format(of=conditions), [*values, word])}


def _holding_of_few(database: sqlite3.Connection, word: str, ids: set[str]) -> set[str]:
    one = "SELECT 1 FROM texts WHERE session_id = ? AND instr(text, ?) LIMIT 1"
    return {session_id for session_id in ids if database.execute(one, (session_id, word)).fetchone()}


def _match(word: str) -> str:
    """The query for pieces that have the trigrams of a word, in whatever order."""
    trigrams = sorted({word[start : start + 3] for start in range(min(len(word) - 2, _LOOKED_UP))})
    return " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)


def _count(database: sqlite3.Connection) -> int:
    count: int = database.execute("SELECT count(*) FROM searched").fetchone()[0]
    return count


def _has_trigrams(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = 'trigrams'").fetchone() is not None
