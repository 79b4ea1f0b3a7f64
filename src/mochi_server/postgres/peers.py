"""Requests that another process has to answer: put into a table, answered in parts in another.

Whoever asks takes the parts out as they come, and is told by notifications that there are some.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from mochi_server.errors import MochiError
from mochi_server.postgres.database import Connection, Database
from mochi_server.postgres.news import News, tell
from mochi_server.postgres.process import Process, lock_key

_LOOK_SECONDS = 0.5
"""How late news is that nobody was told of."""

_ALIVE_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
"""How long the next part of an answer is waited for."""
_UNREAD_BYTES = 1024 * 1024
"""Parts that lie in the table before a slow reader is waited for."""
_QUEUED_BYTES = 256 * 1024
_RUNS_OF = """
SELECT process FROM runs WHERE session_id = %s ORDER BY run_id = %s DESC, began DESC LIMIT 1"""
_CLAIM = """
INSERT INTO idempotency_keys (session_id, key, process) VALUES (%s, %s, %s)
ON CONFLICT (session_id, key) DO UPDATE SET process = idempotency_keys.process RETURNING process"""
_TAKE_OVER = "UPDATE idempotency_keys SET process = %s WHERE session_id = %s AND key = %s AND process = %s"
_TAKE = "UPDATE requests SET taken = true WHERE process = %s AND NOT taken RETURNING id, asker, head, body"

_log = logging.getLogger(__name__)


class PeerGone(Exception):
    """The process that was asked is dead."""


class PeerSilent(Exception):
    """The process that was asked lives, but does not answer."""


class Part(NamedTuple):
    """A piece of an answer; ``head`` is set where it begins."""

    number: int
    head: str | None
    data: bytes
    is_last: bool


@dataclass(eq=False)
class Request:
    """A request of a client that came to another process, to be answered here."""

    id: str
    asker: str
    head: str
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody waits for the answer any more."""
    _queue: list[tuple[str | None, bytes, bool]] = field(default_factory=list)
    _queued: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, head: str | None, data: bytes, *, is_last: bool = False) -> None:
        """Send a piece; waits where whoever asked does not keep up."""
        self._queue.append((head, data, is_last))
        self._queued.set()
        if sum(len(item[1]) for item in self._queue) > _QUEUED_BYTES:
            self._room.clear()
            await self._room.wait()

    async def queued(self) -> list[tuple[str | None, bytes, bool]]:
        """All pieces that are to be sent; waits for the first."""
        await self._queued.wait()
        self._queued.clear()
        items, self._queue = self._queue, []
        self._room.set()
        return items


