"""The stores of a server over one database, and what this process does in it besides."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from mochi_server.errors import MochiError
from mochi_server.postgres.database import Connection, Database
from mochi_server.postgres.migrating import migrate
from mochi_server.postgres.news import News
from mochi_server.postgres.peers import Peers
from mochi_server.postgres.process import Process
from mochi_server.postgres.store import PostgresSessionStore

_TIDY_SECONDS = 2.0

_log = logging.getLogger(__name__)


class PostgresStores:
    """The ``Stores`` of one database."""

    problems: Sequence[str] = ()

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self._process = Process(self._database)
        self._news = News(self._database, self._process.name)
        self.chats = PostgresSessionStore(self._database, self._process, "chats")
        self.agents = PostgresSessionStore(self._database, self._process, "agents")
        self.peers = Peers(self._database, self._process, self._news, self.chats.holds)
        self._news.on["freed"] = self._freed
        self._tidying: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether the database can be reached, as far as is known."""
        return self._process.connected

    async def open(self) -> None:
        """Connect, bring the schema up to date, be there for others. Raises ``MochiError``."""
        await self._database.open()
        await migrate(self._database)
        await self._process.open()
        self._news.open()
        self.peers.open()
        self._tidying = asyncio.get_running_loop().create_task(self._tidy())

    async def check(self) -> None:
        """See whether sessions can be stored. Raises ``StorageFailed``."""
        await self.chats.check()

    def when_lost(self, tell: Callable[[Collection[str]], None]) -> None:
        """Call ``tell`` with the ids of held sessions that another server has taken over."""

        async def reconnected(connection: Connection) -> None:
            tell(await self.chats.taken_over(connection))

        self._process.reconnected = reconnected

    async def aclose(self) -> None:
        """Release the locks and close the connections."""
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.wait([self._tidying])
        await self.peers.aclose()
        await self._news.aclose()
        await self._process.aclose()
        await self._database.aclose()

    async def _tidy(self) -> None:
        """At the start and every few seconds, recover what servers that died have left."""
        while True:
            with suppress(MochiError):
                await self.chats.fold_all()
                await self.agents.fold_all()
                await self._process.bury()
            await asyncio.sleep(_TIDY_SECONDS)

    def _freed(self, session_id: str) -> None:
        self.chats.freed(session_id)
        self.agents.freed(session_id)
