"""Warnings about tools, tool groups and agents that a session enables and that do not exist."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.support.agents import write_agent
from tests.support.api import Api
from tests.support.server import RunningServer
from tests.support.tools import write_tools

TOOLS = '''
    def add(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    __all__ = ["add"]
    __maths__ = ["add"]
'''
VERBS, NOUNS = (
    ("create", "delete", "list", "update", "search"),
    ("issue", "branch", "commit", "review", "file"),
)
MISSPELT = {
    "tool_settings": {"tools": ["add", "ad"], "tool_group": "math"},
    "agent_settings": {"enabled_agents": ["helper", "helpr", "broken", "zzz"]},
}
WARNINGS = [
    {
        "code": "TOOL_NOT_FOUND",
        "message": "There is no tool named 'ad'. Did you mean 'add'? Existing tools: add.",
    },
    {
        "code": "TOOL_NOT_FOUND",
        "message": "There is no tool group named 'math'. Did you mean 'maths'? Existing tool groups: "
        "maths.",
    },
    {
        "code": "AGENT_NOT_FOUND",
        "message": "There is no agent named 'helpr'. Did you mean 'helper'? Existing agents: helper.",
    },
    {
        "code": "AGENT_INVALID",
        "message": "Agent 'broken' cannot be used: ",
    },
    {
        "code": "AGENT_NOT_FOUND",
        "message": "There is no agent named 'zzz'. Existing agents: helper.",
    },
]


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with one tool, one valid agent and one invalid agent."""
    data_dir = tmp_path_factory.mktemp("selections")
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    write_agent(data_dir, "broken", SKILL=None)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


def expected(*kinds: str) -> list[dict[str, str]]:
    return [warning for warning in WARNINGS if warning["code"].startswith(kinds)]


def without_reasons(warnings: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the warnings, without the reason why an agent is invalid."""
    return [
        w | {"message": w["message"].partition(": ")[0] + ": "}
        if w["code"] == "AGENT_INVALID"
        else w
        for w in warnings
    ]


def test_created_session_has_warnings(api: Api) -> None:
    created = api.create_session("mochi", **MISSPELT)
    assert without_reasons(created["warnings"]) == WARNINGS
    assert "SKILL.md" in next(
        w["message"] for w in created["warnings"] if w["code"] == "AGENT_INVALID"
    )
    assert created["tool_settings"]["tools"] == ["add", "ad"]


def test_patched_session_has_warnings_about_the_changed_settings(api: Api) -> None:
    path = f"/sessions/{api.create_session('mochi', tool_settings={'tools': ['ad']})['session_id']}"
    patched = api.ok(api.http.patch(path, json={"agent_settings": MISSPELT["agent_settings"]}))
    assert without_reasons(patched["warnings"]) == expected("AGENT")
    assert api.ok(api.http.patch(path, json={"title": "Other"}))["warnings"] == []
    assert api.ok(api.http.patch(path, json={"tool_settings": None}))["warnings"] == []


def test_each_turn_repeats_the_warnings(api: Api) -> None:
    session_id = api.create_session("mochi", **MISSPELT)["session_id"]
    for _ in range(2):
        events = api.stream_message(session_id, "Hello")
        assert (
            without_reasons([event.data for event in events if event.type == "warning"]) == WARNINGS
        )
    answer = api.send_message(session_id, "Hello")
    assert without_reasons(answer["warnings"]) == WARNINGS
    assert answer["state"] == "completed"


def test_known_names_cause_no_warnings(api: Api) -> None:
    created = api.create_session(
        "mochi",
        tool_settings={"tools": ["add"], "tool_group": "maths"},
        agent_settings={"enabled_agents": ["helper"]},
    )
    assert created["warnings"] == []
    assert api.send_message(created["session_id"], "Hello")["warnings"] == []


def test_status_lists_missing_names_and_not_as_active(api: Api) -> None:
    session_id = api.create_session("mochi", **MISSPELT)["session_id"]
    status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
    assert (status["active_tools"], status["missing_tools"]) == (["add"], ["ad", "math"])
    assert (status["enabled_agents"], status["missing_agents"]) == (
        ["helper"],
        ["helpr", "broken", "zzz"],
    )


def test_tool_with_the_name_of_the_agent_tool_causes_a_warning(
    tmp_path: Path, stub: StubServer
) -> None:
    write_tools(tmp_path, TOOLS.replace("add", "agent"))
    write_agent(tmp_path)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        agents = {"enabled_agents": ["helper"]}
        created = api.create_session(
            "mochi", tool_settings={"tool_group": "maths"}, agent_settings=agents
        )
        assert [warning["code"] for warning in created["warnings"]] == ["TOOL_NOT_FOUND"]
        assert (
            "'agent' cannot be used while agents are enabled" in created["warnings"][0]["message"]
        )
        path = f"/sessions/{created['session_id']}"
        assert api.send_message(created["session_id"], "Hello")["warnings"] == created["warnings"]
        status = api.ok(api.http.get(f"{path}/status"))
        assert (status["active_tools"], status["missing_tools"]) == ([], ["agent"])
        api.ok(api.http.patch(path, json={"agent_settings": None}))
        assert api.send_message(created["session_id"], "Hello")["warnings"] == []
        assert api.ok(api.http.get(f"{path}/status"))["active_tools"] == ["agent"]


def test_many_unknown_tools_take_no_time(tmp_path: Path, stub: StubServer) -> None:
    known, unknown = (
        [f"{prefix}_{verb}_{noun}_{n}" for verb in VERBS for noun in NOUNS for n in range(count)]
        for prefix, count in (("github", 5), ("gitlab", 40))
    )
    functions = "\n".join(f'def {name}() -> None:\n    """Do it."""' for name in known)
    write_tools(tmp_path, f"{functions}\n__all__ = {known}")
    with RunningServer(tmp_path, stub.url) as server:
        began = time.process_time()  # of this process, in which the server runs
        created = server.api().create_session("mochi", tool_settings={"tools": unknown})
        assert time.process_time() - began < 1.5
        assert len(created["warnings"]) == len(unknown)
