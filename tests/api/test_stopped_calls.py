"""Turns that end during an approval or a tool call: the stored result states what happened."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.support.api import Api, error_of, types_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct
from tests.support.server import RunningServer
from tests.support.tools import write_tools

pytestmark = pytest.mark.two_servers

TOOLS = '''
    import asyncio
    from pathlib import Path

    HERE = Path(__file__).parent

    def note(text: str) -> str:
        """Write a note."""
        with (HERE / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return "Noted."

    async def wait(text: str) -> str:
        """Wait for ever."""
        (HERE / "waiting").touch()
        await asyncio.Event().wait()
        return text

    __all__ = ["note", "wait"]
'''
RACES = 40


@pytest.fixture
def server(private_stub: StubServer, tmp_path: Path) -> Iterator[RunningServer]:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, private_stub.url) as server:
        yield server


def new_session(api: Api) -> str:
    session_id: str = api.create_session("mochi", tool_settings={"tools": ["note", "wait"]})[
        "session_id"
    ]
    return session_id


def stored_result(api: Api, session_id: str) -> dict[str, Any]:
    (result,) = [message for message in api.messages(session_id) if message["role"] == "tool"]
    return result


def test_stop_after_approval_stores_the_decision(server: RunningServer, tmp_path: Path) -> None:
    api = server.api()
    session_id = new_session(api)
    with api.open_stream(session_id, instruct(calls("wait", text="x"))) as events:
        approval_request = next(
            event for event in events if event.type == "tool_call_confirmation_required"
        )
        decision = {
            "confirmation_id": approval_request.data["confirmation_id"],
            "approved": True,
            "arguments": {"text": "edited"},
        }
        other = server.api()
        other.ok(other.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
        while not (tmp_path / "tools" / "waiting").exists():
            other.session(session_id)
        other.ok(other.http.post(f"/chat/{session_id}/stop"))
        remaining = list(events)
    assert types_of(remaining) == ["tool_result", "stopped", "done"]
    result = stored_result(api, session_id)
    assert remaining[0].data["error_message"] == result["content"]
    assert (result["interrupted"], result["decided_by"], result["success"]) == (True, "user", False)
    assert "while this call was running" in result["content"]
    assert result["arguments"] == {"text": "edited"}


def test_stop_before_a_decision_stores_that_no_call_ran(server: RunningServer) -> None:
    api = server.api()
    session_id = new_session(api)
    with api.open_stream(session_id, instruct(calls("note", text="x"))) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        other = server.api()
        other.ok(other.http.post(f"/chat/{session_id}/stop"))
        remaining = list(events)
    assert types_of(remaining) == ["tool_result", "stopped", "done"]
    result = stored_result(api, session_id)
    assert remaining[0].data["error_message"] == result["content"]
    assert (result["interrupted"], result["decided_by"]) == (True, "policy")
    assert "while this call was running" not in result["content"]


@cases("message", ["Hi", None])
def test_decision_on_a_call_that_a_stop_has_interrupted_is_too_late(
    server: RunningServer, message: str | None
) -> None:
    """Without a message, the call becomes part of a version."""
    api = server.api()
    session_id = new_session(api)
    with api.open_stream(session_id, instruct(calls("note", text="x"))) as events:
        approval_request = next(
            event for event in events if event.type == "tool_call_confirmation_required"
        )
        other = server.api()
        other.ok(other.http.post(f"/chat/{session_id}/stop"))
    api.ok(api.http.post(f"/chat/{session_id}", json={"message": message}))
    decision = {
        "confirmation_id": approval_request.data["confirmation_id"],
        "approved": True,
    }
    late = api.http.post(f"/chat/{session_id}/confirm-tool", json=decision)
    assert error_of(late) == (409, "CONFIRMATION_RESOLVED")


@pytest.mark.slow
def test_approvals_that_race_a_stop_store_the_real_outcome(
    server: RunningServer, tmp_path: Path
) -> None:
    api, deciding, stopping = server.api(), server.api(), server.api()
    notes = tmp_path / "tools" / "notes.txt"
    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            session_id = new_session(api)
            with api.open_stream(session_id, instruct(calls("note", text=f"<{number}>"))) as events:
                approval_request = next(
                    event for event in events if event.type == "tool_call_confirmation_required"
                )
                decision = {
                    "confirmation_id": approval_request.data["confirmation_id"],
                    "approved": True,
                }
                decided = pool.submit(
                    deciding.http.post, f"/chat/{session_id}/confirm-tool", json=decision
                )
                stopped = pool.submit(stopping.http.post, f"/chat/{session_id}/stop")
                list(events)
                stopped.result()
            result = stored_result(api, session_id)
            ran = notes.exists() and f"<{number}>" in notes.read_text()
            approved = decided.result().status_code == 200
            assert result["decided_by"] == ("user" if approved else "policy")
            if ran:
                assert (
                    not result.get("interrupted")
                    or "while this call was running" in result["content"]
                )
            else:
                assert result["interrupted"]
