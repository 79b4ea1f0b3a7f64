"""Agents that use tools of MCP servers: named in `SKILL.md`, approved like all tools, and missing
without failure.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.mcp.limits import McpLimits
from mochi_stub import StubServer
from tests.api.test_tools import PendingApproval
from tests.mcp.patient_server import PatientServer
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api
from tests.support.instructions import calls, words
from tests.support.mcp import by_hand, journal, write_mcp
from tests.support.tools import write_tools
from tests.support.waiting import until


def skill(*tools: str) -> str:
    return f"---\ndescription: Helps.\nmcp_tools: [{', '.join(tools)}]\n---\nYou help.\n"


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PatientServer]:
    """A server with agents that name tools of the MCP servers `hand` and `maths`."""
    data_dir = tmp_path_factory.mktemp("agents")
    write_tools(data_dir, 'def add() -> str:\n    "Add."\n    return ""\n__all__ = ["add"]\n')
    write_mcp(
        data_dir, hand=by_hand(data_dir, "echo", "note"), maths=by_hand(data_dir, "add", "look")
    )
    for name, tools in (
        ("single", ["note"]),
        ("whole", ["hand"]),
        ("lacking", ["note", "gone", "add"]),
    ):
        write_agent(data_dir, name, SKILL=skill(*tools), **{name: None, "__init__": None})
    write_agent(data_dir, "helper", SKILL=skill("maths"))
    with PatientServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        api = server.api()
        until(lambda: {"echo", "look"} <= set(api.ok(api.http.get("/tools"))["tools"]))
        yield server


def agent(api: Api, name: str) -> dict[str, Any]:
    details: dict[str, Any] = api.ok(api.http.get(f"/agents/{name}"))
    return details


def session_with(api: Api, name: str, policy: str) -> str:
    settings = {"tools": [], "execution_policy": policy}
    return str(
        api.create_session(
            "mochi", agent_settings={"enabled_agents": [name]}, tool_settings=settings
        )["session_id"]
    )


def test_agent_has_the_mcp_tools_that_it_names(api: Api) -> None:
    assert agent(api, "single")["tools"] == ["note"]
    assert agent(api, "whole")["tools"] == ["echo", "note"]
    assert agent(api, "whole")["tool_details"]["echo"]["description"] == "Say it again."
    assert {"maths_add", "note", "look"} <= set(agent(api, "helper")["tools"])


def test_names_that_cannot_be_used_are_problems(api: Api) -> None:
    assert agent(api, "lacking")["problems"] == [
        {
            "name": "gone",
            "message": "SKILL.md: mcp_tools names 'gone', but no MCP tool or server has this name. "
            "Available tools: echo, note, maths_add, look",
        },
        {
            "name": "add",
            "message": "SKILL.md: mcp_tools names 'add', but no MCP tool or server has this name. "
            "Available tools: echo, note, maths_add, look",
        },
    ]
    assert agent(api, "helper")["problems"] == [
        {
            "name": "maths",
            "message": "a tool in __init__.py has the same name as the MCP tool 'look'",
        }
    ]


def test_missing_tool_is_a_warning_and_the_agent_works(api: Api) -> None:
    session_id = session_with(api, "lacking", "never_confirm")
    message = nested(
        delegate(words(1), calls("note", text="hi"), words(2), agent="lacking"), words(3)
    )
    events = api.stream_message(session_id, message)
    warnings = [event.data for event in events if event.type == "warning"]
    assert [warning["code"] for warning in warnings] == ["TOOL_NOT_FOUND", "TOOL_NOT_FOUND"]
    assert warnings[0]["message"].startswith(
        "Agent 'lacking': SKILL.md: mcp_tools names 'gone', but no MCP tool"
    )
    result = next(event.data for event in events if event.type == "agent_tool_result")
    assert (result["success"], result["result"]) == (True, "hi")


def test_mcp_tool_of_an_agent_needs_the_same_approval(api: Api, server: PatientServer) -> None:
    session_id = session_with(api, "single", "confirm_destructive")
    message = nested(
        delegate(words(1), calls("note", text="hi"), words(2), agent="single"), words(3)
    )
    data_dir = Path(server.settings.data_dir)
    before = journal(data_dir)
    with api.open_stream(session_id, message) as stream:
        pending = PendingApproval(api, session_id, stream)
        assert journal(data_dir) == before
        api.ok(pending.decide(approved=True, remember="session"))
        events = pending.remaining_events()
    assert (
        next(event.data for event in events if event.type == "agent_tool_result")["result"] == "hi"
    )
    settings = api.ok(api.http.get(f"/sessions/{session_id}"))["tool_settings"]
    assert settings["approved_tools"] == ["single/mcp:hand/note"]


def test_slow_mcp_server_does_not_delay_the_turns_of_other_agents(
    stub: StubServer, tmp_path: Path
) -> None:
    write_mcp(tmp_path, silent=by_hand(tmp_path, "silent"))
    write_agent(tmp_path, "waiting", SKILL=skill("silent"), waiting=None, __init__=None)
    write_agent(tmp_path)
    with PatientServer(tmp_path, stub.url, limits=McpLimits(start_seconds=60)) as server:
        api = server.api()
        api.send_message(session_with(api, "helper", "never_confirm"), "Hello")
