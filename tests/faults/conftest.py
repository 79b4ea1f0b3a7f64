"""What the fault tests begin with."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mochi_server.sessions import FileSessionStore, SessionManager


@pytest.fixture
def sessions_dir(tmp_path: Path) -> Path:
    """Where a server whose data directory is ``tmp_path`` keeps its sessions."""
    return tmp_path / "chat_sessions"


@pytest.fixture
def manager(sessions_dir: Path) -> SessionManager:
    """Another process's view of the sessions, as far as one process can have it."""
    return SessionManager(sessions_dir)


@pytest.fixture
async def files(sessions_dir: Path) -> AsyncGenerator[FileSessionStore, None]:
    store = FileSessionStore(sessions_dir)
    yield store
    await store.aclose()
