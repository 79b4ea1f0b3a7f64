"""Temporary sessions in a database that several servers share: one server deletes each."""

import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.config import MochiServerSettings
from mochi_server.container import build_services
from mochi_server.sessions import ChatSession, SessionCreationOptions, SessionQuery
from mochi_stub import StubServer

pytestmark = pytest.mark.slow

SERVERS = 3
SESSIONS = 30
A_SECOND_IN_HOURS = 1 / 3600


async def test_one_server_deletes_each_temporary_session(
    stub: StubServer, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mochi_server.chat.expiry")
    settings: dict[str, Any] = {
        "data_dir": str(tmp_path),
        "ollama_host": stub.url,
        "store_url": database,
        "temporary_session_hours": A_SECOND_IN_HOURS,
    }
    servers = [build_services(MochiServerSettings(**settings)) for _ in range(SERVERS)]
    for server in servers:
        await server.open()
    try:
        store = servers[0].store
        kept = await store.create(ChatSession.create(SessionCreationOptions("mochi")))
        temporary = SessionCreationOptions("mochi", temporary=True)
        created = [await store.create(ChatSession.create(temporary)) for _ in range(SESSIONS)]
        with anyio.fail_after(60):
            while deleted_in(caplog).total() < SESSIONS:  # noqa: ASYNC110 - a log has no event
                await anyio.sleep(0.05)
        left = await store.list(SessionQuery())
        assert left.total == 1
        assert (await store.load(kept.session_id)) == kept
    finally:
        for server in servers:
            await server.aclose()
    assert deleted_in(caplog) == Counter(session.session_id for session in created)


def deleted_in(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Count the deletions of each session in the log."""
    return Counter(re.findall(r"expired session deleted session_id=(\w+)", caplog.text))
