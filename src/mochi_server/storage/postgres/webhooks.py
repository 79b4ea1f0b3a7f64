"""Outbox of webhooks in PostgreSQL, which the servers of the database share."""

from mochi_server.sessions.store import WebhookOutbox
from mochi_server.storage.postgres.database import Database, fetch_one

_CLAIM = """
UPDATE webhooks SET due = clock_timestamp() + make_interval(secs => %s) WHERE webhook_id = (
    SELECT webhook_id FROM webhooks WHERE due <= clock_timestamp() ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING webhook_id, body"""
_ADD = """
INSERT INTO webhooks (webhook_id, body, due) VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (webhook_id) DO UPDATE SET body = excluded.body, due = excluded.due"""


class PostgresWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` in one PostgreSQL database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, webhook_id: str, body: str, *, seconds: float = 0) -> None:
        async with self._database.connection("store a webhook") as connection:
            await connection.execute(_ADD, [webhook_id, body, seconds])

    async def claim(self, seconds: float) -> tuple[str, str] | None:
        async with self._database.connection("read the webhooks") as connection:
            return await fetch_one(connection, _CLAIM, [seconds])

    async def remove(self, webhook_id: str) -> None:
        async with self._database.connection("remove a webhook") as connection:
            await connection.execute("DELETE FROM webhooks WHERE webhook_id = %s", [webhook_id])