class Peers:
    """The other processes of the same database, as far as requests are concerned."""

    def __init__(self, database: Database, process: Process, news: News, holds: Callable[[str], bool]) -> None:
        """``holds`` tells whether a turn of a session runs here."""
        self._holds = holds
        self._database = database
        self._process = process
        self._serve: Callable[[Request], Awaitable[None]] | None = None
        self._asked = asyncio.Event()
        self._waiting: dict[str, asyncio.Event] = {}
        self._answering: dict[str, Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        news.on |= {"request": lambda _: self._asked.set(), "part": self._part_came, "gone": self._asker_left}

    def answer_with(self, serve: Callable[[Request], Awaitable[None]]) -> None:
        """What answers the requests of others."""
        self._serve = serve

    def open(self) -> None:
        """Answer what others ask."""
        self._keep(self._answer_requests())
        self._keep(self._look_after_askers())

    async def aclose(self) -> None:
        """Answer nothing any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def runs_at(self, session_id: str, run_id: str | None = None) -> str | None:
        """The other process that has a run of a session: that one, else the latest, which may be under way.

        None where it is this process or nobody. Raises ``PeerGone`` where that process is dead, ``StorageFailed``.
        """
        if self._holds(session_id) and run_id is None:
            return None
        async with self._database.connection("find a run") as connection:
            row = await (await connection.execute(_RUNS_OF, [session_id, run_id or ""])).fetchone()
            if row is None or row[0] == self._process.name:
                return None
            if not await self._lives(connection, row[0]):
                raise PeerGone
            return str(row[0])

    async def claim(self, session_id: str, key: str) -> str | None:
        """The other process where an idempotency key was used first; None where it is this one."""
        async with self._database.connection("claim an idempotency key") as connection:
            while True:
                row = await (await connection.execute(_CLAIM, [session_id, key, self._process.name])).fetchone()
                process = str(row[0]) if row else self._process.name
                if process == self._process.name:
                    return None
                if await self._lives(connection, process):
                    return process
                # Of several who find it with a dead one, one takes it over.
                await connection.execute(_TAKE_OVER, [self._process.name, session_id, key, process])

    async def others(self) -> list[str]:
        """The other processes that live. Raises ``StorageFailed``."""
        return await self._living("SELECT name FROM processes")

    async def with_runs(self, session_id: str) -> list[str]:
        """Those that have runs of a session, ended ones too. Raises ``StorageFailed``."""
        return await self._living("SELECT DISTINCT process FROM runs WHERE session_id = %s", session_id)

    async def _living(self, statement: str, *values: str) -> list[str]:
        async with self._database.connection("see who else serves") as connection:
            rows = await (await connection.execute(statement, values)).fetchall()
            names = {row[0]: lock_key("processes", row[0]) for row in rows if row[0] != self._process.name}
            held = await self._process.held(connection, names.values())
        return [name for name, key in names.items() if key in held]

    async def ask(
        self, process: str, head: str, body: bytes, *, patience: float | None = PATIENCE_SECONDS
    ) -> AsyncGenerator[Part, None]:
        """The parts of another process's answer.

        ``patience`` limits the wait for each part; None waits as long as the process sends heartbeats.

        Raises:
            PeerGone: The process is dead.
            PeerSilent: The process sends no heartbeats, or no part in time.
            StorageFailed: The database failed.
        """
        request_id = uuid4().hex
        came = self._waiting[request_id] = asyncio.Event()
        try:
            async with self._database.transaction("ask another server") as connection:
                if await self._process.is_silent(connection, process):
                    raise PeerSilent
                row = [request_id, self._process.name, process, head, body]
                await connection.execute("INSERT INTO requests VALUES (%s, %s, %s, %s, %s)", row)
                await tell(connection, process, "request")
            ended = False
            while not ended:
                for part in await self._parts(request_id, process, came, patience):
                    yield part
                    ended = part.is_last
        finally:
            del self._waiting[request_id]
            self._keep(self._forget(request_id, process))

    async def _parts(self, request_id: str, process: str, came: asyncio.Event, patience: float | None) -> list[Part]:
        """The next parts; waits for some."""
        began = looked = asyncio.get_running_loop().time()
        while True:
            came.clear()
            async with self._database.connection("hear another server") as connection:
                taken = "DELETE FROM parts WHERE request = %s RETURNING number, head, data, is_last"
                rows = await (await connection.execute(taken, [request_id])).fetchall()
                if rows:
                    return sorted(Part(*row) for row in rows)
                if asyncio.get_running_loop().time() - looked > _ALIVE_SECONDS:
                    looked = asyncio.get_running_loop().time()
                    if not await self._answers(connection, request_id, process):
                        raise PeerGone
                    if (patience is not None and looked - began > patience) or await self._process.is_silent(
                        connection, process
                    ):
                        raise PeerSilent
            await _set_within(came, _LOOK_SECONDS)

    async def _forget(self, request_id: str, process: str) -> None:
        with suppress(MochiError):
            async with self._database.transaction("ask another server") as connection:
                await connection.execute("DELETE FROM requests WHERE id = %s", [request_id])
                await connection.execute("DELETE FROM parts WHERE request = %s", [request_id])
                await tell(connection, process, "gone", request_id)

    async def _answer_requests(self) -> None:
        """Take what others ask; what nobody told of is found a moment later."""
        while True:
            self._asked.clear()
            with suppress(MochiError):
                async with self._database.connection("hear what others ask") as connection:
                    rows = await (await connection.execute(_TAKE, [self._process.name])).fetchall()
                for row in rows:
                    request = Request(*row)
                    self._answering[request.id] = request
                    self._keep(self._answer(request))
            await _set_within(self._asked, _LOOK_SECONDS)

    async def _answer(self, request: Request) -> None:
        serving = asyncio.ensure_future(self._serve_whole(request))
        writing = asyncio.ensure_future(self._write_parts(request))
        try:
            await asyncio.wait({serving, writing}, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._answering.pop(request.id, None)
            for task in (serving, writing):
                task.cancel()
            for result in await asyncio.gather(serving, writing, return_exceptions=True):
                if isinstance(result, MochiError):
                    _log.warning("A request of another server could not be answered: %s", result)
                elif isinstance(result, Exception):
                    _log.error("A request of another server could not be answered", exc_info=result)

    async def _serve_whole(self, request: Request) -> None:
        assert self._serve is not None  # noqa: S101 - the app has said
        await self._serve(request)
        await request.answer(None, b"", is_last=True)

    async def _write_parts(self, request: Request) -> None:
        number, unread, ended = 0, 0, False
        while not ended:
            items = await request.queued()
            joined = [(head, b"".join(data for _, data, _ in group)) for head, group in _grouped(items)]
            ended = items[-1][2]
            async with self._database.transaction("answer another server") as connection:
                for position, (head, data) in enumerate(joined, 1):
                    row = [request.id, number + position, head, data, ended and position == len(joined)]
                    await connection.execute("INSERT INTO parts VALUES (%s, %s, %s, %s, %s)", row)
                await tell(connection, request.asker, "part", request.id)
            number += len(joined)
            unread += sum(len(data) for _, data in joined)
            while unread > _UNREAD_BYTES and not request.gone.is_set():
                unread = await self._unread(request.id)
                if unread > _UNREAD_BYTES:
                    await _set_within(request.gone, 0.1)

    async def _unread(self, request_id: str) -> int:
        async with self._database.connection("answer another server") as connection:
            statement = "SELECT coalesce(sum(length(data)), 0) FROM parts WHERE request = %s"
            row = await (await connection.execute(statement, [request_id])).fetchone()
        return int(row[0]) if row else 0

    async def _look_after_askers(self) -> None:
        """Notice who left without our being told."""
        while True:
            await asyncio.sleep(_ALIVE_SECONDS)
            if not self._answering:
                continue
            with suppress(MochiError):
                async with self._database.connection("see who waits for answers") as connection:
                    ids = list(self._answering)
                    rows = await (
                        await connection.execute("SELECT id FROM requests WHERE id = ANY(%s)", [ids])
                    ).fetchall()
                    there = {row[0] for row in rows}
                for request_id in ids:
                    if request_id not in there:
                        self._asker_left(request_id)

    async def _answers(self, connection: Connection, request_id: str, process: str) -> bool:
        """Whether a request is still there, which a crash of the database costs, and who has to answer it."""
        row = await (await connection.execute("SELECT 1 FROM requests WHERE id = %s", [request_id])).fetchone()
        return row is not None and await self._lives(connection, process)

    async def _lives(self, connection: Connection, process: str) -> bool:
        key = lock_key("processes", process)
        return key in await self._process.held(connection, [key])

    def _part_came(self, request_id: str) -> None:
        if (event := self._waiting.get(request_id)) is not None:
            event.set()

    def _asker_left(self, request_id: str) -> None:
        if (request := self._answering.get(request_id)) is not None:
            request.gone.set()

    def _keep(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _grouped(
    items: list[tuple[str | None, bytes, bool]],
) -> list[tuple[str | None, list[tuple[str | None, bytes, bool]]]]:
    """Pieces that can travel together: a new one begins with each head."""
    groups: list[tuple[str | None, list[tuple[str | None, bytes, bool]]]] = []
    for item in items:
        if item[0] is not None or not groups:
            groups.append((item[0], [item]))
        else:
            groups[-1][1].append(item)
    return groups


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError, asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
