"""kill -9 between a stored event of a run and its webhook: the next server sends the
webhook once.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_stub import Cut, Gate, Prompt, Reply, StubServer, Text
from tests.support.instructions import calls, instruct
from tests.support.process import Command
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import SECRET, Receiver

pytestmark = pytest.mark.slow
ROOT = str(Path(__file__).parents[2])
TOOL = """
def one() -> str:
    "One."
    return "1"

__all__ = ["one"]
"""
MESSAGES = {
    "run.waiting_for_approval": instruct(calls("one")),
    "run.completed": "Hi",
    "run.failed": "fail",
}


def resolve(prompt: Prompt) -> Reply | None:
    if prompt.user_text == "hold":
        return Reply([Text(["one "]), Gate()])
    return Reply([Text(["one "]), Cut()]) if prompt.user_text == "fail" else None


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def command(tmp_path: Path, stub: StubServer, receiver: Receiver, kill_at: str) -> Command:
    write_tools(tmp_path, TOOL)
    return Command(
        "tests.faults.killed_before_webhook",
        *("--data-dir", str(tmp_path), "--port", "0", "--ollama-host", stub.url),
        cwd=tmp_path,
        PYTHONPATH=ROOT,
        MOCHI_WEBHOOK_URL=receiver.url,
        MOCHI_WEBHOOK_SECRET=SECRET,
        KILL_AT=kill_at,
    )


@pytest.mark.parametrize("event", MESSAGES)
def test_webhook_that_was_not_sent_before_a_kill_is_sent(
    tmp_path: Path, stub: StubServer, receiver: Receiver, event: str
) -> None:
    with command(tmp_path, stub, receiver, event) as killed:
        api = killed.api()
        session_id = api.create_session("mochi", tool_settings={"tools": ["one"]})["session_id"]
        body = {"message": MESSAGES[event], "background": True}
        run_id = api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)["run_id"]
        killed.wait()
    assert receiver.received == []
    with RunningServer(tmp_path, stub.url, **receiver.settings) as server:
        (sent,) = receiver.wait(1)
        assert (sent["type"], sent["data"]) == (event, {"session_id": session_id, "run_id": run_id})
        server.client.ok(server.client.http.post(f"/chat/{session_id}/stop"))
    with RunningServer(tmp_path, stub.url, **receiver.settings) as server:
        other = server.client.create_session("mochi")["session_id"]
        server.client.send_message(other, "Hi")
        assert receiver.wait(2)[1]["data"]["session_id"] == other  # the first one was sent once


def test_run_that_a_kill_interrupts_has_failed(
    tmp_path: Path, stub: StubServer, receiver: Receiver
) -> None:
    with command(tmp_path, stub, receiver, "never") as killed:
        api = killed.api()
        session_id = api.create_session("mochi")["session_id"]
        body = {"message": "hold", "background": True}
        run_id = api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)["run_id"]
        until(lambda: len(api.messages(session_id)) > 0)
        killed.process.kill()
    with RunningServer(tmp_path, stub.url, **receiver.settings, continue_background_turns=False):
        (sent,) = receiver.wait(1)
        assert (sent["type"], sent["data"]["run_id"]) == ("run.failed", run_id)
