"""A server that shuts down forwards new sessions and turns to another server, and refuses them if there is none."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.conftest import Start
from tests.support.api import Api, error_of, text_of
from tests.support.holding import GatedStub
from tests.support.process import Command

pytestmark = pytest.mark.slow

USER = {"id": "m", "role": "user", "content": "Hi"}


@contextmanager
def draining(holding: GatedStub, database: str, directory: Path) -> Iterator[Command]:
    """A server with a running turn, after SIGTERM."""
    arguments = ("--port", "0", "--ollama-host", holding.stub.url)
    settings = {"MOCHI_STORE_URL": database, "MOCHI_SHUTDOWN_GRACE_SECONDS": "60"}
    with ExitStack() as stack, Command("mochi_server", *arguments, cwd=directory, **settings) as command:
        api = command.api()
        events = stack.enter_context(api.open_stream(api.create_session("mochi")["session_id"], "hold"))
        next(events)
        command.process.send_signal(signal.SIGTERM)
        probe = command.api()
        while probe.http.get("/health/ready").status_code != 503:
            pass
        yield command
        holding.gate.open()
        assert list(events)[-1].type == "done"
        stack.close()
        assert command.wait() == 0


def test_draining_server_forwards_new_sessions_and_turns(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    other = start()
    with draining(holding, database, tmp_path) as command, Api(other.url) as b:
        a = command.api()
        session_id = a.create_session("mochi")["session_id"]
        assert text_of(a.stream_message(session_id, "Hi")) == "Fine."
        assert a.send_message(session_id, "Again")["message"]["content"] == "Fine."
        waited = a.stream_message(session_id, "Once more", if_busy="wait")
        assert text_of(waited) == "Fine."
        assert b.ok(b.http.get(f"/chat/{session_id}/run"))["run_id"] == waited[0].id.partition(":")[0]
        answer = a.http.post(f"/chat/{session_id}/ag-ui", json={"threadId": "t", "runId": "r", "messages": [USER]})
        assert answer.status_code == 200
        body: dict[str, Any] = {"model": "mochi", "messages": [USER]}
        for headers in ({}, {"X-Mochi-Session": session_id}):
            url = str(a.http.base_url).replace("/api/v1/", "/v1/chat/completions")
            assert a.http.post(url, json=body, headers=headers).status_code == 200


def test_all_servers_are_draining(holding: GatedStub, database: str, tmp_path: Path) -> None:
    directories = tmp_path / "first", tmp_path / "second"
    for directory in directories:
        directory.mkdir()
    with draining(holding, database, directories[0]) as first, draining(holding, database, directories[1]) as second:
        for command in (first, second):
            api = command.api()
            assert error_of(api.http.post("/sessions", json={"model": "mochi"})) == (503, "SHUTTING_DOWN")


def test_draining_server_without_another_refuses_and_stores_nothing(
    holding: GatedStub, database: str, tmp_path: Path
) -> None:
    with draining(holding, database, tmp_path) as command:
        a = command.api()
        before = a.ok(a.http.get("/sessions"))
        refused = a.http.post("/sessions", json={"model": "mochi"})
        assert error_of(refused) == (503, "SHUTTING_DOWN")
        assert int(refused.headers["retry-after"]) > 0
        assert a.ok(a.http.get("/sessions")) == before
