"""Agents over HTTP: discovery, calls as one tool, planning and acting in the event stream, and
stored sessions.
"""

import threading
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.support.agents import delegate, nested, notes, write_agent
from tests.support.api import Api, Event, text_of, types_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.waiting import until

pytestmark = pytest.mark.two_servers

ACTING = [
    "agent_start",
    "agent_planning",
    "agent_execution",
    "agent_tool_call",
    "agent_tool_result",
    "agent_execution",
    "agent_complete",
    "tool_continuation_start",
    "content_delta",
    "message_complete",
    "done",
]
"""Event sequence of the specification, for an agent that sends text before its tool calls."""


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the agents `helper` and `other`."""
    data_dir = tmp_path_factory.mktemp("agents")
    for name in ("helper", "other"):
        write_agent(data_dir, name)
    settings = {"tool_output_limit_chars": 1000, "summarization_enabled": False}
    with RunningServer(data_dir, shared_stub.url, **settings) as server:
        yield server


@pytest.fixture(scope="module")
def slow_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a server with the agent `helper`, whose models answer slowly."""
    write_agent(data_dir := tmp_path_factory.mktemp("slow"))
    with (
        StubServer(speed=1) as stub,
        RunningServer(data_dir, stub.url, summarization_enabled=False) as server,
    ):
        yield server.client


@pytest.fixture
def data_dir(server: RunningServer) -> Path:
    """The data directory of the server, without notes of agents."""
    data_dir = Path(server.settings.data_dir)
    for file in data_dir.glob("agents/*/notes.txt"):
        file.unlink()
    return data_dir


def session_with(api: Api, policy: str = "never_confirm", *agents: str, **fields: Any) -> str:
    """Create a session that may call agents."""
    enabled = {"enabled_agents": list(agents or ["helper"])}
    settings = {"tools": fields.pop("tools", []), "execution_policy": policy}
    return str(
        api.create_session("mochi", agent_settings=enabled, tool_settings=settings, **fields)[
            "session_id"
        ]
    )


def event_types(events: list[Event]) -> list[str]:
    """Return the event types without repetitions in a row."""
    return [kind for kind, _ in groupby(types_of(events))]


