"""Outbox of webhooks in PostgreSQL. Its servers share the webhooks, and each attempt is made by one of them."""

from typing import Any

from mochi_server.sessions.store import Webhook, WebhookOutbox
from mochi_server.storage.postgres.database import Database, fetch_one

_ADD = "INSERT INTO webhooks (webhook_id, body) VALUES (%s, %s)"
_CLAIM = """
UPDATE webhooks SET due = clock_timestamp() + make_interval(secs => %s), attempts = attempts + 1
WHERE webhook_id = (
    SELECT webhook_id FROM webhooks WHERE due <= clock_timestamp() ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING webhook_id, body, attempts"""
_DEFER = "UPDATE webhooks SET due = clock_timestamp() + make_interval(secs => %s) WHERE webhook_id = %s"
_REMOVE = "DELETE FROM webhooks WHERE webhook_id = %s"


class PostgresWebhookOutbox(WebhookOutbox):
    """``WebhookOutbox`` in one PostgreSQL database. A reserved webhook of a server that dies becomes due later."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, webhook_id: str, body: str) -> None:
        await self._execute(_ADD, webhook_id, body)

    async def claim(self, seconds: float) -> Webhook | None:
        async with self._database.connection("read the webhooks") as connection:
            row = await fetch_one(connection, _CLAIM, [seconds])
        return None if row is None else Webhook(*row)

    async def defer(self, webhook: Webhook, seconds: float) -> None:
        await self._execute(_DEFER, seconds, webhook.webhook_id)

    async def remove(self, webhook: Webhook) -> None:
        await self._execute(_REMOVE, webhook.webhook_id)

    async def _execute(self, statement: str, *values: Any) -> None:
        async with self._database.connection("store a webhook") as connection:
            await connection.execute(statement, values)
