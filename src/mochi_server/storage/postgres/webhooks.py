"""Outbox of webhooks in PostgreSQL, which the servers of the database share."""

from typing import Any

from mochi_server.sessions.store import WebhookOutbox
from mochi_server.storage.postgres.database import Database, Row, fetch_all

_CLAIM = """
UPDATE webhooks SET due = clock_timestamp() + make_interval(secs => %s) WHERE webhook_id = (
    SELECT webhook_id FROM webhooks WHERE due <= clock_timestamp() ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING webhook_id, body"""
_ADD = """
INSERT INTO webhooks (webhook_id, body, due) VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (webhook_id) DO UPDATE SET body = excluded.body, due = excluded.due RETURNING due"""


class PostgresWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` in one PostgreSQL database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, webhook_id: str, body: str, *, seconds: float = 0) -> None:
        await self._run(_ADD, webhook_id, body, seconds)

    async def claim(self, seconds: float) -> tuple[str, str] | None:
        return next(((webhook_id, body) for webhook_id, body in await self._run(_CLAIM, seconds)), None)

    async def remove(self, webhook_id: str) -> None:
        await self._run("DELETE FROM webhooks WHERE webhook_id = %s RETURNING due", webhook_id)

    async def _run(self, statement: str, *values: Any) -> list[Row]:
        async with self._database.connection("store a webhook") as connection:
            return await fetch_all(connection, statement, values)
