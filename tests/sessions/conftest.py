"""The stores under test, and sessions for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mochi_server.sessions import (
    FileSessionStore,
    MemorySessionStore,
    SessionCreationOptions,
    SessionManager,
    SessionStore,
)
from mochi_server.storage.files.backend import DirectoryUse, SessionDirectory

if TYPE_CHECKING:  # the first tier needs no client of PostgreSQL
    from mochi_server.storage.postgres.store import PostgresSessionStore


@asynccontextmanager
async def file_store(directory: Path) -> AsyncGenerator[FileSessionStore, None]:
    store = FileSessionStore(directory / "sessions")
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def postgres_store(url: str) -> AsyncGenerator[PostgresSessionStore, None]:
    from mochi_server.storage.postgres.database import Database, migrate
    from mochi_server.storage.postgres.processes import ServerProcess
    from mochi_server.storage.postgres.store import PostgresSessionStore
    from mochi_server.storage.postgres.webhooks import PostgresWebhookOutbox

    async def connected(_: object) -> None:
        """Do nothing after a connect."""

    database = Database(url)
    process = ServerProcess(database)
    await database.open()
    try:
        await migrate(database)
        await process.open(connected)
        yield PostgresSessionStore(database, process, PostgresWebhookOutbox(database))
    finally:
        await process.aclose()
        await database.aclose()


STORES = ["files", "memory", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=STORES)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[SessionStore, None]:
    """One of the stores. A test with this fixture is part of the contract of all stores."""
    if request.param == "memory":
        yield MemorySessionStore()
        return
    opening = (
        file_store(tmp_path)
        if request.param == "files"
        else postgres_store(request.getfixturevalue("database"))
    )
    async with opening as opened:
        yield opened


@pytest.fixture
def sessions_dir(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def manager(sessions_dir: Path) -> Generator[SessionManager, None, None]:
    with SessionManager(sessions_dir) as manager:
        yield manager


@pytest.fixture
def locked_directory(sessions_dir: Path) -> Generator[SessionDirectory, None, None]:
    """The directory of `sessions_dir`, as a server opens it.

    Managers and stores of this process share it.
    """
    use = DirectoryUse(sessions_dir)
    use.directory.open()
    yield use.directory
    use.close()


@pytest.fixture
def ids(manager: SessionManager) -> list[str]:
    """The ids of three indexed sessions, newest first."""
    created = [
        manager.create_session(SessionCreationOptions(model="m")).session_id for _ in range(3)
    ]
    manager.list_sessions()
    return created[::-1]


@pytest.fixture
async def files(tmp_path: Path) -> AsyncGenerator[FileSessionStore, None]:
    """The file store of `sessions_dir`."""
    async with file_store(tmp_path) as opened:
        yield opened
