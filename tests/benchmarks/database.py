"""Measurement of rows and time per turn in PostgreSQL, by session length: `uv run python -m
tests.benchmarks.database`.

A turn locks the session, loads it, appends the question, writes checkpoints, appends the answer and
releases the lock. Rows are those that PostgreSQL counts as read and written. One figure is of a
process that has the session in its cache, the other of a process that does not.
"""

import asyncio
import sys
import time
from dataclasses import dataclass

import psycopg

from mochi_server.sessions import AssistantMessage, ChatSession, SessionCreationOptions
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import user_message
from mochi_server.storage.postgres.database import CONNECTIONS
from mochi_server.storage.postgres.store import PostgresStores
from mochi_server.util.clock import new_id, now
from tests.benchmarks.figures import median
from tests.support import postgres

LENGTHS = (10, 1_000, 100_000)
_TURNS = 10
_CHARACTERS = 200
_COUNTED = (
    "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0), coalesce(sum(n_tup_ins "
    "+ n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables WHERE schemaname = current_schema()"
)


@dataclass(frozen=True)
class Cost:
    """Cost of one turn: rows read and written, and the time spent in the store in milliseconds."""

    read: float
    written: float
    milliseconds: float


async def turn_costs(url: str, length: int, turns: int = _TURNS) -> tuple[Cost, Cost]:
    """Return the cost of a process's first turn on a session, and the median of its later turns."""
    session_id = await _stored(url, length)
    stores = PostgresStores(url)
    await stores.open()
    try:
        first = await _cost(url, stores, session_id)
        more = [await _cost(url, stores, session_id) for _ in range(turns)]
    finally:
        await stores.aclose()
    usual = Cost(
        median(more, lambda cost: cost.read),
        median(more, lambda cost: cost.written),
        median(more, lambda cost: cost.milliseconds),
    )
    return first, usual


async def _stored(url: str, length: int) -> str:
    stores = PostgresStores(url)
    await stores.open()
    try:
        session = ChatSession.create(SessionCreationOptions("mochi"))
        session.messages = [
            _answer() if number % 2 else user_message("x" * _CHARACTERS) for number in range(length)
        ]
        return (await stores.chats.put(session)).session_id
    finally:
        await stores.aclose()


def _answer() -> AssistantMessage:
    content = "x" * _CHARACTERS
    return {
        "role": "assistant",
        "content": content,
        "model": "mochi",
        "message_id": new_id(),
        "timestamp": now(),
    }


async def _cost(url: str, stores: PostgresStores, session_id: str) -> Cost:
    before, began = _counted(url), time.perf_counter()
    async with stores.chats.hold(session_id, run_id=new_id()):
        await stores.chats.load(session_id)
        await stores.chats.write(session_id, Change([user_message("x" * _CHARACTERS)]))
        await stores.chats.write(session_id, Change(partial=_answer()))
        await stores.chats.write(session_id, Change([_answer()], ends_turn=True))
    took = time.perf_counter() - began
    await asyncio.sleep(1.1)  # as often as a connection reports its counters
    await asyncio.gather(
        *(stores.check() for _ in range(2 * CONNECTIONS))
    )  # each connection reports its own rows
    read, written = (after - earlier for after, earlier in zip(_counted(url), before, strict=True))
    return Cost(read, written, took * 1000)


def _counted(url: str) -> tuple[int, int]:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_COUNTED).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    postgres.begin_run()
    try:
        _write("| messages | | rows read | rows written | ms |\n| --- | --- | --- | --- | --- |")
        for length in LENGTHS:
            with postgres.fresh_schema(postgres.shared_instance().url()) as url:
                for kind, cost in zip(
                    ("first", "later"), asyncio.run(turn_costs(url, length)), strict=True
                ):
                    _write(
                        f"| {length:,} | {kind} | {cost.read:.0f} | {cost.written:.0f} | "
                        f"{cost.milliseconds:.1f} |"
                    )
    finally:
        postgres.end_run()


if __name__ == "__main__":
    main()
