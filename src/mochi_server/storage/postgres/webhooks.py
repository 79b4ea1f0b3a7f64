"""Outbox of webhooks in PostgreSQL, which the servers of the database share."""

import asyncio
from collections.abc import Iterable, Sequence

from mochi_server.sessions.change import Notice
from mochi_server.sessions.store import WebhookOutbox
from mochi_server.storage.postgres.database import Connection, Database, fetch_all, fetch_one

_ADD = """
INSERT INTO webhooks (webhook_id, session_id, body, is_request) VALUES (%s, %s, %s, %s)
ON CONFLICT (webhook_id) DO NOTHING"""
_DROP_OUTDATED = """
DELETE FROM webhooks w WHERE w.is_request AND (w.claimed IS NULL OR w.claimed <= clock_timestamp())
AND EXISTS (SELECT FROM webhooks later
    WHERE later.session_id = w.session_id AND later.number > w.number)"""
_CLAIM = """
UPDATE webhooks SET claimed = clock_timestamp() + make_interval(secs => %s) WHERE webhook_id = (
    SELECT w.webhook_id FROM webhooks w
    WHERE w.due <= clock_timestamp() AND (w.claimed IS NULL OR w.claimed <= clock_timestamp())
    AND NOT EXISTS (SELECT FROM webhooks earlier
        WHERE earlier.session_id = w.session_id AND earlier.number < w.number)
    ORDER BY w.due LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING webhook_id, session_id, body, is_request"""
_OLDEST = """
SELECT (SELECT count(*) FROM webhooks), webhook_id, session_id, body, is_request FROM webhooks
ORDER BY number LIMIT 1"""
_OF_SESSION = """
SELECT webhook_id, session_id, body, is_request FROM webhooks
WHERE session_id = %s
ORDER BY number"""
_POSTPONE = """
UPDATE webhooks SET due = clock_timestamp() + make_interval(secs => %s), claimed = NULL
WHERE webhook_id = %s"""


async def insert_notices(connection: Connection, notices: Iterable[Notice]) -> None:
    """Store notices in the transaction of the change that they report.

    Skip those that are stored already.
    """
    for notice in notices:
        await connection.execute(
            _ADD, [notice.webhook_id, notice.session_id, notice.body, notice.is_request]
        )


class PostgresWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` in one PostgreSQL database."""

    def __init__(self, database: Database) -> None:
        self.stored = asyncio.Event()  # set by the session store after its transaction
        self._database = database

    async def claim(self, seconds: float) -> Notice | None:
        async with self._database.connection("read the webhooks") as connection:
            await connection.execute(_DROP_OUTDATED)
            row = await fetch_one(connection, _CLAIM, [seconds])
        if row is None:
            return None
        return Notice(*row)

    async def postpone(self, webhook_id: str, seconds: float) -> None:
        async with self._database.connection("store a webhook") as connection:
            await connection.execute(_POSTPONE, [seconds, webhook_id])

    async def remove(self, webhook_id: str) -> None:
        async with self._database.connection("remove a webhook") as connection:
            await connection.execute("DELETE FROM webhooks WHERE webhook_id = %s", [webhook_id])

    async def backlog(self) -> tuple[int, Notice | None]:
        async with self._database.connection("count the webhooks") as connection:
            row = await fetch_one(connection, _OLDEST)
        if row is None:
            return 0, None
        count, *notice = row
        return count, Notice(*notice)

    async def of_session(self, session_id: str) -> Sequence[Notice]:
        async with self._database.connection("read the webhooks") as connection:
            rows = await fetch_all(connection, _OF_SESSION, [session_id])
        return [Notice(*row) for row in rows]
