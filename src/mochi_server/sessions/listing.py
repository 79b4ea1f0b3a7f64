"""The list of sessions in memory: an encoded entry for each, with the state of the file that it was read from. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from mochi_server.sessions.disk import Signature
from mochi_server.sessions.pages import SessionPage
from mochi_server.sessions.types import SessionQuery


class Row(NamedTuple):
    """A session's list entry, as JSON, with the time by which it is sorted.

    ``signature`` is of the file that was read; None where the entry is only good for now.
    """

    signature: Signature | None
    updated: float
    entry: bytes


class Listing:
    """Rows by session, and their order: the last changed first, those of one moment by their ids."""

    def __init__(self, rows: Mapping[str, Row] | None = None) -> None:
        self.rows: dict[str, Row] = {}
        self.signatures: dict[str, Signature | None] = {}
        """The states of files that the entries are of."""
        self.size = 0
        """Bytes of the entries."""
        self._order: list[str] = []
        if rows:
            self.take(rows, ())

    def take(self, rows: Mapping[str, Row], gone: Iterable[str]) -> None:
        """Put new rows in place of those that are there, and remove others."""
        for session_id in gone:
            del self.rows[session_id], self.signatures[session_id]
        self.rows.update(rows)
        self.signatures.update((session_id, row.signature) for session_id, row in rows.items())
        self.size = sum(len(row.entry) for row in self.rows.values())
        self._order = sorted(self.rows, key=lambda session_id: (-self.rows[session_id].updated, session_id))

    def page(self, query: SessionQuery, found: Collection[str] | None) -> SessionPage:
        """A part of the list, or of the list of what was found."""
        ids = self._order if found is None else [session_id for session_id in self._order if session_id in found]
        end = None if query.limit is None else query.offset + query.limit
        return SessionPage.of_encoded((self.rows[session_id].entry for session_id in ids[query.offset : end]), len(ids))
