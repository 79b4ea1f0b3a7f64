"""Limits of the turns of API keys, which hold for all servers that share the sessions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.api.test_keys import as_key, keys_file, shared_server  # noqa: F401 - fixtures
from tests.support.api import error_of
from tests.support.instructions import calls, instruct, words
from tests.support.keys import write_keys
from tests.support.server import RunningServer
from tests.support.waiting import until

pytestmark = pytest.mark.two_servers


def test_turns_at_a_time_are_limited(server: RunningServer) -> None:
    one = as_key(server, "one")
    asking = one.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    with one.open_stream(asking, instruct(calls("note", text="x"), words(3))) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        response = one.http.post(
            f"/chat/{one.create_session('mochi')['session_id']}", json={"message": "Hello"}
        )
        assert error_of(response) == (429, "RATE_LIMITED")
        assert response.headers["Retry-After"] == "1"
        one.ok(one.http.post(f"/chat/{asking}/stop"))
    one.send_message(asking, "Hello")


def test_message_that_waits_for_its_session_is_within_the_limit(server: RunningServer) -> None:
    one = as_key(server, "one")
    session_id = one.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    with one.open_stream(session_id, instruct(calls("note", text="x"), words(3))) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.send_message, session_id, "Hello", if_busy="wait")
            assert wait([waiting], timeout=0.2).not_done
            one.ok(one.http.post(f"/chat/{session_id}/stop"))
            assert waiting.result()["message"] is not None


def test_suspended_turn_continues_only_below_the_limit(server: RunningServer) -> None:
    """A turn without clients that waits for approval does not run until it is decided."""
    one = as_key(server, "one")
    tools = {"tools": ["note"]}
    suspended = one.create_session("mochi", tool_settings=tools)["session_id"]
    live = one.create_session("mochi", tool_settings=tools)["session_id"]
    message = instruct(calls("note", text="x"), words(3))
    with one.open_stream(suspended, message) as events:
        asked = next(event for event in events if event.type == "tool_call_confirmation_required")
    decision = {"confirmation_id": asked.data["confirmation_id"], "approved": True}
    comparison = {"modelIds": ["mochi"], "message": "Hello"}
    until(lambda: one.http.post("/models/test", json=comparison).status_code == 200)
    with one.open_stream(live, message) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        for _ in range(2):
            response = one.http.post(f"/chat/{suspended}/confirm-tool", json=decision)
            assert error_of(response) == (429, "RATE_LIMITED")
            assert response.headers["Retry-After"] == "1"
        one.ok(one.http.post(f"/chat/{live}/stop"))
    one.ok(one.http.post(f"/chat/{suspended}/confirm-tool", json=decision))
    until(lambda: one.ok(one.http.get(f"/chat/{suspended}/run"))["state"] == "completed")
    assert [each["role"] for each in one.messages(suspended)][-2:] == ["tool", "assistant"]


def test_turns_per_minute_are_limited(server: RunningServer) -> None:
    few = as_key(server, "few")
    session_id = few.create_session("mochi")["session_id"]
    for _ in range(2):
        few.send_message(session_id, "Hello")
    response = few.http.post(f"/chat/{session_id}", json={"message": "Hello"})
    assert error_of(response) == (429, "RATE_LIMITED")
    assert 0 < int(response.headers["Retry-After"]) <= 60
    body = {"model": "mochi", "messages": [{"role": "user", "content": "Hello"}]}
    response = few.http.post(f"{server.url}/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["type"]) == (429, "rate_limit_error")
    as_key(server, "ann").create_session("mochi")


def test_refused_turns_are_not_counted(tmp_path: Path, stub: StubServer) -> None:
    path = write_keys(tmp_path / "keys.yaml", few={"turns_per_minute": 1})
    with RunningServer(tmp_path, stub.url, api_keys_file=str(path)) as server:
        few = as_key(server, "few")
        session_id = few.create_session("mochi")["session_id"]
        for _ in range(3):
            assert error_of(few.http.post(f"/chat/{session_id}"))[1] == "EMPTY_HISTORY"
        few.send_message(session_id, "Hello")
        assert error_of(few.http.post(f"/chat/{session_id}", json={"message": "Hello"})) == (
            429,
            "RATE_LIMITED",
        )
