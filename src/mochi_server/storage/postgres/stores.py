"""Session stores of a server in one PostgreSQL database, and the recovery of the sessions of dead servers."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from psycopg.errors import ReadOnlySqlTransaction

from mochi_server.errors import MochiError
from mochi_server.sessions.store import Stores
from mochi_server.storage.postgres.database import Connection, Database, fetch_one, migrate, unreachable
from mochi_server.storage.postgres.processes import PeerDirectory, ServerProcess
from mochi_server.storage.postgres.store import PostgresSessionStore
from mochi_server.storage.postgres.webhooks import PostgresWebhookOutbox
from mochi_server.util.tasks import cancel_and_wait

_CHECK_SECONDS = 3
_CLEAN_UP_SECONDS = 2.0


class PostgresStores(Stores):
    """``Stores`` in one PostgreSQL database."""

    is_shared = True

    def __init__(self, url: str, own_url: str = "") -> None:
        """``own_url`` is the address at which other servers reach this process (see ``ServerProcess``)."""
        self._database = Database(url)
        self._process = ServerProcess(self._database, own_url)
        self.chats: PostgresSessionStore = PostgresSessionStore(self._database, self._process, "chats")
        self.agents: PostgresSessionStore = PostgresSessionStore(self._database, self._process, "agents")
        self.webhooks: PostgresWebhookOutbox = PostgresWebhookOutbox(self._database)
        self.peers = PeerDirectory(self._database, self._process, self.chats.locked_sessions)
        self._tasks: list[asyncio.Future[None]] = []

    @property
    def connected(self) -> bool:
        return self._process.connected

    async def open(self) -> None:
        """Connect, migrate the schema, register this process and start crash recovery. Raises ``MochiError``."""
        await self._database.open()
        await migrate(self._database)
        await self._process.open()
        await self.peers.open()
        self._tasks = [asyncio.ensure_future(self._clean_up())]

    async def check(self) -> None:
        if not self.connected:
            raise unreachable("lock sessions")
        async with self._database.connection("store sessions", _CHECK_SECONDS) as connection:
            if await fetch_one(connection, "SHOW transaction_read_only") == ("on",):
                raise ReadOnlySqlTransaction

    def on_sessions_lost(self, callback: Callable[[Collection[str]], None]) -> None:
        async def reconnected(connection: Connection) -> None:
            callback(await self.chats.lost_sessions(connection))

        self._process.reconnected = reconnected

    async def aclose(self) -> None:
        await cancel_and_wait(self._tasks)
        await self._process.aclose()
        await self._database.aclose()

    async def _clean_up(self) -> None:
        while True:
            with suppress(MochiError):
                await self.chats.recover_all_crashed()
                await self.agents.recover_all_crashed()
                await self._process.delete_dead_processes()
            await asyncio.sleep(_CLEAN_UP_SECONDS)