def data_of_type(events: list[Event], kind: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == kind]


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def agent_chat(api: Api, session_id: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = api.ok(api.http.get(f"/agents/chats/{session_id}"))["messages"]
    return messages


def agent_session_ids(api: Api, session_id: str) -> set[str]:
    """Return the ids of the agent sessions that the tool messages of a session name."""
    found = set()
    for message in api.messages(session_id):
        if message["content"].startswith("Session ID: "):
            assert message["agent_session_id"] == message["content"].split()[2]
            assert message["agent_name"] in ("helper", "other")
            found.add(message["agent_session_id"])
    return found


def chat_bodies(stub: StubServer) -> list[dict[str, Any]]:
    """Return the bodies of all chat requests, in order."""
    return [e.body for e in chats(stub) if e.body is not None]


def test_event_sequence_follows_specification(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    does = (calls("note", text="hi"), words(2))

    events = api.stream_message(session_id, nested(delegate(*does), words(3), label="M"))

    assert event_types(events) == [kind for i, kind in enumerate(ACTING) if i not in (1, 2)]
    (start,), (called,), (result,), (complete,) = (
        data_of_type(events, f"agent_{kind}")
        for kind in ("start", "tool_call", "tool_result", "complete")
    )
    chat_id, call_id = start["agent_session_id"], api.messages(session_id)[1]["tool_calls"][0]["id"]
    ours = {"agent_name": "helper", "agent_session_id": chat_id, "parent_call_id": call_id}
    assert all(
        event.data | ours == event.data for event in events if event.type.startswith("agent_")
    )
    assert start["instruction"] == instruct(*does, label="A")
    assert (called["tool_name"], called["arguments"]) == ("note", {"text": "hi"})
    assert (result["tool_name"], result["success"], result["result"]) == ("note", True, "Noted.")
    assert (complete["session_id"], complete["success"]) == (chat_id, True)
    assert complete["output"].splitlines()[0] == f"Session ID: {chat_id}"
    # A result of a tool separates texts, so that no empty text begins a paragraph after it.
    assert all(text["content"] for text in data_of_type(events, "agent_execution"))
    assert text_of(events).startswith("M ")
    assert notes(data_dir) == ["hi"]
    assert roles(agent_chat(api, chat_id)) == [
        "system",
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]


def test_agent_session_stores_that_its_window_grew(api: Api) -> None:
    session_id = api.create_session("mochi-long", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    events = api.stream_message(session_id, nested(delegate(words(600), words(2)), words(3)))
    chat_id = data_of_type(events, "agent_complete")[0]["session_id"]
    config = api.ok(api.http.get(f"/agents/chats/{chat_id}"))["context_window_config"]
    assert (config["current_window"], config["last_adjustment"]) == (16384, "usage_threshold")
    assert [(e["window"], e["reason"]) for e in config["adjustment_history"]] == [
        (16384, "usage_threshold")
    ]


def test_both_sessions_store_no_ephemeral_messages(api: Api, stub: StubServer) -> None:
    session_id = session_with(api)
    events = api.stream_message(
        session_id, nested(delegate(words(3), calls("look"), words(2)), words(3))
    )
    assert event_types(events) == ACTING
    complete = data_of_type(events, "agent_complete")[0]

    user, asking, result, answer = api.messages(session_id)
    assert [m["role"] for m in (user, asking, result, answer)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (result["tool_name"], result["content"], result["success"]) == (
        "agent",
        complete["output"],
        True,
    )
    assert result["tool_call_id"] == asking["tool_calls"][0]["id"]

    chat = api.ok(api.http.get(f"/agents/chats/{complete['session_id']}"))
    assert (chat["agent_name"], chat["model"], chat["message_count"]) == ("helper", "mochi", 6)
    assert chat["context_window_config"]["current_window"] == 8192
    system, instruction, plan, acting, looked, end = chat["messages"]
    assert roles(chat["messages"]) == [
        "system",
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (system["content"], instruction["content"]) == (
        "You are helper.",
        data_of_type(events, "agent_start")[0]["instruction"],
    )
    assert "".join(e["content"] for e in data_of_type(events, "agent_planning")) == plan["content"]
    assert "tool_calls" not in plan
    assert (acting["tool_calls"][0]["id"], looked["content"]) == (
        looked["tool_call_id"],
        "Nothing to see.",
    )
    assert complete["output"].endswith(end["content"])
    assert instruction["content"] not in complete["output"]

    main, planning, *executing, after = chat_bodies(stub)
    assert [tool["function"]["name"] for tool in main["tools"]] == ["agent"]
    assert "tools" not in planning
    assert planning["messages"][-1]["content"].startswith("Plan first")
    for body in executing:
        assert {tool["function"]["name"] for tool in body["tools"]} == {
            "note",
            "look",
            "much",
            "wait",
            "agent",
        }
        assert body["messages"][-1]["role"] == "user"
        assert body["messages"][-1]["content"].startswith("Now carry out your plan")
    assert roles(after["messages"]) == ["user", "assistant", "tool"]
    assert len({body["options"]["num_ctx"] for body in chat_bodies(stub)}) == 1


def test_collected_turn_lists_agent_call_once(api: Api) -> None:
    session_id = session_with(api)
    answer = api.send_message(
        session_id, nested(delegate(words(2), calls("look"), words(2)), words(3))
    )
    (call,) = answer["tool_calls_executed"]
    assert (call["tool_name"], call["call_index"], call["success"]) == ("agent", 0, True)
    assert call["arguments"]["agent"] == "helper"
    (chat_id,) = agent_session_ids(api, session_id)
    assert call["result"].startswith(f"Session ID: {chat_id}")
    assert len(agent_chat(api, chat_id)) == 6
    assert roles(api.messages(session_id)) == ["user", "assistant", "tool", "assistant"]


def test_next_turn_of_each_session_works(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    first = api.stream_message(
        session_id, nested(delegate(calls("note", text="one"), words(2)), words(2))
    )
    chat_id = data_of_type(first, "agent_complete")[0]["session_id"]
    assert api.send_message(session_id, "And now?")["message"]["content"]

    again = delegate(calls("note", text="two"), words(2), session_id=chat_id)
    second = api.stream_message(session_id, nested(again, words(2)))

    assert data_of_type(second, "agent_start")[0]["agent_session_id"] == chat_id
    assert roles(agent_chat(api, chat_id)) == [
        "system",
        *["user", "assistant", "assistant", "tool", "assistant"] * 2,
    ]
    output = data_of_type(second, "agent_complete")[0]["output"]
    assert output.count("Calls note") == 1
    assert notes(data_dir) == ["one", "two"]
    assert agent_session_ids(api, session_id) == {chat_id}


def pending_calls(api: Api, session_id: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))[
        "confirmations"
    ]
    return calls


def decide(api: Api, session_id: str, event: Event, **decision: Any) -> None:
    body = {"confirmation_id": event.data["confirmation_id"], **decision}
    api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=body))


def test_two_calls_continue_one_agent_session(
    api: Api, server: RunningServer, data_dir: Path
) -> None:
    session_id, other = session_with(api, "always_confirm"), server.api()
    begun = api.stream_message(session_id, nested(delegate(words(2)), words(2)))
    chat_id = data_of_type(begun, "agent_complete")[0]["session_id"]
    message = nested(
        delegate(calls("note", text="yes"), words(2), session_id=chat_id),
        delegate(calls("note", text="no"), words(2), session_id=chat_id),
        words(3),
    )
    events: list[Event] = []
    with api.open_stream(session_id, message) as stream:
        for event in stream:
            events.append(event)
            if event.type == "tool_call_confirmation_required":
                assert event.data["agent_name"] == "helper"
                (waiting,) = pending_calls(other, session_id)
                assert waiting["agent_name"] == "helper"
                decide(
                    other,
                    session_id,
                    event,
                    approved=event.data["arguments"]["text"] == "yes",
                    reason="So be it.",
                )
    begin = ["agent_start", "tool_call_confirmation_required"]
    end = ["agent_tool_result", "agent_execution", "agent_complete", "tool_continuation_start"]
    assert [kind for kind in event_types(events) if kind != "agent_planning"] == [
        *begin,
        "agent_tool_call",  # an approved call starts
        *end,
        *begin,
        *end,
        "content_delta",
        "message_complete",
        "done",
    ]
    assert [r["error_code"] for r in data_of_type(events, "agent_tool_result")] == [
        None,
        "TOOL_EXECUTION_DENIED",
    ]
    assert notes(data_dir) == ["yes"]
    tools = [m for m in agent_chat(api, chat_id) if m["role"] == "tool"]
    assert [(m["success"], m["decided_by"]) for m in tools] == [(True, "user"), (False, "user")]
    assert "So be it." in tools[1]["content"]
    assert [m["tool_name"] for m in api.messages(session_id) if m["role"] == "tool"] == [
        "agent"
    ] * 3
    assert api.send_message(session_id, "And now?")["message"]["content"]


def test_session_approval_applies_to_one_agent(
    api: Api, server: RunningServer, data_dir: Path
) -> None:
    session_id, deciding = session_with(api, "always_confirm", "helper", "other"), server.api()
    noting = (calls("note", text="x"), words(1))
    message = nested(delegate(*noting), delegate(*noting, agent="other"), words(2))
    agent_names = []
    for _ in range(2):
        with api.open_stream(session_id, message) as stream:
            for event in stream:
                if event.type == "tool_call_confirmation_required":
                    agent_names.append(event.data["agent_name"])
                    remember = "session" if agent_names[-1] == "helper" else "once"
                    decide(deciding, session_id, event, approved=True, remember=remember)
    assert agent_names == ["helper", "other", "other"]
    assert len(notes(data_dir)) == len(notes(data_dir, "other")) == 2


def test_confirm_destructive_uses_marks_of_agent(api: Api) -> None:
    session_id = session_with(api, "confirm_destructive")
    answer = api.send_message(
        session_id, nested(delegate(calls("look"), calls("note", text="x"), words(2)), words(2))
    )
    assert answer["tool_calls_executed"][0]["success"] is True
    (chat_id,) = agent_session_ids(api, session_id)
    tools = [m for m in agent_chat(api, chat_id) if m["role"] == "tool"]
    assert [m.get("error_code") for m in tools] == [None, "TOOL_EXECUTION_DENIED"]


def test_collected_turn_waits_for_approval_of_agent_tool(
    api: Api, server: RunningServer, data_dir: Path
) -> None:
    session_id = session_with(api, "always_confirm")
    message = nested(delegate(calls("note", text="waited"), words(2)), words(2))
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(
        target=lambda: answers.append(
            api.send_message(session_id, message, wait_for_confirmation=True)
        )
    )
    asking.start()
    other = server.api()
    until(lambda: pending_calls(other, session_id))
    decide(other, session_id, Event("", "", pending_calls(other, session_id)[0]), approved=True)
    asking.join(60)
    assert answers[0]["tool_calls_executed"][0]["success"] is True
    assert notes(data_dir) == ["waited"]


def test_event_has_full_output_and_model_gets_shortened_one(api: Api) -> None:
    session_id = session_with(api)
    events = api.stream_message(
        session_id, nested(delegate(calls("much"), calls("much"), words(2)), words(2))
    )
    output = data_of_type(events, "agent_complete")[0]["output"]
    result = api.messages(session_id)[2]["content"]
    assert len(output) > 2000
    assert len(result) <= 1000
    assert result.startswith("Session ID: ")
    assert "characters left out" in result
    assert result[-10:] == output[-10:]


@cases("phase", ["planning", "execution", "tool"])
def test_stop_stores_partial_work_of_agent(slow_api: Api, phase: str) -> None:
    talk = words(400)
    does = {
        "planning": [talk],
        "execution": [words(1), calls("look"), talk],
        "tool": [calls("look", "wait", "look")],
    }
    ends_at = {
        "planning": "agent_planning",
        "execution": "agent_tool_result",
        "tool": "agent_tool_result",
    }
    session_id = session_with(slow_api)
    events: list[Event] = []
    with slow_api.open_stream(session_id, nested(delegate(*does[phase]), words(2))) as stream:
        for event in stream:
            events.append(event)
            if event.type == ends_at[phase]:
                slow_api.ok(slow_api.http.post(f"/chat/{session_id}/stop"))
    assert event_types(events)[-3:] == ["agent_complete", "stopped", "done"]
    chat_id = data_of_type(events, "agent_start")[0]["agent_session_id"]
    chat, main = agent_chat(slow_api, chat_id), slow_api.messages(session_id)
    (completed,) = data_of_type(events, "agent_complete")
    assert (completed["success"], completed["output"]) == (False, main[2]["content"])
    assert completed["agent_session_id"] == chat_id
    assert completed["parent_call_id"] == main[2]["tool_call_id"]
    assert roles(main) == ["user", "assistant", "tool"]
    assert main[2]["content"].startswith(
        f"Session ID: {chat_id}\n\nThe turn was interrupted while this call was running"
    )
    assert (main[2]["agent_name"], main[2]["agent_session_id"]) == ("helper", chat_id)
    for messages in (main, chat):
        called = [call["id"] for m in messages for call in m.get("tool_calls", ())]
        assert called == [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    if phase == "planning":
        assert (roles(chat), chat[-1]["interrupted"]) == (["system", "user", "assistant"], True)
    if phase == "tool":
        assert [m["success"] for m in chat if m["role"] == "tool"] == [True, False, False]


def test_both_sessions_continue_after_stop(api: Api, server: RunningServer, data_dir: Path) -> None:
    session_id, other = session_with(api, "always_confirm"), server.api()
    with api.open_stream(session_id, nested(delegate(calls("note", text="x")), words(2))) as stream:
        for event in stream:
            if event.type == "agent_start":
                chat_id = event.data["agent_session_id"]
            if event.type == "tool_call_confirmation_required":
                other.ok(other.http.post(f"/chat/{session_id}/stop"))
    assert other.ok(other.http.get(f"/chat/{session_id}/confirmations")) == {"confirmations": []}
    again = delegate(calls("look"), words(2), session_id=chat_id)
    api.ok(
        api.http.patch(
            f"/sessions/{session_id}", json={"tool_settings": {"execution_policy": "never_confirm"}}
        )
    )
    answer = api.send_message(session_id, nested(again, words(2)))
    assert answer["tool_calls_executed"][0]["success"] is True
    assert notes(data_dir) == []
    assert agent_session_ids(api, session_id) == {chat_id}
