"""Turns of API keys in PostgreSQL, which all servers of the database count."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from mochi_server.errors import StorageFailed
from mochi_server.sessions.caller import Caller
from mochi_server.sessions.turn_counts import (
    MINUTE_SECONDS,
    CountedTurn,
    TurnCounter,
    check_limits,
    check_running,
)
from mochi_server.storage.postgres.database import Database, fetch_one
from mochi_server.storage.postgres.processes import PeerDirectory
from mochi_server.util.tasks import cancel_and_wait, start_in

_RETRY_SECONDS = 1.0
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_RECENT = f"SELECT b FROM unnest(k.began) AS b WHERE b > {_NOW} - {MINUTE_SECONDS}"
# The row of the key is locked, so that two servers do not both start the last turn of a limit.
_BEGIN = f"""
INSERT INTO key_turns AS k (key, running, began)
VALUES (%(key)s, ARRAY[%(turn)s], ARRAY[{_NOW}])
ON CONFLICT (key) DO UPDATE
SET running = k.running || excluded.running, began = ARRAY({_RECENT}) || {_NOW}
WHERE (%(at_a_time)s::integer IS NULL OR cardinality(k.running) < %(at_a_time)s)
    AND (%(per_minute)s::integer IS NULL
        OR cardinality(ARRAY({_RECENT})) < %(per_minute)s)
RETURNING k.began[cardinality(k.began)]"""
_BEGIN_AGAIN = """
INSERT INTO key_turns AS k (key, running, began) VALUES (%(key)s, ARRAY[%(turn)s], '{}')
ON CONFLICT (key) DO UPDATE SET running = k.running || excluded.running
WHERE %(at_most)s::integer IS NULL OR cardinality(k.running) < %(at_most)s
RETURNING k.key"""
_END = """
UPDATE key_turns SET running = array_remove(running, %(turn)s),
    began = array_remove(began, %(uncounted_start)s::float8)
WHERE key = %(key)s AND %(turn)s = ANY(running)"""
_SELECT = f"SELECT k.running, ARRAY({_RECENT}), {_NOW} FROM key_turns k WHERE key = %(key)s"
_REMOVE_DEAD = """
UPDATE key_turns SET running = ARRAY(
    SELECT r FROM unnest(running) AS r WHERE split_part(r, '/', 1) <> ALL(%(dead)s))
WHERE key = %(key)s"""

logger = logging.getLogger(__name__)


class PostgresTurnCounter(TurnCounter):
    """``TurnCounter`` in one PostgreSQL database."""

    def __init__(self, database: Database, peers: PeerDirectory) -> None:
        self._database = database
        self._peers = peers
        self._tasks: set[asyncio.Future[None]] = set()

    async def begin(self, turn_id: str, caller: Caller) -> CountedTurn:
        while True:
            began = await self._insert(turn_id, caller)
            if began is not None:
                return CountedTurn(turn_id, caller.key, began)
            await self._remove_dead(caller.key)
            await self._check(caller)  # if it raises no error, turns have ended meanwhile

    async def begin_again(self, turn_id: str, key: str, at_most: int | None = None) -> CountedTurn:
        values = {"key": key, "turn": self._entry(turn_id), "at_most": at_most}
        while await self._fetch(_BEGIN_AGAIN, values) is None:
            await self._remove_dead(key)
            running, _, _ = await self._counts(key)
            # If it raises no error, turns have ended meanwhile.
            check_running(at_most, len(running))
        return CountedTurn(turn_id, key)

    async def end(self, turn: CountedTurn, *, has_started: bool) -> None:
        """Count a turn no longer as running, and if not ``has_started``, nor as started.

        During an outage, this is done later.
        """
        values = {
            "key": turn.key,
            "turn": self._entry(turn.turn_id),
            "uncounted_start": None if has_started else turn.began,
        }
        try:
            await self._execute(_END, values)
        except StorageFailed as error:
            logger.warning("The end of a turn is counted later: %s", error.message)
            start_in(self._tasks, self._end_later(values))

    async def aclose(self) -> None:
        """Stop retrying. Turns of a dead process do not count."""
        await cancel_and_wait([*self._tasks])

    async def _end_later(self, values: dict[str, Any]) -> None:
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            try:
                return await self._execute(_END, values)
            except StorageFailed:
                continue

    async def _insert(self, turn_id: str, caller: Caller) -> float | None:
        """Count a turn and return its time, or None at a limit."""
        values = {
            "key": caller.key,
            "turn": self._entry(turn_id),
            "at_a_time": caller.turns_at_a_time,
            "per_minute": caller.turns_per_minute,
        }
        row = await self._fetch(_BEGIN, values)
        return None if row is None else float(row[0])

    async def _check(self, caller: Caller) -> None:
        """Raise RateLimited if the caller is at a limit."""
        running, began, now = await self._counts(caller.key)
        check_limits(caller, len(running), began, now)

    async def _remove_dead(self, key: str) -> None:
        """Remove the running turns of a key whose processes have died or are frozen."""
        running, _, _ = await self._counts(key)
        processes = {entry.partition("/")[0] for entry in running}
        dead = []
        for process in processes - {self._peers.name}:
            peer = await self._peers.find(process)
            if peer is None or peer.is_silent:
                dead.append(process)
        if dead:
            await self._execute(_REMOVE_DEAD, {"key": key, "dead": dead})

    async def _counts(self, key: str) -> tuple[Sequence[str], Sequence[float], float]:
        """Return the running turns of a key, the times of the starts in the last minute, and the
        time now.

        The time is 0 for a key without a turn.
        """
        row = await self._fetch(_SELECT, {"key": key})
        if row is None:
            return [], [], 0
        running, began, now = row
        return running, began, now

    async def _fetch(self, statement: str, values: Mapping[str, Any]) -> "Sequence[Any] | None":
        async with self._database.connection("count the turns of an API key") as connection:
            return await fetch_one(connection, statement, values)

    async def _execute(self, statement: str, values: Mapping[str, Any]) -> None:
        async with self._database.connection("count the turns of an API key") as connection:
            await connection.execute(statement, values)

    def _entry(self, turn_id: str) -> str:
        return f"{self._peers.name}/{turn_id}"
