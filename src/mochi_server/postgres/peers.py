"""The other server processes of the same database: which one runs a turn, where to reach it, whether it lives."""

import hmac
from collections.abc import Callable
from typing import NamedTuple

from mochi_server.postgres.database import Connection, Database, fetch_all, fetch_one
from mochi_server.postgres.process import SILENT_SECONDS, Process, lock_key

_RUN_OF = """
SELECT process FROM runs WHERE session_id = %(session_id)s ORDER BY run_id = %(run_id)s DESC, began DESC LIMIT 1"""
_CLAIM = """
INSERT INTO idempotency_keys (session_id, key, process) VALUES (%(session_id)s, %(key)s, %(own)s)
ON CONFLICT (session_id, key) DO UPDATE SET process = idempotency_keys.process RETURNING process"""
_TAKE_OVER = """
UPDATE idempotency_keys SET process = %(own)s
WHERE session_id = %(session_id)s AND key = %(key)s AND process = %(dead)s"""
_PEERS = f"""
SELECT name, url, seen < clock_timestamp() - interval '{SILENT_SECONDS} s' FROM processes
WHERE name <> %(own)s AND """


class PeerGone(Exception):
    """The process that has to respond is dead."""


class Peer(NamedTuple):
    """Another live server process. A silent one sends no heartbeat, for example because it is frozen."""

    name: str
    url: str
    is_silent: bool


class Peers:
    """Queries about the other processes. Every method raises ``StorageFailed`` if the database fails."""

    def __init__(self, database: Database, process: Process, holds: Callable[[str], bool]) -> None:
        """``holds`` returns whether a turn of a session runs in this process."""
        self._database = database
        self._process = process
        self._holds = holds
        self._secret = b""

    async def open(self) -> None:
        """Read the secret that all servers of the database share."""
        async with self._database.connection("read the secret of the servers") as connection:
            row = await fetch_one(connection, "SELECT secret FROM peer_secret")
        self._secret = row[0].encode() if row else b""

    @property
    def name(self) -> str:
        """Name of this process."""
        return self._process.name

    def token(self, process: str) -> str:
        """Return what proves to a process that a request comes from a server of the same database."""
        return hmac.digest(self._secret, process.encode(), "sha256").hex()

    def accepts(self, token: str) -> bool:
        """Return whether a token is the one of this process."""
        return bool(self._secret) and hmac.compare_digest(token.encode(), self.token(self.name).encode())

    async def running(self, session_id: str, run_id: str | None = None) -> Peer | None:
        """Return the process that has that run of a session, by default the latest run; None if it is this one.

        Raises ``PeerGone`` if the process is dead.
        """
        if self._holds(session_id) and run_id is None:
            return None
        async with self._database.connection("find a run") as connection:
            row = await fetch_one(connection, _RUN_OF, {"session_id": session_id, "run_id": run_id or ""})
            if row is None or row[0] == self.name:
                return None
            if (peer := await self._find(connection, row[0])) is None:
                raise PeerGone
            return peer

    async def claim(self, session_id: str, key: str) -> Peer | None:
        """Return the process that used an idempotency key first; None if it is this one."""
        values = {"session_id": session_id, "key": key, "own": self.name}
        async with self._database.connection("claim an idempotency key") as connection:
            while True:
                row = await fetch_one(connection, _CLAIM, values)
                if row is None or row[0] == self.name:
                    return None
                if (peer := await self._find(connection, row[0])) is not None:
                    return peer
                # One of several servers that find the key with a dead process takes it over.
                await connection.execute(_TAKE_OVER, {**values, "dead": row[0]})

    async def others(self) -> list[Peer]:
        """Return all other live processes that serve requests."""
        async with self._database.connection("look for other servers") as connection:
            return await self._living(connection, "url <> ''")

    async def with_runs(self, session_id: str) -> list[Peer]:
        """Return the other live processes that have runs of a session, ended ones included."""
        async with self._database.connection("look for other servers") as connection:
            condition = "name IN (SELECT process FROM runs WHERE session_id = %(session_id)s)"
            return await self._living(connection, condition, session_id=session_id)

    async def find(self, process: str) -> Peer | None:
        """Return a process; None if it is dead."""
        async with self._database.connection("look for another server") as connection:
            return await self._find(connection, process)

    async def _find(self, connection: Connection, process: str) -> Peer | None:
        found = await self._living(connection, "name = %(name)s", name=process)
        return found[0] if found else None

    async def _living(self, connection: Connection, condition: str, **values: str) -> list[Peer]:
        rows = await fetch_all(connection, _PEERS + condition, {"own": self.name, **values})
        keys = {row[0]: lock_key("processes", row[0]) for row in rows}
        held = await self._process.held(connection, keys.values())
        return [Peer(*row) for row in rows if keys[row[0]] in held]
