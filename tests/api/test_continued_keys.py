"""Turns that a repeated idempotency key continues, with the metrics of their only server."""

from pathlib import Path

from mochi_stub import Cut, Reply, StubServer, Text, ToolCall, ToolCalls
from tests.api.test_idempotency import KEY, contents, stream_with_key
from tests.support.api import Api, read_events
from tests.support.server import RunningServer
from tests.support.tools import write_tools

READ_AND_WRITE = """
def look() -> str:
    "Look."
    return "seen"

def note() -> str:
    "Note."
    return "noted"

__all__ = ["look", "note"]
__read_only__ = ["look"]
"""


def continue_until_asked(api: Api) -> str:
    """Run a turn that is interrupted after a call, and continue it until a call waits.

    Return the session ID.
    """
    tools = {"tools": ["look", "note"], "execution_policy": "confirm_destructive"}
    session_id: str = api.create_session("mochi", tool_settings=tools)["session_id"]
    stream_with_key(api, session_id, "Hi")
    body = {"message": "Hi"}
    url = f"/chat/{session_id}/stream"
    with api.http.stream("POST", url, json=body, headers=KEY) as response:
        events = read_events(response)
        assert any(event.type == "tool_call_confirmation_required" for event in events)
    return session_id


def test_continued_turn_replaces_its_partial_answer_after_a_wait(tmp_path: Path) -> None:
    write_tools(tmp_path, READ_AND_WRITE)
    replies = [
        Reply([ToolCalls([ToolCall("look")])]),
        Reply([Text("Well, "), Cut()]),
        Reply([Text("I note."), ToolCalls([ToolCall("note")])]),
        Reply.of("Fine."),
    ]
    settings = {"summarization_enabled": False, "shutdown_grace_seconds": 0}
    with StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub:
        with RunningServer(tmp_path, stub.url, **settings) as server:
            session_id = continue_until_asked(server.client)
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            path = f"/chat/{session_id}"
            (waiting,) = api.ok(api.http.get(f"{path}/confirmations"))["confirmations"]
            assert waiting["call_index"] == 1
            decision = {"confirmation_id": waiting["confirmation_id"], "approved": True}
            api.ok(api.http.post(f"{path}/confirm-tool", json=decision))
            answer = api.ok(api.http.post(path, json={"message": "Hi"}, headers=KEY))
            names = [call["tool_name"] for call in answer["tool_calls_executed"]]
            assert names == ["look", "note"]
            assert contents(api, session_id) == ["Hi", "", "seen", "I note.", "noted", "Fine."]
            metrics = api.http.get("/metrics").text
            assert 'mochi_tool_calls_total{outcome="succeeded",tool="note"} 1.0' in metrics
            assert 'tool="look"' not in metrics  # counted before the restart


def test_stop_of_a_continued_turn_counts_its_first_part_once(tmp_path: Path) -> None:
    write_tools(tmp_path, READ_AND_WRITE)
    look, note = Reply([ToolCalls([ToolCall("look")])]), Reply([ToolCalls([ToolCall("note")])])
    replies = [look, Reply([Cut()]), note]
    settings = {"summarization_enabled": False, "shutdown_grace_seconds": 0}
    with StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub:
        with RunningServer(tmp_path, stub.url, **settings) as server:
            session_id = continue_until_asked(server.client)
        with RunningServer(tmp_path, stub.url, **settings) as server:
            api = server.client
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
            metrics = api.http.get("/metrics").text
            assert 'mochi_tool_calls_total{outcome="denied",tool="note"} 1.0' in metrics
            assert 'tool="look"' not in metrics  # counted before the restart
