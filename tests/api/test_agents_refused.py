"""Failures of agents: the model receives an explanation, and the turn and other sessions
continue.
"""

import socket
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.support.agents import HELPER, delegate, nested, notes, write_agent
from tests.support.api import Api, Event, error_of, types_of
from tests.support.cases import cases
from tests.support.instructions import calls, words
from tests.support.raw_ollama import RawOllama, line, stream_head
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools

TOOLS = '''
    def agent() -> str:
        """A tool."""
        return "I am the session's."

    def add(a: int) -> str:
        """Add."""
        return str(a + 1)

    __all__ = ["agent", "add"]
'''
EDIT = '''
    def edit() -> str:
        """Edit."""
        (HERE / "SKILL.md").write_text("gone")
        return "Edited."
'''
EDITING = "from .editing import edit, look\n__all__ = ['edit', 'look']"


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with valid and invalid agents, and with tools."""
    data_dir = tmp_path_factory.mktemp("agents")
    write_tools(data_dir, TOOLS)
    for name in ("helper", "other", "third", "edited", "chats"):
        write_agent(data_dir, name)
    write_agent(data_dir, "broken", broken=None)
    write_agent(data_dir, "yaml", SKILL="---\ndescription: a: b\n---\n")
    write_agent(data_dir, "large", SKILL="---\ndescription: x\n---\n" + "Much too long. " * 4000)
    write_agent(data_dir, "editing", editing=HELPER + EDIT, __init__=EDITING)
    for name, model in (("lost", "gone:70b"), ("chatty", "mochi-chat")):
        write_agent(
            data_dir, name, SKILL=f"---\ndescription: x\nmodel: {model}\n---\nYou are helper."
        )
    with RunningServer(
        data_dir, shared_stub.url, max_agent_iterations=4, summarization_enabled=False
    ) as server:
        yield server


@pytest.fixture
def data_dir(server: RunningServer) -> Path:
    """The data directory of the server, without notes of agents."""
    data_dir = Path(server.settings.data_dir)
    for file in data_dir.glob("agents/*/notes.txt"):
        file.unlink()
    return data_dir


def agent_chats(api: Api) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get("/agents/chats"))["sessions"]
    return listed


def session_with(
    api: Api, *agents: str, policy: str = "never_confirm", tools: tuple[str, ...] = ()
) -> str:
    settings = {"tools": list(tools), "execution_policy": policy}
    return str(
        api.create_session(
            "mochi", agent_settings={"enabled_agents": agents}, tool_settings=settings
        )["session_id"]
    )


def told(api: Api, session_id: str) -> list[str]:
    """Return the tool results of a session."""
    return [message["content"] for message in api.messages(session_id) if message["role"] == "tool"]


def offered_tools(stub: StubServer) -> list[list[str]]:
    """Return the names of the tools that each chat request offered."""
    bodies = [e.body for e in chats(stub) if e.body is not None]
    return [[tool["function"]["name"] for tool in body.get("tools", [])] for body in bodies]


def test_invalid_agents_are_listed_with_the_reason(api: Api) -> None:
    body = api.ok(api.http.post("/agents/reload"))["agents"]
    assert (body["yaml"]["valid"], body["yaml"]["tool_count"], body["yaml"]["tools"]) == (
        False,
        0,
        [],
    )
    assert body["yaml"]["error_message"].startswith("SKILL.md: the front matter is not YAML")
    assert body["helper"] == {
        "name": "helper",
        "description": "Helps.",
        "model": None,
        "valid": True,
        "error_message": None,
        "tool_count": 5,
        "tools": ["note", "look", "much", "wait", "agent"],
    }
    invalid = api.http.get("/agents/yaml")
    assert error_of(invalid) == (422, "AGENT_INVALID")
    assert "SKILL.md" in invalid.json()["error"]["message"]
    assert error_of(api.http.get("/agents/nobody")) == (404, "AGENT_NOT_FOUND")
    details = api.ok(api.http.get("/agents/helper"))
    assert details["system_prompt"] == "You are helper."
    assert details["tool_details"]["note"]["destructive"] is True
    assert "reserved" in body["chats"]["error_message"]


def test_literal_routes_come_before_agent_names(api: Api) -> None:
    assert list(api.ok(api.http.get("/agents/chats"))) == ["sessions"]
    for unknown in ("0123456789", "none", "..%2f..%2fsecret"):
        assert error_of(api.http.get(f"/agents/chats/{unknown}"))[0] == 404


@cases("enabled", [(), ("nobody", "broken")], ids=["none", "unknown and invalid"])
def test_no_usable_agent_means_no_agent_tool(
    api: Api, stub: StubServer, enabled: tuple[str, ...]
) -> None:
    before = agent_chats(api)
    session_id = session_with(api, *enabled)
    events = api.stream_message(session_id, nested(delegate(words(2)), words(2)))
    assert offered_tools(stub)[0] == []
    assert [e.data["error_code"] for e in events if e.type == "tool_result"] == ["TOOL_NOT_FOUND"]
    assert events[-1].type == "done"
    assert agent_chats(api) == before


def test_only_enabled_and_valid_agents_are_described(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "helper", "broken", "other", "nobody")
    api.send_message(session_id, "Hello")
    body = next(e.body for e in stub.exchanges() if e.path == "/api/chat")
    assert body is not None
    (tool,) = body["tools"]
    assert tool["function"]["description"] == (
        "Delegate a task to a specialised agent.\n\nAvailable agents:\n  - helper: Helps.\n  - "
        "other: Helps.\n\nReturns: The agent's response including its Session ID."
    )
    assert list(tool["function"]["parameters"]["properties"]) == [
        "agent",
        "instruction",
        "session_id",
    ]
    assert tool["function"]["parameters"]["required"] == ["agent", "instruction"]


CALLS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"agent": "nobody", "instruction": "x"},
        "There is no agent named 'nobody'. Available agents: helper.",
        "AGENT_NOT_FOUND",
    ),
    ({"agent": "other", "instruction": "x"}, "There is no agent named 'other'", "AGENT_NOT_FOUND"),
    ({"agent": "helper"}, "Wrong arguments for agent: instruction", "TOOL_EXECUTION_FAILED"),
    (
        {"agent": ["helper"], "instruction": "x"},
        "Wrong arguments for agent: agent",
        "TOOL_EXECUTION_FAILED",
    ),
    ({"agent": "helper", "instruction": " "}, "is empty. Describe", "TOOL_EXECUTION_FAILED"),
    (
        {"agent": "helper", "instruction": "x", "session_id": "../../x"},
        "has no session",
        "SESSION_NOT_FOUND",
    ),
    (
        {"agent": "helper", "instruction": "x", "session_id": "0123456789"},
        "has no session",
        "SESSION_NOT_FOUND",
    ),
    (
        {"agent": "helper", "instruction": "x", "session_id": "0123456789abc"},
        "has no session",
        "SESSION_NOT_FOUND",
    ),
    ({}, "Wrong arguments for agent: agent: Missing", "TOOL_EXECUTION_FAILED"),
]


def test_wrong_call_returns_explanation_to_model(api: Api) -> None:
    before = agent_chats(api)
    session_id = session_with(api, "helper")
    wrong = [calls("agent", **arguments) for arguments, *_ in CALLS]
    events = api.stream_message(session_id, nested(*wrong, words(2)))
    kinds = [kind for kind, _ in groupby(types_of(events))]
    assert kinds == [
        *["agent_start", "agent_complete", "tool_continuation_start"] * len(CALLS),
        "content_delta",
        "message_complete",
        "done",
    ]
    starts, completed = (
        [event.data for event in events if event.type == f"agent_{kind}"]
        for kind in ("start", "complete")
    )
    assert [(data["session_id"], data["success"]) for data in completed] == [(None, False)] * len(
        CALLS
    )
    assert [data["error_code"] for data in completed] == [code for *_, code in CALLS]
    for (_, words_of_it, _), explanation in zip(CALLS, told(api, session_id), strict=True):
        assert words_of_it in explanation
    assert (starts[-1]["agent_name"], starts[-1]["instruction"]) == ("", "")
    assert agent_chats(api) == before
    assert api.send_message(session_id, "Go on")["message"]["content"]


def test_chat_of_another_agent_or_user_is_not_opened(api: Api) -> None:
    session_id = session_with(api, "helper", "other")
    api.send_message(session_id, nested(delegate(words(2), agent="other"), words(2)))
    before = agent_chats(api)
    foreign = before[0]
    assert foreign["session_id"] in told(api, session_id)[0]
    wrong = (foreign["session_id"], session_id)
    api.send_message(
        session_id, nested(*(delegate(words(2), session_id=each) for each in wrong), words(2))
    )
    for each, explanation in zip(wrong, told(api, session_id)[1:], strict=True):
        assert f"'helper' has no session '{each}'" in explanation
    assert agent_chats(api) == before


def test_empty_session_id_starts_new_chat(api: Api) -> None:
    before = agent_chats(api)
    session_id = session_with(api, "helper")
    api.send_message(session_id, nested(delegate(words(2), session_id=""), words(2)))
    new, *others = agent_chats(api)
    assert others == before
    assert new["session_id"] in told(api, session_id)[0]


def test_second_turn_on_busy_agent_session_is_refused(api: Api, server: RunningServer) -> None:
    first, second = (
        session_with(api, "helper", policy="always_confirm"),
        session_with(api, "helper"),
    )
    api.send_message(first, nested(delegate(words(2)), words(2)))
    chat_id = agent_chats(api)[0]["session_id"]
    other = server.api()
    with api.open_stream(
        first, nested(delegate(calls("look"), session_id=chat_id), words(2))
    ) as stream:
        event = next(event for event in stream if event.type == "tool_call_confirmation_required")
        answer = other.send_message(
            second, nested(delegate(words(2), session_id=chat_id), words(2))
        )
        (call,) = answer["tool_calls_executed"]
        assert (call["success"], call["error_code"]) == (False, "SESSION_BUSY")
        assert "is in use" in call["error_message"]
        body = {"confirmation_id": event.data["confirmation_id"], "approved": True}
        other.ok(other.http.post(f"/chat/{first}/confirm-tool", json=body))
        assert list(stream)[-1].type == "done"
    again = other.send_message(second, nested(delegate(words(2), session_id=chat_id), words(2)))
    assert again["tool_calls_executed"][0]["success"] is True


def test_iteration_limit_forces_agent_to_answer(api: Api, stub: StubServer, data_dir: Path) -> None:
    endless = [calls("note", text=str(number)) for number in range(9)]
    events = api.stream_message(session_with(api, "helper"), nested(delegate(*endless), words(2)))
    assert notes(data_dir) == ["0", "1", "2", "3"]
    (limit,) = limits(events)
    assert limit == (
        "Agent 'helper': The model made 4 rounds of tool calls and now answers without tools. "
        "Change the limit with MOCHI_MAX_AGENT_ITERATIONS."
    )
    assert [e.data["success"] for e in events if e.type == "agent_complete"] == [True]
    assert "helper" not in "".join(offered_tools(stub)[-2])
    assert offered_tools(stub)[-2] == []


def test_repeated_identical_agent_call_ends_with_answer(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "helper")
    events = api.stream_message(
        session_id, nested(delegate(*[calls("note", text="again")] * 9), words(2))
    )
    assert notes(data_dir) == ["again"] * 3
    assert len(limits(events)) == 1
    assert events[-1].type == "done"


def test_identical_agent_calls_of_one_reply_have_only_agent_events(api: Api) -> None:
    several = {
        "tool_call": delegate(words(2), calls("look"), words(2), agent="third")["tool_call"] * 5
    }
    events = api.stream_message(session_with(api, "third"), nested(several, words(2)))
    types = types_of(events)
    assert (types.count("agent_start"), types.count("tool_call"), types.count("tool_result")) == (
        5,
        0,
        0,
    )
    completed = [e.data for e in events if e.type == "agent_complete"]
    assert [data["success"] for data in completed] == [True, True, True, False, False]
    assert "too often" in completed[-1]["output"]


def limits(events: list[Event]) -> list[str]:
    return [
        e.data["message"]
        for e in events
        if e.type == "warning" and e.data["code"] == "TOOL_LIMIT_REACHED"
    ]


def test_session_model_replaces_missing_agent_model(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "lost")
    events = api.stream_message(session_id, nested(delegate(words(2), agent="lost"), words(2)))
    (warning,) = [e.data for e in events if e.type == "warning"]
    assert warning["code"] == "MODEL_NOT_FOUND"
    assert "'gone:70b'" in warning["message"]
    assert agent_chats(api)[0]["model"] == "mochi"


def test_agent_uses_model_of_its_skill(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "chatty")
    api.stream_message(session_id, nested(delegate(words(2), agent="chatty"), words(2)))
    models = [e.body["model"] for e in chats(stub) if e.body is not None]
    assert (models[0], models[1], models[-1]) == ("mochi", "mochi-chat", "mochi")


def test_agent_session_has_the_model_of_its_latest_turn(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "edited")
    api.send_message(session_id, nested(delegate(words(2), agent="edited"), words(2)))
    chat = agent_chats(api)[0]
    assert chat["model"] == "mochi"
    skill = data_dir / "agents" / "edited" / "SKILL.md"
    skill.write_text("---\ndescription: x\nmodel: mochi-chat\n---\nYou are new.")
    again = delegate(words(2), agent="edited", session_id=chat["session_id"])
    api.send_message(session_id, nested(again, words(2)))
    assert agent_chats(api)[0]["model"] == "mochi-chat"


def test_edited_skill_applies_at_next_call(api: Api, data_dir: Path) -> None:
    session_id = session_with(api, "edited")
    api.send_message(session_id, nested(delegate(words(2), agent="edited"), words(2)))
    chat_id = agent_chats(api)[0]["session_id"]
    again = nested(delegate(words(2), agent="edited", session_id=chat_id), words(2))
    skill = data_dir / "agents" / "edited" / "SKILL.md"

    skill.write_text("---\ndescription: x\n---\nYou are new.")
    api.send_message(session_id, again)
    messages = api.ok(api.http.get(f"/agents/chats/{chat_id}"))["messages"]
    assert [m["content"] for m in messages if m["role"] == "system"] == ["You are new."]

    skill.write_text("---\ndescription: 5\n---\n")
    answer = api.send_message(session_id, again)
    assert answer["tool_calls_executed"][0]["error_code"] == "AGENT_INVALID"
    assert "SKILL.md: description must be text" in told(api, session_id)[-1]
    assert api.ok(api.http.get(f"/agents/chats/{chat_id}"))["messages"] == messages


def test_skill_edited_during_run_does_not_affect_it(api: Api) -> None:
    session_id = session_with(api, "editing")
    doing = delegate(calls("edit"), calls("look"), words(2), agent="editing")
    answer = api.send_message(session_id, nested(doing, words(2)))
    assert answer["tool_calls_executed"][0]["success"] is True
    assert "Nothing to see." in told(api, session_id)[0]


def test_tool_named_agent_is_hidden_from_session(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "helper", tools=("agent",))
    api.send_message(session_id, nested(delegate(calls("agent"), words(2)), words(2)))
    assert offered_tools(stub)[0] == ["agent"]
    assert "I am a tool." in told(api, session_id)[0]
    plain = session_with(api, tools=("agent",))
    api.send_message(plain, nested(calls("agent"), words(2)))
    assert told(api, plain) == ["I am the session's."]


def test_tools_and_agents_of_one_session_do_not_mix(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "helper", tools=("add",))
    doing = delegate(calls("add", a=1), words(2))
    answer = api.send_message(session_id, nested(doing, calls("add", a=2), calls("look"), words(2)))
    assert sorted(offered_tools(stub)[0]) == ["add", "agent"]
    agent, added, looked = answer["tool_calls_executed"]
    assert "There is no tool named 'add'" in agent["result"]
    assert (added["result"], looked["error_code"]) == ("3", "TOOL_NOT_FOUND")


def test_ollama_error_is_returned_to_calling_model(api: Api) -> None:
    session_id = session_with(api, "large")
    events = api.stream_message(session_id, nested(delegate(words(2), agent="large"), words(2)))
    complete = next(event.data for event in events if event.type == "agent_complete")
    assert complete["error_code"] == "CONTEXT_OVERFLOW"
    assert complete["output"].startswith(
        f"Session ID: {complete['session_id']}\n\nThe agent failed:"
    )
    assert events[-1].type == "done"
    assert [m["role"] for m in api.messages(session_id)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    chat = api.ok(api.http.get(f"/agents/chats/{complete['session_id']}"))["messages"]
    assert [m["role"] for m in chat] == ["system", "user"]


def test_prompts_of_data_directory_override_packaged_ones(
    private_api: Api, private_stub: StubServer, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    folder = tmp_path / "docs" / "agents"
    folder.mkdir(parents=True)
    (folder / "agent_prompt_planning.md").write_text("\ufeffMake a plan.\n")
    (folder / "agent_prompt_execution.md").write_text("Act.\n")
    session_id = session_with(private_api, "helper")
    private_api.send_message(
        session_id, nested(delegate(words(1), calls("look"), words(2)), words(2))
    )
    bodies = [e.body for e in chats(private_stub) if e.body is not None]
    assert [b["messages"][-1]["content"] for b in bodies[1:-1]] == ["Make a plan.", "Act.", "Act."]


def test_broken_answer_ends_agent_but_not_turn(tmp_path: Path) -> None:
    write_agent(tmp_path)
    called = (
        b'{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"agent","arguments":'
        b'{"agent":"helper","instruction":"Help."}}}]},"done":true,"done_reason":"stop"}\n'
    )
    answers = iter([called, line("Half a pl"), line("So be it.", done=True)])

    def chat(connection: socket.socket) -> None:
        connection.sendall(stream_head() + next(answers))

    with RawOllama(chat) as ollama, RunningServer(tmp_path, ollama.url) as server:
        api = server.api()
        session_id = api.create_session("raw", agent_settings={"enabled_agents": ["helper"]})[
            "session_id"
        ]
        events = api.stream_message(session_id, "Go.")
        complete = next(event.data for event in events if event.type == "agent_complete")
        messages = api.ok(api.http.get(f"/agents/chats/{complete['session_id']}"))["messages"]
        assert api.messages(session_id)[-1]["content"] == "So be it."
    assert complete["error_code"] == "OLLAMA_ERROR"
    assert "Half a pl\n\nThe agent failed: " in complete["output"]
    assert (messages[-1]["content"], messages[-1]["interrupted"]) == ("Half a pl", True)
    assert events[-1].type == "done"
