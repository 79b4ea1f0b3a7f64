"""Tools over HTTP: listing, calls, approvals, denials, results for the model and stored
messages.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.support.api import Api, Event, error_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import SAMPLES, write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.two_servers

HANGING_VALIDATOR = '''
    from threading import Event
    from typing import Annotated
    from pydantic import AfterValidator

    def check(text):
        if text == "hang":
            Event().wait(20)
        return text

    def take(text: Annotated[str, AfterValidator(check)]) -> str:
        """Take a text."""
        return text

    __all__ = ["take"]
'''

TOOLS = '''
    import sys, time
    from pathlib import Path

    HERE = Path(__file__).parent

    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    def note(text: str) -> str:
        """Write a note."""
        with (HERE / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return "Noted."

    def look() -> str:
        """Look."""
        return "Nothing to see."

    def boom() -> str:
        """Explode."""
        raise RuntimeError("boom")

    def leave() -> str:
        """Leave."""
        sys.exit(1)

    def much() -> str:
        """Say much."""
        return "x" * 100_000

    def nothing() -> None:
        """Say nothing."""
        print("printed")

    def vanish() -> str:
        """Delete itself."""
        Path(__file__).unlink()
        return "Gone."

    def hang() -> str:
        """Hang."""
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and not (HERE / "go").exists():
            time.sleep(0.01)
        return "late"

    async def later(a: int) -> str:
        """Do it on the loop."""
        return str(a)

    __all__ = ["add", "note", "look", "boom", "leave", "much", "nothing", "vanish", "hang", "later"]
    __maths__ = ["add"]
    __read_only__ = ["add", "look"]
    __destructive__ = ["note"]
'''
ALL = ["add", "note", "look", "boom", "leave", "much", "nothing", "vanish", "hang", "later"]


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the tools of these tests."""
    data_dir = tmp_path_factory.mktemp("tools")
    write_tools(data_dir, TOOLS)
    settings = {
        "tool_timeout_seconds": 0.5,
        "tool_output_limit_chars": 1000,
        "summarization_enabled": False,
    }
    with RunningServer(data_dir, shared_stub.url, **settings) as server:
        yield server


@pytest.fixture
def data_dir(server: RunningServer) -> Iterator[Path]:
    """The data directory of the server, without notes of tools."""
    data_dir = Path(server.settings.data_dir)
    (data_dir / "tools" / "notes.txt").unlink(missing_ok=True)
    yield data_dir
    write_tools(data_dir, TOOLS)  # one of the tools deletes itself


def session_with(api: Api, policy: str = "never_confirm", **settings: Any) -> str:
    """Create a session that may use all tools of these tests."""
    session = api.create_session(
        "mochi", tool_settings={"tools": ALL, "execution_policy": policy} | settings
    )
    return str(session["session_id"])


def event_types(events: list[Event]) -> list[str]:
    """Return the event types without repetitions in a row."""
    return [e.type for i, e in enumerate(events) if i == 0 or events[i - 1].type != e.type]


def notes(data_dir: Path) -> list[str]:
    file = data_dir / "tools" / "notes.txt"
    return file.read_text().split() if file.exists() else []


def test_tools_are_listed_with_groups_problems_and_python_types(api: Api) -> None:
    body = api.ok(api.http.get("/tools"))
    assert set(body) == {"tools", "groups", "problems"}
    assert list(body["tools"]) == ALL
    assert body["groups"] == {"maths": ["add"]}
    assert body["tools"]["add"] == {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "a": {"type": "float", "description": ""},
            "b": {"type": "float", "description": ""},
        },
        "destructive": False,
    }
    assert body["problems"] == []


def test_tool_details_have_the_schema_sent_to_models(api: Api) -> None:
    body = api.ok(api.http.get("/tools/add"))
    assert body["schema"]["function"]["parameters"]["required"] == ["a", "b"]
    assert error_of(api.http.get("/tools/none")) == (404, "TOOL_NOT_FOUND")


