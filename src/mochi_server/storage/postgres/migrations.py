"""The database's schema: numbered SQL files, each run once, in order, by whoever comes first."""

import logging
from importlib.resources import files

from psycopg import sql

from mochi_server.errors import MochiError, StorageFailed
from mochi_server.storage.postgres.pool import Database, fetch_one

_LOCK = 0x6D6F636869  # "mochi"; servers that start together wait for each other
_TABLE = "CREATE TABLE IF NOT EXISTS mochi_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)"

logger = logging.getLogger(__name__)


class SchemaTooNew(StorageFailed):
    """The database was migrated by a newer mochi-server. Ends the start, so no route answers with it."""

    def __init__(self, found: int, known: int) -> None:
        MochiError.__init__(
            self,
            f"The database's schema is version {found}, this mochi-server knows {known}. Install a newer mochi-server.",
        )


def migrations() -> dict[int, str]:
    """The SQL of each version."""
    folder = files("mochi_server.storage.postgres") / "schema"
    found = sorted(path.name for path in folder.iterdir() if path.name.endswith(".sql"))
    return {int(name[:4]): (folder / name).read_text() for name in found}


async def migrate(database: Database) -> list[int]:
    """Bring the schema up to date; the versions that were missing. Raises ``SchemaTooNew``, ``StorageFailed``."""
    known = migrations()
    async with database.connection("bring the database's schema up to date") as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute(_TABLE)
        row = await fetch_one(connection, "SELECT coalesce(max(version), 0) FROM mochi_schema")
        version = row[0] if row else 0
        if version > max(known):
            raise SchemaTooNew(version, max(known))
        missing = [number for number in known if number > version]
        for number in missing:
            await connection.execute(sql.SQL(known[number]))
            await connection.execute("INSERT INTO mochi_schema VALUES (%s, clock_timestamp())", [number])
    if missing:
        logger.info("the database's schema is version %d now", missing[-1])
    return missing


async def prepare(url: str) -> int:
    """Bring the schema of a database up to date and leave it; its version. Raises ``StorageFailed``."""
    database = Database(url)
    try:
        await database.open()
        await migrate(database)
    finally:
        await database.aclose()
    return max(migrations())
