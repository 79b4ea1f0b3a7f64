"""Server processes that use one database: locks and heartbeats of this process, and the directory
of the other ones.

One dedicated connection holds all advisory locks of a process. PostgreSQL releases the locks when
the connection ends for any reason, such as a crash or a network failure.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import psycopg

from mochi_server.errors import StorageFailed, StorageUnavailable
from mochi_server.storage.postgres import database as db
from mochi_server.storage.postgres.database import Connection, Database, fetch_all
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import cancel_and_wait

NAMESPACES = {"chats": 0x6D01, "agents": 0x6D02, "processes": 0x6D03}
"""Upper bits of the 64-bit numbers of advisory locks.

The lower 40 bits are the id of the session or process.
"""
SILENT_SECONDS = 5
"""Age of a heartbeat, relative to the newest one of any process, from which the process counts as
frozen.
"""
IS_SILENT = f"seen < (SELECT max(seen) FROM processes) - interval '{SILENT_SECONDS} s'"
RECENT_SECONDS = 3
"""Time in which a process may reconnect after its connection, or the database, has ended."""
IS_RECENT = (
    "greatest(seen, pg_postmaster_start_time()) > "
    f"clock_timestamp() - interval '{RECENT_SECONDS} s'"
)
"""Condition for processes that were connected a moment ago, or may reconnect because the database
has restarted.
"""
_HEARTBEAT_SECONDS = 1.0
_TIMEOUT_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_RECONNECT_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_HEARTBEAT = """
INSERT INTO processes (name, url) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp()"""
_UNREGISTER = """
WITH ended AS (UPDATE processes SET seen = '-infinity' WHERE name = %s)
SELECT pg_advisory_unlock_all()"""
_LOCKED = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_UNSEEN_PROCESSES = "SELECT name FROM processes WHERE seen < clock_timestamp() - interval '30 s'"
_CLEAN_UP = (
    "UPDATE runs SET ended = clock_timestamp() WHERE process = ANY(%(dead)s) AND ended IS NULL",
    "DELETE FROM runs WHERE ended < clock_timestamp() - interval '6 minutes'",
    "DELETE FROM idempotency_keys WHERE process = ANY(%(dead)s) OR claimed < clock_timestamp() - "
    "interval '1 day'",
    "DELETE FROM processes WHERE name = ANY(%(dead)s)",
)
_SELECT_OWNER = """
SELECT process, ended IS NOT NULL FROM runs WHERE session_id = %(session_id)s
ORDER BY run_id = %(run_id)s DESC, began DESC LIMIT 1"""
_CLAIM = """
INSERT INTO idempotency_keys (session_id, key, process)
VALUES (%(session_id)s, %(key)s, %(claimant)s)
ON CONFLICT (session_id, key) DO UPDATE SET process = idempotency_keys.process RETURNING process"""
_SELECT_KEY = (
    "SELECT process FROM idempotency_keys WHERE session_id = %(session_id)s AND key = %(key)s"
)
_TAKE_OVER = """
UPDATE idempotency_keys SET process = %(claimant)s
WHERE session_id = %(session_id)s AND key = %(key)s AND process = %(dead)s RETURNING process"""
_PEERS = f"""
SELECT name, url, {IS_SILENT}, {IS_RECENT} FROM processes WHERE name <> %(own)s AND """

logger = logging.getLogger(__name__)


def lock_key(namespace: str, name: str) -> int:
    """Return the number of the advisory lock of a session or process.

    ``name`` is its id, which is ten hex digits.
    """
    return NAMESPACES[namespace] << 40 | int(name, 16)


async def locked_names(connection: Connection, namespace: str, names: Iterable[str]) -> set[str]:
    """Return the subset of sessions or processes that any process has locked."""
    rows = await fetch_all(connection, _LOCKED)
    locked_keys = {key for (key,) in rows}
    return {name for name in names if lock_key(namespace, name) in locked_keys}


OnConnected: TypeAlias = Callable[[Connection], Awaitable[None]]


class ServerProcess:
    """Registration, heartbeat and locks of this server process.

    Use an instance in one event loop only.
    """

    def __init__(self, database: Database, url: str = "") -> None:
        """``url`` is the address at which other servers reach this process, or "" if it serves no
        requests.
        """
        self.name = new_id()
        self._url = url
        self._database = database
        self._connection: Connection | None = None
        self._locked: set[int] = set()
        self._connection_lock = asyncio.Lock()
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def open(self, on_connected: OnConnected) -> None:
        """Register this process in the database and start its heartbeat.

        ``on_connected`` is called after each connect. By then, this process has its locks again,
        except taken ones. Raises ``StorageFailed``.
        """
        try:
            await self._connect(on_connected)
        except psycopg.Error as error:
            raise db.failure("register this process in the database", error) from error
        self._heartbeat = asyncio.get_running_loop().create_task(self._run_heartbeat(on_connected))

    async def try_lock(self, key: int) -> bool:
        """Acquire a lock that this process does not have, or return False if another one has it.

        During an outage, wait up to ``_RECONNECT_SECONDS``. Raises ``StorageFailed``.
        """
        try:
            is_acquired = await self._call_lock_function("pg_try_advisory_lock", key)
        except StorageUnavailable:  # the pool may have reconnected before this connection
            with suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._database.reachable.wait(), _RECONNECT_SECONDS)
            is_acquired = await self._call_lock_function("pg_try_advisory_lock", key)
        if is_acquired:
            self._locked.add(key)
        return is_acquired

    async def release(self, key: int) -> None:
        """Release a lock.

        Errors are ignored, because a lost connection has already released the lock.
        """
        self._locked.discard(key)
        with suppress(StorageFailed):
            await self._call_lock_function("pg_advisory_unlock", key)

    async def delete_dead_processes(self) -> None:
        """Delete dead processes and their idempotency keys, and end their runs.

        Also delete old runs and old idempotency keys of all processes.

        A process is dead if it has no lock and sent no heartbeat for 30 s. Raises
        ``StorageFailed``.
        """
        async with self._database.connection("clean up after dead servers") as connection:
            unseen = {name for (name,) in await fetch_all(connection, _UNSEEN_PROCESSES)}
            dead = [*unseen - await locked_names(connection, "processes", unseen)]
            # The processes are deleted last, so that a later call completes an interrupted one.
            for statement in _CLEAN_UP:
                await connection.execute(statement, {"dead": dead})

    async def aclose(self) -> None:
        """Stop the heartbeat, release all locks and close the connection."""
        if self._heartbeat is not None:
            await cancel_and_wait([self._heartbeat])
        connection = self._connection
        self._connection = None
        if connection is not None:
            # After an error, the database notices the close later.
            with suppress(psycopg.Error, TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(connection.execute(_UNREGISTER, [self.name]), _CLOSE_SECONDS)
            await connection.close()

    async def _connect(self, on_connected: OnConnected) -> None:
        connection = await self._database.connect()
        try:
            await connection.execute(
                "SELECT pg_advisory_lock(%s)", [lock_key("processes", self.name)]
            )
            await connection.execute(_HEARTBEAT, [self.name, self._url])
            # `on_connected` finds the locks that another process has taken.
            for key in list(self._locked):
                await connection.execute("SELECT pg_try_advisory_lock(%s)", [key])
            await on_connected(connection)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        self._database.reachable.set()

    async def _call_lock_function(self, function: str, key: int) -> bool:
        """Call a lock function of PostgreSQL and return its result.

        Any database error drops the connection. Raises ``StorageFailed``.
        """
        async with self._connection_lock:
            if self._connection is None:
                raise db.unreachable("lock a session")
            try:
                row = await db.fetch_one(
                    self._connection, f"SELECT {function}(%(key)s)", {"key": key}
                )
            except psycopg.Error as error:
                self._drop_connection(self._connection)
                raise db.failure("lock a session", error) from error
        return bool(row and row[0])

    async def _run_heartbeat(self, on_connected: OnConnected) -> None:
        """Send heartbeats, and reconnect after an outage.

        If the database rejects a heartbeat, keep the connection.
        """
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS if self.connected else _RETRY_SECONDS)
            async with self._connection_lock:
                connection = self._connection
                try:
                    if connection is None:
                        await asyncio.wait_for(self._connect(on_connected), _TIMEOUT_SECONDS)
                        logger.warning("database connection restored")
                    else:
                        heartbeat = connection.execute(_HEARTBEAT, [self.name, self._url])
                        await asyncio.wait_for(heartbeat, _TIMEOUT_SECONDS)
                except (psycopg.Error, TimeoutError, asyncio.TimeoutError) as error:
                    if connection is not None and (
                        connection.closed or not isinstance(error, psycopg.Error)
                    ):
                        self._drop_connection(connection)

    def _drop_connection(self, connection: Connection) -> None:
        logger.error(
            "database connection lost; running turns continue and store their answers after "
            "reconnecting"
        )
        self._connection = None
        self._database.reachable.clear()
        connection.pgconn.finish()


class PeerGone(Exception):
    """The process to which a request must be forwarded is dead."""


class Peer(NamedTuple):
    """Another live server process.

    If ``is_silent`` is true, it sends no heartbeats, perhaps because it is frozen.
    """

    name: str
    url: str
    is_silent: bool


class PeerDirectory:
    """Queries about the other server processes.

    All asynchronous methods raise ``StorageFailed`` on database errors.
    """

    def __init__(
        self, database: Database, process: ServerProcess, locked_sessions: Container[str]
    ) -> None:
        """``locked_sessions`` contains the ids of the sessions that this process has locked."""
        self.name = process.name
        self._database = database
        self._locked_sessions = locked_sessions
        self._secret = b""

    async def open(self) -> None:
        """Read the secret with which the servers of the database authenticate their requests to
        each other.
        """
        rows = await self._fetch("SELECT secret FROM peer_secret")
        self._secret = rows[0][0].encode() if rows else b""

    def token(self, process: str) -> str:
        """Return the token that authenticates a request to ``process`` from a server of the same
        database.
        """
        return hmac.digest(self._secret, process.encode(), "sha256").hex()

    def accepts(self, token: str) -> bool:
        """Return whether ``token`` authenticates a request from another server to this process."""
        return bool(self._secret) and hmac.compare_digest(
            token.encode(), self.token(self.name).encode()
        )

    async def owner_of(
        self, session_id: str, run_id: str | None = None, *, starts_turn: bool = False
    ) -> Peer | None:
        """Return the process that executes the run ``run_id`` of a session, or its latest run if
        that run is unknown.

        Return None if that is this process, or if the session has no runs. Raises ``PeerGone`` if
        the process is dead. If ``starts_turn`` is true, a frozen process whose run has ended counts
        as dead.
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

    async def claim_key(
        self, session_id: str, key: str, claimant: Peer | None = None
    ) -> Peer | None:
        """Claim an idempotency key for ``claimant`` if it is alive, or for this process.

        Return the other live process that has the key now, or None if this one has it.
        """
        claimant_name = self.name if claimant is None else claimant.name
        values = {"session_id": session_id, "key": key, "claimant": claimant_name}
        while True:
            ((owner,),) = await self._fetch(_CLAIM, **values)
            if owner == self.name:
                return None
            peer = await self.find(owner)
            if peer is not None:
                return peer
            if owner == claimant_name:  # the claimant has died
                return await self.claim_key(session_id, key)
            # Several servers may try this at the same time. The SQL condition lets only one of them
            # take over the key.
            await self._fetch(_TAKE_OVER, **values, dead=owner)

    async def key_owner(self, session_id: str, key: str) -> Peer | None:
        """Return the other live process that has claimed an idempotency key, or None."""
        rows = await self._fetch(_SELECT_KEY, session_id=session_id, key=key)
        if not rows:
            return None
        owner = rows[0][0]
        return await self.find(owner)

    async def find(self, process: str) -> Peer | None:
        """Return the other process with the name ``process``.

        Return None if that process is dead, unknown or this one.
        """
        peers = await self.live_peers("name = %(name)s", name=process)
        return peers[0] if peers else None

    async def live_peers(self, condition: str = "url <> ''", **values: str) -> list[Peer]:
        """Return the other live processes that meet an SQL condition.

        By default, they serve requests.
        """
        async with self._database.connection("find other servers") as connection:
            rows = await fetch_all(connection, _PEERS + condition, {"own": self.name, **values})
            names = [row[0] for row in rows]
            live = await locked_names(connection, "processes", names)
        peers = []
        for *row, is_recent in rows:
            peer = Peer(*row)
            if peer.name in live or is_recent:
                peers.append(peer)
        return peers

    async def _fetch(self, statement: str, **values: str) -> list[db.Row]:
        async with self._database.connection("find other servers") as connection:
            return await fetch_all(connection, statement, values)
