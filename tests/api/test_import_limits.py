"""Limits of imports, and imports while the server shuts down."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.server import RunningServer

SESSION = {"metadata": {"model": "mochi"}, "messages": [{"role": "user", "content": "Hello"}]}


def import_sessions(api: Api, count: int) -> Any:
    """Return the response to an import of `count` sessions."""
    content = orjson.dumps([SESSION] * count)
    return api.http.post(
        "/sessions/import", content=content, headers={"Content-Type": "application/json"}
    )


def test_import_of_more_sessions_than_allowed_is_refused(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, max_import_sessions=3) as server:
        api = server.api()
        refused = import_sessions(api, 4)
        assert error_of(refused) == (422, "VALIDATION_ERROR")
        for part in ("4 sessions", "at most 3", "MOCHI_MAX_IMPORT_SESSIONS"):
            assert part in refused.json()["error"]["message"]
        assert api.ok(api.http.get("/sessions"))["sessions"] == []
        assert len(api.ok(import_sessions(api, 3), 201)["sessions"]) == 3


def test_import_while_the_server_drains_is_refused(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        server.app.state.services.turns.shutdown.set()
        assert error_of(import_sessions(api, 1)) == (503, "SHUTTING_DOWN")
        assert api.ok(api.http.get("/sessions"))["sessions"] == []


@pytest.mark.nightly
def test_largest_import_takes_seconds(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api(timeout=60)
        assert len(api.ok(import_sessions(api, 10_000), 201)["sessions"]) == 10_000
        assert len(list((tmp_path / "chat_sessions").glob("*.json"))) == 10_000
