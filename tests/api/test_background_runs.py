"""Turns in the background, and the stored state of the latest run."""

from pathlib import Path
from typing import Any

import pytest

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.schemas.chat import RunStatus
from mochi_server.storage.memory import MemorySessionStore
from mochi_stub import StubServer
from tests.support.api import Api, error_of, read_events
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.two_servers

TOOL = """
def one() -> str:
    "One."
    return "1"

__all__ = ["one"]
"""


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


def run_of(api: Api, session_id: str) -> dict[str, Any]:
    return api.ok(api.http.get(f"/chat/{session_id}/run"))


def start(api: Api, session_id: str, message: str | None, **fields: Any) -> dict[str, Any]:
    body = {"background": True, **fields} | ({} if message is None else {"message": message})
    return api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)


def ended(api: Api, session_id: str, run_id: str) -> dict[str, Any]:
    until(lambda: run_of(api, session_id)["state"] not in ("running", "waiting_for_approval"))
    status = run_of(api, session_id)
    assert status["run_id"] == run_id
    return status


def wait_for_text(api: Api, session_id: str) -> None:
    """Wait until the server has received the first text of the answer.

    The stub may be a little ahead of it.
    """
    with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
        assert next(event.type for event in read_events(response) if event.type == "content_delta")


def test_background_turn_returns_its_run_and_completes(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    run = start(api, session_id, "hold", on_disconnect="cancel")
    assert (run["state"], run["answer_id"]) == ("running", None)
    assert run_of(api, session_id) == run
    holding.gate.open()
    status = ended(api, session_id, run["run_id"])
    answer = api.messages(session_id)[-1]
    assert answer["content"] == "one two three four"
    assert status == {
        "run_id": run["run_id"],
        "state": "completed",
        "answer_id": answer["message_id"],
    }


def test_background_turn_can_be_stopped(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    run = start(api, session_id, "hold")
    wait_for_text(api, session_id)
    stopped = api.ok(api.http.post(f"/chat/{session_id}/stop"))
    assert (stopped["run_id"], stopped["state"]) == (run["run_id"], "stopped")
    assert stopped["answer_id"] == api.messages(session_id)[-1]["message_id"]


def test_background_stream_is_refused(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    response = api.http.post(
        f"/chat/{session_id}/stream", json={"message": "Hi", "background": True}
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert response.json()["error"]["details"]["errors"][0]["loc"] == ["body", "background"]
    assert api.messages(session_id) == []


def test_repeated_background_request_returns_the_same_run(api: Api, holding: GatedStub) -> None:
    session_id = api.create_session("mochi")["session_id"]
    headers, body = {"Idempotency-Key": "a"}, {"message": "hold", "background": True}
    first, second = (
        api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
        for _ in range(2)
    )
    assert first == second
    holding.gate.open()
    ended(api, session_id, first["run_id"])
    assert len(api.messages(session_id)) == 2


def test_background_turn_waits_for_approval_without_a_client(
    stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOL)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.client
        session_id = api.create_session("mochi", tool_settings={"tools": ["one"]})["session_id"]
        run = start(api, session_id, instruct(calls("one")))
        until(lambda: run_of(api, session_id)["state"] == "waiting_for_approval")
        (call,) = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]
        decision = {"confirmation_id": call["confirmation_id"], "approved": True}
        api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
        assert ended(api, session_id, run["run_id"])["state"] == "completed"
        assert [message["role"] for message in api.messages(session_id)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


def test_run_that_is_being_parked_waits() -> None:
    run = Run(Conversation("a1b2c3d4e5", MemorySessionStore()), TurnInput())
    assert RunStatus.of(run).state == "running"
    run.control.is_suspending = True
    assert RunStatus.of(run).state == "waiting_for_approval"
