"""Tool calls that wait at one server and are approved at another run exactly once.

MOCHI_FAULT_ROUNDS=200 runs two hundred of them.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.faults.rounds import share
from tests.servers.conftest import Start
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct
from tests.support.tools import write_tools

pytestmark = pytest.mark.slow
TURNS, CALLS = share(1) if share(1) > 1 else 2, 20
TOOLS = """
    from pathlib import Path

    def note(text: str) -> str:
        "Write a line."
        with (Path(__file__).parent / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return "Noted."

    __all__ = ["note"]
"""


@pytest.fixture
def stub() -> StubServer:
    return StubServer(speed=0)


def test_tool_calls_are_approved_at_another_server(
    start: Start, stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with (
        stub,
        Api(start(stub.url).url) as a,
        Api(start(stub.url).url) as b,
        ThreadPoolExecutor(4) as pool,
    ):
        expected = list(pool.map(lambda turn: approve_at_other_server(a, b, turn), range(TURNS)))
    noted = (tmp_path / "tools" / "notes.txt").read_text().split()
    assert len(noted) == TURNS * CALLS
    assert sorted(noted) == sorted(text for texts in expected for text in texts)


def approve_at_other_server(a: Api, b: Api, turn: int) -> list[str]:
    """Approve the calls of a turn at A through B, decide once more at A, and return the notes of
    the calls.
    """
    session_id = a.create_session(
        "mochi", tool_settings={"tools": ["note"], "execution_policy": "always_confirm"}
    )["session_id"]
    texts = [f"{turn}-{number}" for number in range(CALLS)]
    plan = [call for text in texts for call in calls("note", text=text)["tool_call"]]
    confirmations = 0
    with a.open_stream(session_id, instruct({"tool_call": plan})) as events:
        for event in events:
            if event.type == "tool_call_confirmation_required":
                body = {"confirmation_id": event.data["confirmation_id"], "approved": True}
                b.ok(b.http.post(f"/chat/{session_id}/confirm-tool", json=body))
                again = (a if confirmations % 2 else b).http.post(
                    f"/chat/{session_id}/confirm-tool", json=body
                )
                assert error_of(again) == (409, "CONFIRMATION_RESOLVED")
                confirmations += 1
    assert confirmations == CALLS
    return texts


def test_late_decision_is_refused_on_every_server(
    start: Start, stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with stub, Api(start(stub.url).url) as a, Api(start(stub.url).url) as b:
        decide_late(a, b)


def decide_late(a: Api, b: Api) -> None:
    """Decide about a call at A, run a turn at B, and decide again at both."""
    session_id = a.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    with a.open_stream(session_id, instruct(calls("note", text="late"))) as events:
        confirmations = next(
            event for event in events if event.type == "tool_call_confirmation_required"
        )
        body = {"confirmation_id": confirmations.data["confirmation_id"], "approved": False}
        a.ok(a.http.post(f"/chat/{session_id}/confirm-tool", json=body))
        list(events)
    b.send_message(session_id, "Go on")
    for api in (a, b):
        late = api.http.post(f"/chat/{session_id}/confirm-tool", json=body)
        assert error_of(late) == (409, "CONFIRMATION_RESOLVED")
        unknown = api.http.post(
            f"/chat/{session_id}/confirm-tool", json={**body, "confirmation_id": "conf_0"}
        )
        assert error_of(unknown) == (404, "CONFIRMATION_NOT_FOUND")
