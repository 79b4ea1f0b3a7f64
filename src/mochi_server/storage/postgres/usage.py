"""Usage in PostgreSQL, to which all servers of the database add."""

from collections.abc import Mapping

from mochi_server.sessions.usage import Usage, UsageKey, UsageStore
from mochi_server.storage.postgres.database import Database, fetch_all

_ADD = """
INSERT INTO usage AS u (day, key, model, requests, prompt_tokens, answer_tokens)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (day, key, model) DO UPDATE SET requests = u.requests + excluded.requests,
    prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
    answer_tokens = u.answer_tokens + excluded.answer_tokens"""
_SINCE = """
SELECT to_char(day, 'YYYY-MM-DD'), key, model, requests, prompt_tokens, answer_tokens FROM usage
WHERE day >= %s::date AND key = coalesce(%s::text, key)"""


class PostgresUsageStore(UsageStore):
    """``UsageStore`` in one PostgreSQL database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entries: Mapping[UsageKey, Usage]) -> None:
        async with self._database.transaction("store the usage of API keys") as connection:
            for key, usage in sorted(entries.items()):  # in one order, so that no server deadlocks
                counts = [usage.requests, usage.prompt_tokens, usage.answer_tokens]
                await connection.execute(_ADD, [key.day, key.key, key.model, *counts])

    async def since(self, day: str, key: str | None = None) -> Mapping[UsageKey, Usage]:
        async with self._database.connection("read the usage of API keys") as connection:
            rows = await fetch_all(connection, _SINCE, [day, key])
        entries = {}
        for stored_day, name, model, *counts in rows:
            entries[UsageKey(stored_day, name, model)] = Usage(*counts)
        return entries
