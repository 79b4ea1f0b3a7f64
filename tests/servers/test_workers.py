"""Several worker processes of one command, which share an address, a database and turns."""

import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.holding import GatedStub
from tests.support.process import Command
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
]
_REQUESTS = 12
"""Number of requests that reaches each worker. Each uses a new connection."""
_SECONDS = 20


def workers_of(process: int) -> set[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {int(child) for child in children if is_worker(child)}


def is_worker(process: str) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # ended in the meantime
        return False


def test_workers_share_turns_and_a_dead_worker_is_replaced(
    holding: GatedStub, database: str, tmp_path: Path
) -> None:
    arguments = ("--port", "0", "--workers", "2", "--ollama-host", holding.stub.url)
    with Command("mochi_server", *arguments, cwd=tmp_path, MOCHI_STORE_URL=database) as command:
        api = command.api(limits=httpx.Limits(max_keepalive_connections=0))
        supervisor = command.process.pid
        until(lambda: len(workers_of(supervisor)) == 2, _SECONDS)
        before = workers_of(supervisor)

        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            next(events)
            states = [
                api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] for _ in range(_REQUESTS)
            ]
            assert states == ["running"] * _REQUESTS
            assert api.ok(api.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"

        killed = before.pop()
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(workers_of(supervisor) - {killed}) == 2, _SECONDS)
        counts = [len(api.messages(session_id)) for _ in range(_REQUESTS)]
        assert counts == [2] * _REQUESTS
        assert command.end() == 0
        assert not [worker for worker in before if Path(f"/proc/{worker}").exists()]
