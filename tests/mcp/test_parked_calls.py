"""Calls of MCP tools that wait for approval when the server stops."""

import json
from pathlib import Path

from mochi_server.mcp.limits import McpLimits
from mochi_stub import StubServer
from tests.api.test_parked_turns import decide, park, results
from tests.mcp.patient_server import PatientServer
from tests.mcp.test_agents import session_with, skill
from tests.support.agents import delegate, nested, write_agent
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import by_hand, write_mcp
from tests.support.waiting import until

ECHO_IN_AGENT = nested(
    delegate(words(1), calls("echo", text="x"), words(2), agent="clock"), words(3)
)


def test_stored_decision_waits_for_its_mcp_server(private_stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, echoes=by_hand(tmp_path, "echo"))
    message = instruct(calls("echo", text="x"), words(2))
    with PatientServer(tmp_path, private_stub.url, park_seconds=0) as server:
        api = server.client
        until(lambda: "echo" in api.ok(api.http.get("/tools"))["tools"])
        session_id = api.create_session("mochi", tool_settings={"tools": ["echo"]})["session_id"]
        api.ok(
            api.http.post(f"/chat/{session_id}", json={"message": message, "background": True}), 202
        )
        until(lambda: api.ok(api.http.get(f"/chat/{session_id}/confirmations"))["confirmations"])
    file = tmp_path / "chat_sessions" / f"{session_id}.json"
    session = json.loads(file.read_text())
    turn = session["metadata"]["turn"]  # killed after the decision
    turn |= {"state": "running", "approval": turn["approval"] | {"decision": {"approved": True}}}
    file.write_text(json.dumps(session))
    with PatientServer(tmp_path, private_stub.url, limits=McpLimits(start_seconds=0)) as server:
        until(lambda: len(server.client.messages(session_id)) == 4)
        result = server.client.messages(session_id)[2]
    assert (result["success"], result["decided_by"]) == (True, "user")


def test_parked_call_of_an_agent_has_the_mcp_tools_of_the_present_skill_file(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_mcp(tmp_path, hand=by_hand(tmp_path, "echo", "note"))
    write_agent(tmp_path, "clock", SKILL=skill("note"), clock=None, __init__=None)
    with PatientServer(tmp_path, private_stub.url, park_seconds=0) as server:
        api = server.client
        session_id = session_with(api, "clock", "always_confirm")
        api.ok(api.http.get("/agents"))
        write_agent(tmp_path, "clock", SKILL=skill("echo"), clock=None, __init__=None)
        asked = park(api, session_id, ECHO_IN_AGENT)
        until(lambda: not server.app.state.services.turns.table.running())
        assert decide(api, session_id, asked, arguments={"wrong": 1}).status_code == 422
        api.ok(decide(api, session_id, asked))
        until(lambda: len(api.messages(session_id)) == 4)
        (result,) = results(api, session_id)
    assert (result["success"], "Result of echo: x" in result["content"]) == (True, True)


def test_parked_call_of_an_agent_without_its_mcp_server_names_the_missing_tool(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_mcp(tmp_path, hand=by_hand(tmp_path, "echo"))
    write_agent(tmp_path, "clock", SKILL=skill("hand"), clock=None, __init__=None)
    with PatientServer(tmp_path, private_stub.url, park_seconds=0) as server:
        session_id = session_with(server.client, "clock", "always_confirm")
        asked = park(server.client, session_id, ECHO_IN_AGENT)
    write_mcp(tmp_path, hand={"command": "false"})
    with PatientServer(tmp_path, private_stub.url) as server:
        api = server.client
        api.ok(decide(api, session_id, asked))
        until(lambda: len(api.messages(session_id)) == 4)
        (result,) = results(api, session_id)
    assert "There is no tool named 'echo'" in result["content"]


def test_parked_call_of_an_agent_whose_skill_file_is_invalid_now_says_why(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_mcp(tmp_path, hand=by_hand(tmp_path, "echo"))
    write_agent(tmp_path, "clock", SKILL=skill("hand"), clock=None, __init__=None)
    with PatientServer(tmp_path, private_stub.url, park_seconds=0) as server:
        api = server.client
        session_id = session_with(api, "clock", "always_confirm")
        asked = park(api, session_id, ECHO_IN_AGENT)
        until(lambda: not server.app.state.services.turns.table.running())
        write_agent(tmp_path, "clock", SKILL="You help.", clock=None, __init__=None)
        api.ok(decide(api, session_id, asked))
        until(lambda: len(api.messages(session_id)) == 4)
        (result,) = results(api, session_id)
    assert "SKILL.md: it has no description" in result["content"]
