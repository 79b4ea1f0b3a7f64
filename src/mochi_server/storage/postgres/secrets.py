"""Secrets in PostgreSQL, which the servers of the database share."""

from mochi_server.sessions.store import SecretStore
from mochi_server.storage.postgres.database import Database, fetch_one

_GET = "SELECT data FROM secrets WHERE key = %s"
_PUT = """
INSERT INTO secrets (key, data) VALUES (%s, %s)
ON CONFLICT (key) DO UPDATE SET data = EXCLUDED.data"""


class PostgresSecretStore(SecretStore):
    """``SecretStore`` in one PostgreSQL database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, key: str) -> bytes | None:
        async with self._database.connection("read an authorization") as connection:
            row = await fetch_one(connection, _GET, [key])
        return None if row is None else bytes(row[0])

    async def put(self, key: str, data: bytes) -> None:
        async with self._database.connection("store an authorization") as connection:
            await connection.execute(_PUT, [key, data])

    async def remove(self, key: str) -> None:
        async with self._database.connection("remove an authorization") as connection:
            await connection.execute("DELETE FROM secrets WHERE key = %s", [key])