def test_event_sequence_without_confirmation(api: Api, stub: StubServer) -> None:
    session_id = session_with(api)

    events = api.stream_message(session_id, instruct(calls("add", a=1, b=2), words(5)))

    assert event_types(events) == [
        "tool_call",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    assert events[0].data == {"tool_name": "add", "arguments": {"a": 1, "b": 2}, "call_index": 0}
    assert events[1].data["result"] == "3.0"
    assert events[1].data["success"] is True
    sent = [e.body for e in chats(stub)]
    assert sent[0] is not None
    assert [tool["function"]["name"] for tool in sent[0]["tools"]] == ALL
    user, asking, result, answer = api.messages(session_id)
    assert (user["role"], asking["role"], result["role"], answer["role"]) == (
        "user",
        "assistant",
        "tool",
        "assistant",
    )
    assert asking["tool_calls"][0]["function"] == {
        "index": 0,
        "name": "add",
        "arguments": {"a": 1, "b": 2},
    }
    assert (result["content"], result["tool_name"], result["decided_by"]) == (
        "3.0",
        "add",
        "policy",
    )
    assert result["tool_call_id"] == asking["tool_calls"][0]["id"]
    assert api.send_message(session_id, "And now?")["message"]["content"]


def test_collected_turn_lists_calls_with_outcomes(api: Api) -> None:
    session_id = session_with(api)
    answer = api.send_message(session_id, instruct(calls("add", a=1, b=2), calls("boom"), words(5)))
    first, second = answer["tool_calls_executed"]
    assert first.pop("execution_time") >= 0
    assert first == {
        "call_index": 0,
        "tool_name": "add",
        "arguments": {"a": 1, "b": 2},
        "success": True,
        "result": "3.0",
        "error_message": None,
        "error_code": None,
    }
    assert (second["call_index"], second["success"], second["error_code"]) == (
        1,
        False,
        "TOOL_EXECUTION_FAILED",
    )
    assert "boom" in second["error_message"]


def test_only_enabled_tools_can_run(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, tools=["look"])
    events = api.stream_message(session_id, instruct(calls("note", text="x"), words(3)))
    assert event_types(events)[:2] == ["tool_call", "tool_result"]
    assert events[1].data["error_code"] == "TOOL_NOT_FOUND"
    assert notes(data_dir) == []


def test_group_enables_its_tools(api: Api) -> None:
    session_id = session_with(api, tools=[], tool_group="maths")
    answer = api.send_message(session_id, instruct(calls("add", a=1, b=2)))
    assert answer["tool_calls_executed"][0]["success"] is True
    status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
    assert status["tools_enabled"]
    assert "add" in status["active_tools"]


@pytest.mark.usefixtures("data_dir")
def test_tool_outcomes_are_sent_to_model_and_turn_continues(api: Api) -> None:
    outcomes: list[tuple[str, dict[str, Any], bool, str]] = [
        ("boom", {}, False, "RuntimeError: boom"),
        ("leave", {}, False, "SystemExit"),
        ("hang", {}, False, "0.5 seconds"),
        ("nothing", {}, True, "no result"),
        ("vanish", {}, True, "Gone."),
        ("later", {"a": "5"}, True, "5"),
        ("add", {"a": 1}, False, "b: Missing"),
        ("add", {"a": 1, "bee": 2}, False, "bee"),
        ("add", {"a": "one", "b": 2}, False, "a: Input should be a valid number"),
    ]
    session_id = session_with(api)
    events = api.stream_message(
        session_id, instruct(*[calls(name, **given) for name, given, _, _ in outcomes], words(3))
    )
    assert event_types(events)[-3:] == ["content_delta", "message_complete", "done"]
    results = [event.data for event in events if event.type == "tool_result"]
    stored = [message for message in api.messages(session_id) if message["role"] == "tool"]
    for (name, _, success, told), result, message in zip(outcomes, results, stored, strict=True):
        assert result["success"] is message["success"] is success, name
        assert told in message["content"]
    assert api.send_message(session_id, "Go on")["message"]


def test_large_tool_output_is_cut_to_head_and_tail(api: Api) -> None:
    session_id = session_with(api)
    api.send_message(session_id, instruct(calls("much")))
    stored = next(message for message in api.messages(session_id) if message["role"] == "tool")
    assert len(stored["content"]) == 1000
    assert "characters left out" in stored["content"]


def test_several_calls_in_one_reply_run_in_order(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    several = {
        "tool_call": [{"name": "note", "args": {"text": word}} for word in ("one", "two", "three")]
    }
    events = api.stream_message(session_id, instruct(several, words(3)))
    assert notes(data_dir) == ["one", "two", "three"]
    assert [e.data["call_index"] for e in events if e.type == "tool_result"] == [0, 1, 2]


def test_repeated_identical_call_ends_with_answer(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    events = api.stream_message(session_id, instruct(*[calls("note", text="again")] * 20))
    assert notes(data_dir) == ["again"] * 3
    warnings = [e.data["code"] for e in events if e.type == "warning"]
    assert warnings == ["TOOL_LIMIT_REACHED", "EMPTY_ANSWER"]
    assert event_types(events)[-2:] == ["message_complete", "done"]


def test_identical_calls_of_one_reply_are_all_announced(api: Api, data_dir: Path) -> None:
    events = api.stream_message(session_with(api), instruct(calls(*["note"] * 5, text="again")))
    assert notes(data_dir) == ["again"] * 3
    announced, ended = (
        [e for e in events if e.type == kind] for kind in ("tool_call", "tool_result")
    )
    assert (
        [e.data["call_index"] for e in announced]
        == [e.data["call_index"] for e in ended]
        == [0, 1, 2, 3, 4]
    )
    assert [e.data["success"] for e in ended] == [True, True, True, False, False]
    assert "too often" in ended[-1].data["error_message"]


def test_tool_rounds_end_at_iteration_limit(stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, max_tool_iterations=5) as server:
        api = server.api()
        session_id = session_with(api)
        events = api.stream_message(
            session_id, instruct(*[calls("add", a=n, b=n) for n in range(40)])
        )
    assert len([e for e in events if e.type == "tool_result"]) == 5
    warnings = [e.data["code"] for e in events if e.type == "warning"]
    assert warnings == ["TOOL_LIMIT_REACHED", "EMPTY_ANSWER"]
    assert events[-1].type == "done"


def test_model_without_tools_answers_with_warning(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi-chat", tool_settings={"tools": ALL})["session_id"]
    events = api.stream_message(session_id, "Hello!")
    assert (events[0].type, events[0].data["code"]) == ("warning", "TOOLS_NOT_SUPPORTED")
    assert events[-1].type == "done"
    sent = chats(stub)[-1].body
    assert sent is not None
    assert "tools" not in sent


class PendingApproval:
    """Stream that has reached a tool call that waits for approval."""

    def __init__(self, api: Api, session_id: str, events: Iterator[Event]) -> None:
        self.api = api
        self.session_id = session_id
        self.events = events
        self.received: list[Event] = []
        while not self.received or self.received[-1].type != "tool_call_confirmation_required":
            self.received.append(next(events))
        self.confirmation_id = str(self.received[-1].data["confirmation_id"])

    def decide(self, **decision: Any) -> httpx.Response:
        body = {"confirmation_id": self.confirmation_id, **decision}
        return self.api.http.post(f"/chat/{self.session_id}/confirm-tool", json=body)

    def remaining_events(self) -> list[Event]:
        self.received.extend(self.events)
        return self.received


def test_event_sequence_with_confirmation(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "always_confirm")
    with api.open_stream(session_id, instruct(calls("note", text="yes"), words(3))) as stream:
        pending = PendingApproval(api, session_id, stream)
        assert notes(data_dir) == []
        assert pending.received[-1].data | {"confirmation_id": ""} == {
            "tool_name": "note",
            "arguments": {"text": "yes"},
            "call_index": 0,
            "confirmation_id": "",
            "agent_name": None,
        }
        listed = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))
        assert [p["confirmation_id"] for p in listed["confirmations"]] == [pending.confirmation_id]
        decided = api.ok(pending.decide(approved=True))
        assert decided["approved"] is True
        events = pending.remaining_events()
    assert event_types(events) == [
        "tool_call_confirmation_required",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    assert notes(data_dir) == ["yes"]
    stored = next(message for message in api.messages(session_id) if message["role"] == "tool")
    assert stored["decided_by"] == "user"
    assert api.ok(api.http.get(f"/chat/{session_id}/confirmations")) == {"confirmations": []}
    assert api.send_message(session_id, "And now?")["message"]["content"]


def test_denied_call_sends_reason_to_model(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "always_confirm")
    with api.open_stream(session_id, instruct(calls("note", text="no"), words(3))) as stream:
        pending = PendingApproval(api, session_id, stream)
        api.ok(pending.decide(approved=False, reason="Not today."))
        events = pending.remaining_events()
    result = next(event for event in events if event.type == "tool_result")
    assert (result.data["success"], result.data["error_code"]) == (False, "TOOL_EXECUTION_DENIED")
    assert notes(data_dir) == []
    stored = next(message for message in api.messages(session_id) if message["role"] == "tool")
    assert "Not today." in stored["content"]
    assert (stored["decided_by"], stored["error_code"]) == ("user", "TOOL_EXECUTION_DENIED")


def test_edited_arguments_are_checked_used_and_stored(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "always_confirm")
    with api.open_stream(session_id, instruct(calls("note", text="asked"), words(3))) as stream:
        pending = PendingApproval(api, session_id, stream)
        wrong = pending.decide(approved=True, arguments={"texd": "x"})
        assert error_of(wrong) == (422, "VALIDATION_ERROR")
        assert api.ok(pending.decide(approved=True, arguments={"text": "edited"}))["arguments"] == {
            "text": "edited"
        }
        events = pending.remaining_events()
    assert [e.data["result"] for e in events if e.type == "tool_result"] == ["Noted."]
    assert notes(data_dir) == ["edited"]
    stored = next(message for message in api.messages(session_id) if message["role"] == "tool")
    assert "edited" in stored["content"]
    assert stored["arguments"] == {"text": "edited"}


def test_edited_arguments_whose_validator_hangs_are_refused(
    stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, HANGING_VALIDATOR)
    with RunningServer(tmp_path, stub.url, tool_timeout_seconds=0.2) as server:
        api = server.client
        session_id = session_with(api, "always_confirm", tools=["take"])
        with api.open_stream(session_id, instruct(calls("take", text="fine"))) as stream:
            pending = PendingApproval(api, session_id, stream)
            refused = pending.decide(approved=True, arguments={"text": "hang"})
            assert error_of(refused) == (422, "VALIDATION_ERROR")
            assert "MOCHI_TOOL_TIMEOUT_SECONDS" in refused.text
            api.ok(pending.decide(approved=True))
            results = [e for e in pending.remaining_events() if e.type == "tool_result"]
    assert [event.data["result"] for event in results] == ["fine"]


def test_null_in_a_decision_is_the_default(api: Api) -> None:
    session_id = session_with(api, "always_confirm")
    with api.open_stream(
        session_id, instruct(calls("note", text="one"), calls("note", text="two"))
    ) as stream:
        pending = PendingApproval(api, session_id, stream)
        defaults = dict.fromkeys(["arguments", "reason", "remember"])
        api.ok(pending.decide(approved=True, **defaults))
        second = PendingApproval(api, session_id, stream)
        api.ok(second.decide(approved=False))
        second.remaining_events()


def test_approval_can_apply_to_the_whole_session(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "always_confirm")
    with api.open_stream(
        session_id, instruct(calls("note", text="one"), calls("note", text="two"))
    ) as stream:
        pending = PendingApproval(api, session_id, stream)
        api.ok(pending.decide(approved=True, remember="session"))
        events = pending.remaining_events()
    assert [e.type for e in events if e.type.startswith("tool_call")] == [
        "tool_call_confirmation_required",
        "tool_call",
    ]
    api.stream_message(session_id, instruct(calls("note", text="three")))
    assert notes(data_dir) == ["one", "two", "three"]
    assert api.session(session_id)["tool_settings"]["execution_policy"] == "always_confirm"


def test_confirm_destructive_exempts_only_read_only_tools(api: Api) -> None:
    session_id = session_with(api, "confirm_destructive")
    with api.open_stream(
        session_id, instruct(calls("look"), calls("nothing"), calls("note", text="x"))
    ) as stream:
        first = PendingApproval(api, session_id, stream)
        assert [e.type for e in first.received if e.type != "tool_continuation_start"] == [
            "tool_call",
            "tool_result",
            "tool_call_confirmation_required",
        ]
        assert first.received[-1].data["tool_name"] == "nothing"
        api.ok(first.decide(approved=False))
        second = PendingApproval(api, session_id, stream)
        assert second.received[-1].data["tool_name"] == "note"
        api.ok(second.decide(approved=False))
        second.remaining_events()


def test_wrong_arguments_need_no_confirmation(api: Api) -> None:
    session_id = session_with(api, "always_confirm")
    events = api.stream_message(session_id, instruct(calls("note", texd="x"), words(3)))
    assert "tool_call_confirmation_required" not in event_types(events)
    assert event_types(events)[:2] == ["tool_call", "tool_result"]


def test_unconfirmed_call_is_denied_after_timeout(stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, tool_confirmation_timeout_seconds=0.05) as server:
        api = server.api()
        session_id = session_with(api, "always_confirm")
        with api.open_stream(session_id, instruct(calls("note", text="x"), words(3))) as stream:
            pending = PendingApproval(api, session_id, stream)
            events = pending.remaining_events()
        result = next(event for event in events if event.type == "tool_result")
        assert result.data["error_code"] == "TOOL_CONFIRMATION_TIMEOUT"
        assert error_of(pending.decide(approved=True)) == (408, "TOOL_CONFIRMATION_TIMEOUT")
        stored = next(message for message in api.messages(session_id) if message["role"] == "tool")
        assert stored["decided_by"] == "timeout"
    assert notes(tmp_path) == []


def test_unknown_and_repeated_decisions_are_refused(api: Api) -> None:
    session_id, other = session_with(api, "always_confirm"), session_with(api)
    unknown = {"confirmation_id": "conf_none", "approved": True}
    assert error_of(api.http.post(f"/chat/{session_id}/confirm-tool", json=unknown)) == (
        404,
        "CONFIRMATION_NOT_FOUND",
    )
    assert error_of(api.http.post("/chat/0000000000/confirm-tool", json=unknown)) == (
        404,
        "SESSION_NOT_FOUND",
    )
    with api.open_stream(session_id, instruct(calls("look"), words(3))) as stream:
        pending = PendingApproval(api, session_id, stream)
        foreign = {"confirmation_id": pending.confirmation_id, "approved": True}
        response = api.http.post(f"/chat/{other}/confirm-tool", json=foreign)
        assert error_of(response) == (404, "CONFIRMATION_NOT_FOUND")
        api.ok(pending.decide(approved=True))
        assert error_of(pending.decide(approved=True)) == (409, "CONFIRMATION_RESOLVED")
        pending.remaining_events()
    assert error_of(pending.decide(approved=False)) == (409, "CONFIRMATION_RESOLVED")
    for body in (
        {},
        {"confirmation_id": 5, "approved": True},
        {"confirmation_id": "x", "approved": "perhaps"},
    ):
        assert error_of(api.http.post(f"/chat/{session_id}/confirm-tool", json=body)) == (
            422,
            "VALIDATION_ERROR",
        )


@pytest.mark.parametrize("rounds", [3, pytest.param(200, marks=pytest.mark.nightly)])
def test_one_of_two_concurrent_approvals_succeeds(
    api: Api, server: RunningServer, data_dir: Path, rounds: int
) -> None:
    session_id = session_with(api, "always_confirm")
    clients = [server.api(), server.api()]
    with ThreadPoolExecutor(2) as pool:
        for number in range(rounds):
            with api.open_stream(session_id, instruct(calls("note", text=str(number)))) as stream:
                pending = PendingApproval(clients[0], session_id, stream)
                body = {"confirmation_id": pending.confirmation_id, "approved": True}
                path = f"/chat/{session_id}/confirm-tool"
                racing = [pool.submit(client.http.post, path, json=body) for client in clients]
                assert sorted(response.result().status_code for response in racing) == [200, 409]
                pending.remaining_events()
            # A short history keeps each round as quick as the first.
            api.ok(api.http.put(f"/sessions/{session_id}/messages/0", json={"content": "again"}))
    assert notes(data_dir) == [str(number) for number in range(rounds)]


def test_collected_turn_denies_calls_that_need_approval(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "always_confirm")
    answer = api.send_message(session_id, instruct(calls("note", text="x"), words(3)))
    (call,) = answer["tool_calls_executed"]
    assert (call["success"], call["error_code"]) == (False, "TOOL_EXECUTION_DENIED")
    assert "wait_for_confirmation" in call["error_message"]
    assert answer["message"]["content"]
    assert notes(data_dir) == []


def test_collected_turn_can_wait_for_approval(
    api: Api, server: RunningServer, data_dir: Path
) -> None:
    session_id = session_with(api, "always_confirm")
    answers: list[dict[str, Any]] = []
    message = instruct(calls("note", text="waited"), words(3))
    asking = threading.Thread(
        target=lambda: answers.append(
            api.send_message(session_id, message, wait_for_confirmation=True)
        )
    )
    asking.start()
    other = server.api()
    pending: list[dict[str, Any]] = []
    while not pending:
        pending = other.ok(other.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]
    body = {"confirmation_id": pending[0]["confirmation_id"], "approved": True}
    other.ok(other.http.post(f"/chat/{session_id}/confirm-tool", json=body))
    asking.join(60)
    assert answers[0]["tool_calls_executed"][0]["success"] is True
    assert notes(data_dir) == ["waited"]


@pytest.mark.parametrize("ending", ["leaves", "stops"])
def test_disconnect_during_confirmation_keeps_valid_history(
    api: Api, server: RunningServer, ending: str
) -> None:
    session_id = session_with(api, "always_confirm")
    several = {"tool_call": [{"name": "note", "args": {"text": word}} for word in ("one", "two")]}
    with api.open_stream(session_id, instruct(several)) as stream:
        pending = PendingApproval(api, session_id, stream)
        if ending == "stops":
            api.ok(server.api().http.post(f"/chat/{session_id}/stop"))
            assert pending.remaining_events()[-1].type == "done"
    api.send_message(session_id, "Go on", if_busy="wait", if_waiting="deny")
    messages = api.messages(session_id)
    assert [m["role"] for m in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert [c["id"] for c in messages[1]["tool_calls"]] == [
        m["tool_call_id"] for m in messages[2:4]
    ]
    assert ("interrupted" if ending == "stops" else "denied") in messages[2]["content"]
    assert "interrupted" in messages[3]["content"]
    assert error_of(pending.decide(approved=True)) == (409, "CONFIRMATION_RESOLVED")


def test_stopped_turn_lists_interrupted_calls(api: Api, server: RunningServer) -> None:
    session_id = session_with(api, "always_confirm")
    with ThreadPoolExecutor(1) as pool:
        message = instruct(calls("note", text="x"))
        collecting = pool.submit(api.send_message, session_id, message, wait_for_confirmation=True)
        other = server.api()
        until(
            lambda: other.ok(other.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]
        )
        other.ok(other.http.post(f"/chat/{session_id}/stop"))
        (executed,) = collecting.result()["tool_calls_executed"]
    assert (executed["tool_name"], executed["success"]) == ("note", False)
    assert "interrupted" in executed["error_message"]


@pytest.mark.slow
@pytest.mark.parametrize("calls_of_each", [1, 2])
def test_hung_tools_do_not_delay_other_requests(
    stub: StubServer, tmp_path: Path, calls_of_each: int
) -> None:
    """Other turns need threads, too, and are complete while all of these calls hang."""
    folder = write_tools(tmp_path, TOOLS)
    with RunningServer(tmp_path, stub.url, tool_timeout_seconds=600) as server:
        api = server.api()
        sessions = [session_with(api) for _ in range(50)]
        message = instruct({"tool_call": [{"name": "hang", "args": {}}] * calls_of_each})
        with ThreadPoolExecutor(len(sessions)) as pool:
            hanging = [
                pool.submit(api.send_message, session_id, message) for session_id in sessions
            ]
            stub.wait_for(lambda _: len(chats(stub)) == len(sessions))
            other = session_with(api)
            assert api.send_message(other, "Hello!")["message"] is not None
            assert wait(hanging, timeout=0).done == set()
            (folder / "go").touch()
    assert all(turn.result()["message"] is not None for turn in hanging)


def test_sample_tools_work_unchanged(
    private_stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    monkeypatch.setenv("MOCHI_FILES_ROOT", str(workspace))
    workspace.mkdir()
    (workspace / "broken").symlink_to("missing")
    with RunningServer(tmp_path, private_stub.url, tools_dir=SAMPLES) as server:
        api = server.api()
        everything = list(api.ok(api.http.get("/tools"))["tools"])
        session_id = session_with(api, tools=everything)
        answer = api.send_message(
            session_id,
            instruct(
                calls("divide_numbers", a=1, b=4),
                calls("divide_numbers", a=1, b=0),
                calls("get_current_time", timezone="UTC"),
                calls("roll_dice", sides=6, count=2),
                calls("write_file", path="a/b.txt", content="Hello"),
                calls("list_dir", path="a"),
                calls("read_file", path="a/b.txt"),
                calls("read_file", path="../secret.txt"),
                calls("delete_file", path="a/b.txt"),
                calls("list_dir"),
                calls("multiply_numbers", a=1e200, b=1e200),
            ),
        )
    results = [
        (call["success"], call["result"] or call["error_message"])
        for call in answer["tool_calls_executed"]
    ]
    assert results[0] == (True, "0.25")
    assert results[1][0] is False
    assert results[2][1].endswith("UTC")
    assert results[4:7] == [
        (True, "Wrote 5 characters to a/b.txt."),
        (True, "b.txt (5 bytes)"),
        (True, "Hello"),
    ]
    assert results[7] == (
        False,
        "read_file failed: ValueError: ../secret.txt is outside the workspace",
    )
    assert results[8:] == [
        (True, "Deleted a/b.txt."),
        (True, "a/\nbroken (7 bytes)"),
        (True, "inf"),
    ]


def test_tool_may_change_the_working_directory(
    private_stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and restores the directory after the test
    write_tools(
        tmp_path,
        """
        import os

        def leave() -> str:
            "Leave."
            os.chdir("/")
            return os.getcwd()

        __all__ = ["leave"]
        """,
    )
    with RunningServer(Path(), private_stub.url) as server:
        api = server.api()
        session_id = session_with(api, tools=["leave"])
        assert (
            api.send_message(session_id, instruct(calls("leave"), words(2)))["tool_calls_executed"][
                0
            ]["result"]
            == "/"
        )
        assert api.send_message(session_id, "Go on")["message"]
        assert "leave" in api.ok(api.http.post("/tools/reload"))["tools"]


@cases("approved", ["yes", "true", 1, "on", None])
def test_approval_requires_the_boolean_true(api: Api, approved: object) -> None:
    session_id = api.create_session("mochi")["session_id"]
    decision = {"confirmation_id": "conf_0000000000", "approved": approved}
    response = api.http.post(f"/chat/{session_id}/confirm-tool", json=decision)
    assert error_of(response) == (422, "VALIDATION_ERROR")
