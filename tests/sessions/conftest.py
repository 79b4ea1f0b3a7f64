"""The stores under test, and sessions to put into them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from mochi_server.sessions import FileSessionStore, MemorySessionStore, SessionStore

StoreFactory = Callable[[Path], AbstractAsyncContextManager[SessionStore]]


@asynccontextmanager
async def file_store(directory: Path) -> AsyncGenerator[FileSessionStore, None]:
    store = FileSessionStore(directory / "sessions")
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def memory_store(_: Path) -> AsyncGenerator[MemorySessionStore, None]:
    yield MemorySessionStore()


STORES: dict[str, StoreFactory] = {"files": file_store, "memory": memory_store}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[SessionStore, None]:
    """Any store; a test that takes it is part of the contract."""
    async with STORES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def sessions_dir(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
async def files(tmp_path: Path) -> AsyncGenerator[FileSessionStore, None]:
    """The store of files, over ``sessions_dir``."""
    async with file_store(tmp_path) as opened:
        yield opened
