"""Database migrations: numbered SQL files, each of which is run once, in order."""

import logging
from importlib.resources import files

from psycopg import sql

from mochi_server.errors import MochiError, StorageFailed
from mochi_server.storage.postgres.pool import Database, fetch_one

_LOCK = 0x6D6F636869  # "mochi" in ASCII; servers that start at the same time wait for each other
_TABLE = "CREATE TABLE IF NOT EXISTS mochi_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL)"

logger = logging.getLogger(__name__)


class SchemaTooNew(StorageFailed):
    """Error at startup: a newer mochi-server has migrated the database. No HTTP route returns this error."""

    def __init__(self, found: int, known: int) -> None:
        MochiError.__init__(
            self,
            f"The database schema has version {found}, but this mochi-server supports only versions up to {known}. "
            "Install a newer mochi-server.",
        )


def migrations() -> dict[int, str]:
    """Return the SQL statements of all migrations, by schema version."""
    folder = files("mochi_server.storage.postgres") / "schema"
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".sql"))
    return {int(name[:4]): (folder / name).read_text() for name in names}


async def migrate(database: Database) -> int:
    """Run the missing migrations and return the new version. Raises ``SchemaTooNew``, ``StorageFailed``."""
    known = migrations()
    async with database.connection("migrate the database schema") as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute(_TABLE)
        row = await fetch_one(connection, "SELECT coalesce(max(version), 0) FROM mochi_schema")
        version = row[0] if row else 0
        latest = max(known)
        if version > latest:
            raise SchemaTooNew(version, latest)
        missing = [number for number in known if number > version]
        for number in missing:
            await connection.execute(sql.SQL(known[number]))
            await connection.execute("INSERT INTO mochi_schema VALUES (%s, clock_timestamp())", [number])
    if missing:
        logger.info("database schema migrated version=%d", latest)
    return latest


async def prepare(url: str) -> int:
    """Migrate the database at ``url`` and return the version of its schema. Raises ``StorageFailed``."""
    database = Database(url)
    try:
        await database.open()
        return await migrate(database)
    finally:
        await database.aclose()
