"""Directory of the other server processes that use the same database: their runs, URLs and states."""

import hmac
from collections.abc import Container
from typing import NamedTuple

from mochi_server.storage.postgres.pool import Database, Row, fetch_all
from mochi_server.storage.postgres.process_locks import IS_RECENT, IS_SILENT, ServerProcess, locked_names

_SELECT_OWNER = """
SELECT process, ended IS NOT NULL FROM runs WHERE session_id = %(session_id)s
ORDER BY run_id = %(run_id)s DESC, began DESC LIMIT 1"""
_CLAIM = """
INSERT INTO idempotency_keys (session_id, key, process) VALUES (%(session_id)s, %(key)s, %(own)s)
ON CONFLICT (session_id, key) DO UPDATE SET process = idempotency_keys.process RETURNING process"""
_TAKE_OVER = """
UPDATE idempotency_keys SET process = %(own)s
WHERE session_id = %(session_id)s AND key = %(key)s AND process = %(dead)s RETURNING process"""
_PEERS = f"""
SELECT name, url, {IS_SILENT}, {IS_RECENT} FROM processes WHERE name <> %(own)s AND """


class PeerGone(Exception):
    """Exception for a request that must be forwarded to a server process that is dead."""


class Peer(NamedTuple):
    """Another live server process. If ``is_silent`` is true, it sends no heartbeats, perhaps because it is frozen."""

    name: str
    url: str
    is_silent: bool


class PeerDirectory:
    """Queries about the other server processes. All asynchronous methods raise ``StorageFailed`` on database errors."""

    def __init__(self, database: Database, process: ServerProcess, locked_sessions: Container[str]) -> None:
        """``locked_sessions`` contains the ids of the sessions that this process has locked."""
        self._database = database
        self._process = process
        self._locked_sessions = locked_sessions
        self._secret = b""

    async def open(self) -> None:
        """Read the secret with which the servers of the database authenticate their requests to each other."""
        rows = await self._fetch("SELECT secret FROM peer_secret")
        self._secret = rows[0][0].encode() if rows else b""

    @property
    def name(self) -> str:
        """Name of this process."""
        return self._process.name

    def token(self, process: str) -> str:
        """Return the token that authenticates a request to ``process`` from a server of the same database."""
        return hmac.digest(self._secret, process.encode(), "sha256").hex()

    def accepts(self, token: str) -> bool:
        """Return whether ``token`` authenticates a request from another server to this process."""
        return bool(self._secret) and hmac.compare_digest(token.encode(), self.token(self.name).encode())

    async def owner_of(self, session_id: str, run_id: str | None = None, *, starts_turn: bool = False) -> Peer | None:
        """Return the process that executes the run ``run_id`` of a session, or its latest run if that run is unknown.

        Return None if that is this process, or if the session has no runs. Raises ``PeerGone`` if the process is dead.
        If ``starts_turn`` is true, a frozen process whose run has ended counts as dead.
        """
        if session_id in self._locked_sessions and run_id is None:
            return None
        rows = await self._fetch(_SELECT_OWNER, session_id=session_id, run_id=run_id or "")
        if not rows or rows[0][0] == self.name:
            return None
        process, has_ended = rows[0]
        peer = await self.find(process)
        if peer is None or (starts_turn and has_ended and peer.is_silent):
            raise PeerGone
        return peer

    async def claim(self, session_id: str, key: str) -> Peer | None:
        """Claim an idempotency key for this process. Return the live process that already claimed the key, or None."""
        values = {"session_id": session_id, "key": key, "own": self.name}
        while (process := (await self._fetch(_CLAIM, **values))[0][0]) != self.name:
            if (peer := await self.find(process)) is not None:
                return peer
            # Several servers may try this at the same time. The SQL condition lets only one of them take over the key.
            await self._fetch(_TAKE_OVER, **values, dead=process)
        return None

    async def serving_peers(self) -> list[Peer]:
        """Return all other live processes that serve requests."""
        return await self._live_peers("url <> ''")

    async def peers_with_runs(self, session_id: str) -> list[Peer]:
        """Return the other live processes that execute, or have executed, runs of a session."""
        return await self._live_peers("name IN (SELECT process FROM runs WHERE session_id = %(id)s)", id=session_id)

    async def find(self, process: str) -> Peer | None:
        """Return the other process with the name ``process``, or None if that process is dead."""
        peers = await self._live_peers("name = %(name)s", name=process)
        return peers[0] if peers else None

    async def _live_peers(self, condition: str, **values: str) -> list[Peer]:
        async with self._database.connection("find other servers") as connection:
            rows = await fetch_all(connection, _PEERS + condition, {"own": self.name, **values})
            live = await locked_names(connection, "processes", [row[0] for row in rows])
        return [Peer(*row) for *row, is_recent in rows if row[0] in live or is_recent]

    async def _fetch(self, statement: str, **values: str) -> list[Row]:
        async with self._database.connection("find other servers") as connection:
            return await fetch_all(connection, statement, values)
