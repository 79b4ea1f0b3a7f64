"""The server's own files: sessions and a directory that cannot be written."""

import os
import shutil
from pathlib import Path
from typing import Any

import orjson

from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.waiting import until


def test_stored_file_follows_specification(private_api: Api, tmp_path: Path) -> None:
    session_id = private_api.create_session("mochi", system_prompt="Be brief.")["session_id"]
    private_api.send_message(session_id, "Hello!")

    stored = orjson.loads((tmp_path / "chat_sessions" / f"{session_id}.json").read_bytes())

    assert list(stored) == ["metadata", "messages"]
    assert list(stored["metadata"]) == [
        "session_id",
        "model",
        "created_at",
        "updated_at",
        "message_count",
        "summary",
        "summary_model",
        "format_version",
        "turn",
        "tool_settings",
        "agent_settings",
        "context_window_config",
    ]
    assert stored["metadata"]["message_count"] == 3
    assert stored["metadata"]["format_version"] == "1.4"
    assert stored["metadata"]["context_window_config"] == {
        "dynamic_enabled": True,
        "current_window": 8192,
        "last_adjustment": "initial_setup",
        "adjustment_history": [],
        "manual_override": False,
    }
    assert stored["messages"] == private_api.messages(session_id)


@cases(
    "message",
    [
        {"content": "Hi"},
        {"role": "assistant", "content": None, "eval_count": "12", "tool_calls": 5},
        {"role": "assistant", "content": "Hi", "message_id": ["a"], "timestamp": 5},
    ],
)
def test_invalid_values_in_files_are_omitted(
    api: Api, server: RunningServer, message: dict[str, Any]
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    file = server.settings.resolved_sessions_dir / f"{session_id}.json"
    stored = orjson.loads(file.read_bytes())
    stored["metadata"] |= {
        "summary": "text",
        "title": 5,
        "options": [1],
        "think": {},
        "summary_model": 7,
        "context_window_config": {"current_window": "8192", "adjustment_history": 5},
        "tool_settings": {"tools": "all"},
        "session_id": None,
    }
    stored["messages"] = [{"role": "user", "content": "Hello!", "source_file": 5}, message]
    version = {"version_id": "v", "message_id": "a", "messages": [{"role": "user"}]}
    stored["versions"] = [version]
    file.write_bytes(orjson.dumps(stored))

    assert [e["session_id"] for e in api.ok(api.http.get("/sessions"))["sessions"]].count(
        session_id
    ) == 1
    assert api.session(session_id)["message_count"] == 2
    assert api.ok(api.http.get(f"/sessions/{session_id}/status"))["message_count"] == 2
    assert api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)["message_count"] == 2
    assert (
        "Hello!"
        in api.http.get(f"/sessions/{session_id}/export?format=markdown").raise_for_status().text
    )
    assert api.send_message(session_id, "And?")["message"]["content"]


def test_unreadable_session_file_is_set_aside(private_api: Api, tmp_path: Path) -> None:
    kept, broken = (private_api.create_session("mochi")["session_id"] for _ in range(2))
    path = tmp_path / "chat_sessions" / f"{broken}.json"
    path.write_text('{"metadata": ')
    os.utime(path, (0, 0))  # older than the time after which a file counts as completely written
    assert [
        e["session_id"] for e in private_api.ok(private_api.http.get("/sessions"))["sessions"]
    ] == [kept]
    assert error_of(private_api.http.get(f"/sessions/{broken}")) == (404, "SESSION_NOT_FOUND")
    (aside,) = (tmp_path / "chat_sessions").glob(f"{broken}.json.corrupt-*")
    assert aside.read_text() == '{"metadata": '


def is_removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def test_unwritable_directory_is_not_ready_but_alive(private_api: Api, tmp_path: Path) -> None:
    sessions = tmp_path / "chat_sessions"
    until(lambda: is_removed(sessions))  # the server may write its index there
    sessions.touch()
    refused = private_api.http.get("/health/ready")
    assert error_of(refused) == (503, "NOT_READY")
    assert refused.json()["error"]["details"] == {
        "reason": "Cannot write the sessions directory: Not a directory."
    }
    assert str(tmp_path) not in refused.text
    assert private_api.http.get("/health/live").status_code == 200
    sessions.unlink()
    assert private_api.http.get("/health/ready").status_code == 200
