"""Calls of MCP tools that wait for approval when the server stops."""

import json
from pathlib import Path

from mochi_server.mcp.limits import McpLimits
from mochi_stub import StubServer
from tests.mcp.patient_server import PatientServer
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import by_hand, write_mcp
from tests.support.waiting import until


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
