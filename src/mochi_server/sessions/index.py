"""The list of sessions and what they are searched in, so that no file is read again that has not changed.

The list is kept in memory, and in ``.index.sqlite`` for who comes later; the texts are in that file alone. The files
of the sessions are the truth: rows are compared with them for each list, so the index may be stale, damaged, shared
with other processes or deleted at any time. Where it cannot be kept on disk it is kept in memory.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mochi_server.errors import StorageBusy
from mochi_server.sessions.disk import Signature
from mochi_server.sessions.encoding import encode
from mochi_server.sessions.folder import Changes
from mochi_server.sessions.indexfile import IndexFile, store_rows, stored_rows
from mochi_server.sessions.listing import Listing, Row
from mochi_server.sessions.pages import SessionPage
from mochi_server.sessions.search import words
from mochi_server.sessions.session import timestamp
from mochi_server.sessions.texts import Read, SearchedTexts
from mochi_server.sessions.types import SessionQuery


class Scan(Protocol):
    """What has changed since the files had these signatures; by looking at all of them, or at what is told of."""

    def __call__(self, known: Mapping[str, Signature | None], *, thoroughly: bool) -> Changes: ...


Summarise = Callable[[str], tuple[dict[str, Any], Signature | None] | None]
"""A session's list entry with the signature of what was read; None for what is no session. Raises StorageBusy."""

_Result = TypeVar("_Result")
_KEPT_BYTES = 64 * 2**20
"""A longer list is read from the index's file each time."""
_OTHERS_SECONDS = 0.001
"""A lock is not handed over: without a rest between the steps of a search, who waits for it might wait to the end."""

_log = logging.getLogger(__name__)


class _NoFile(Exception):
    """The index's file cannot be used now."""


class SessionIndex:
    """List entries by their last change, of all sessions or of those with certain words. Blocks; for threads."""

    def __init__(self, directory: Path, scan: Scan, summarise: Summarise, read: Read) -> None:
        self._file = IndexFile(directory / ".index.sqlite")
        self._scan = scan
        self._summarise = summarise
        self._texts = SearchedTexts(read)
        self._listing = Listing()
        self._unsaved: dict[str, Row | None] = {}
        """Rows of the list that the file lacks; None is to be removed."""
        self._seen: Signature | None = None
        """The file's own signature when it held what the list holds."""
        self._is_behind = True
        """Whether a change may have been told of that the list does not show."""
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
            if self._seen is None or self._file.signature() != self._seen:
                self._load()
            self._refresh()
            found = self._saved_and_found(wanted) if wanted or self._unsaved else None
            if wanted and found is None:
                return None
            page = self._listing.page(query, found)
            if self._listing.size > _KEPT_BYTES and not self._unsaved:
                self._listing, self._seen = Listing(), None
            return page

    def _load(self) -> None:
        """Take over what the file says. What it does not know is known as well as before."""
        known: dict[str, Row] = self._listing.rows
        if self._file.signature() is None:
            self._unsaved = {**known}
            return
        try:
            stored = self._with_file(stored_rows)
        except _NoFile:
            return
        missing = {session_id: row for session_id, row in known.items() if session_id not in stored}
        self._listing = Listing({**missing, **stored})
        self._unsaved.update(missing)
        self._is_behind = True

    def _refresh(self) -> None:
        """Bring the list up to date with the files."""
        rows = self._listing.rows
        thoroughly, self._is_behind = self._is_behind, True
        changes = self._scan(self._listing.signatures, thoroughly=thoroughly)
        read, busy = self._read(changes.changed)
        fresh = {session_id: row for session_id, row in read.items() if row is not None and row != rows.get(session_id)}
        gone = changes.gone | {session_id for session_id, row in read.items() if row is None and session_id in rows}
        if fresh or gone:
            self._listing.take(fresh, gone)
            self._unsaved |= {**dict.fromkeys(gone), **fresh}
        self._is_behind = busy or None in read.values()

    def _read(self, session_ids: Iterable[str]) -> tuple[dict[str, Row | None], bool]:
        """The rows of sessions, and whether files are being written: those keep the rows that they have."""
        rows: dict[str, Row | None] = {}
        busy = False
        for session_id in session_ids:
            try:
                rows[session_id] = self._row(session_id)
            except StorageBusy:
                busy = True
        return rows, busy

    def _row(self, session_id: str) -> Row | None:
        summary = self._summarise(session_id)
        if summary is None:
            return None
        entry, signature = summary
        return Row(signature, timestamp(entry["updated_at"]), encode(entry))

    def _saved_and_found(self, wanted: Sequence[str]) -> set[str] | None:
        """Ids of the sessions that hold every wanted word; None for no words, and for what is not done yet."""
        try:
            return self._with_file(partial(self._save_and_find, wanted))
        except _NoFile:
            return self._texts.found_in_files(self._listing.rows, wanted) if wanted else None

    def _save_and_find(self, wanted: Sequence[str], database: sqlite3.Connection) -> set[str] | None:
        if self._unsaved:
            store_rows(database, self._unsaved)
            self._unsaved = {}
        return self._texts.found(database, wanted) if wanted else None

    def _with_file(self, use: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Use the file, or another one in its place should it be damaged. Raises _NoFile."""
        for _ in range(2):
            try:
                with self._file.opened() as database:
                    result = use(database)
            except sqlite3.OperationalError as error:
                _log.debug("the session index stays in memory: %s", error)
                raise _NoFile from error
            except sqlite3.DatabaseError as error:
                _log.warning("the session index is damaged and is made again: %s", error)
                self._file.discard()
                self._unsaved |= self._listing.rows
            else:
                self._seen = self._file.signature()
                return result
        raise _NoFile
