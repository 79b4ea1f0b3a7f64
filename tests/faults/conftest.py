"""Fixtures of the fault tests."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from mochi_server.sessions import FileSessionStore, SessionManager


@pytest.fixture
def sessions_dir(tmp_path: Path) -> Path:
    """The session directory of a server whose data directory is `tmp_path`."""
    return tmp_path / "chat_sessions"


@pytest.fixture
def manager(sessions_dir: Path) -> Generator[SessionManager, None, None]:
    """A session manager that shares the directory with a server of this process."""
    with SessionManager(sessions_dir) as manager:
        yield manager


@pytest.fixture
async def files(sessions_dir: Path) -> AsyncGenerator[FileSessionStore, None]:
    store = FileSessionStore(sessions_dir)
    yield store
    await store.aclose()
