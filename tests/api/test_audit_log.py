"""Keys that have expired, and the audit log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mochi_server.container import Components
from mochi_stub import StubServer
from tests.support.api import Api, error_of, read_events
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer
from tests.support.tools import NOTE_TOOL, write_tools
from tests.support.waiting import until

SECRET_TEXT = "text of a conversation"


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("audit")
    write_tools(data_dir, NOTE_TOOL)
    keys = write_keys(
        data_dir / "keys.yaml",
        ann={},
        late={"expires": "2001-01-31"},
        timely={"expires": "2927-01-31"},
        root={"scope": "all"},
    )
    settings = {"api_keys_file": str(keys), "summarization_enabled": False}
    with RunningServer(data_dir, shared_stub.url, **settings) as server:
        yield server


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "mochi_server.audit"):
        yield caplog


def lines(audited: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in audited.records if each.name == "mochi_server.audit"]


def as_key(server: RunningServer, name: str) -> Api:
    return server.api(headers=headers(name))


def test_expired_key_is_refused(server: RunningServer, audited: pytest.LogCaptureFixture) -> None:
    as_key(server, "timely").ok(as_key(server, "timely").http.get("/sessions"))
    response = as_key(server, "late").http.get("/sessions")
    assert error_of(response) == (401, "UNAUTHORIZED")
    assert "The API key 'late' has expired." in response.text
    assert lines(audited) == [
        "API key refused key=late error=UNAUTHORIZED method=GET path=/api/v1/sessions"
    ]


def test_refused_keys_are_in_the_log(
    server: RunningServer, audited: pytest.LogCaptureFixture
) -> None:
    as_key(server, "ann").http.post("/tools/reload")
    as_key(server, "unknown").http.get("/sessions?q=secret")
    assert lines(audited) == [
        "API key refused key=ann error=FORBIDDEN method=POST path=/api/v1/tools/reload",
        "API key refused error=UNAUTHORIZED method=GET path=/api/v1/sessions",
    ]


def test_decisions_and_changes_of_settings_are_in_the_log(
    server: RunningServer, audited: pytest.LogCaptureFixture
) -> None:
    ann, root = as_key(server, "ann"), as_key(server, "root")
    session_id = ann.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    ann.ok(ann.http.patch(f"/sessions/{session_id}", json={"title": SECRET_TEXT}))
    message = instruct(calls("note", text=SECRET_TEXT), words(3))
    with ann.open_stream(session_id, message) as events:
        asked = next(e for e in events if e.type == "tool_call_confirmation_required")
        confirmation_id = asked.data["confirmation_id"]
        decision = {"confirmation_id": confirmation_id, "approved": True, "reason": SECRET_TEXT}
        ann.ok(ann.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
        assert [*events][-1].type == "done"
    prompt = {"filename": "audit.md", "content": SECRET_TEXT}
    root.ok(root.http.post("/system-prompts", json=prompt), 201)
    root.ok(root.http.post("/tools/reload"))
    decided = f"session_id={session_id} confirmation_id={confirmation_id} tool=note"
    assert lines(audited) == [
        f"Session settings changed key=ann session_id={session_id} fields=title",
        f"Tool call decided key=ann {decided} approved=True remember=once",
        "System prompt file written key=root file=audit.md",
        "Tools reloaded key=root",
    ]


def test_summary_model_of_a_request_is_a_change_of_settings(
    server: RunningServer, audited: pytest.LogCaptureFixture
) -> None:
    ann = as_key(server, "ann")
    session_id = ann.create_session("mochi")["session_id"]
    ann.send_message(session_id, "Hello")
    ann.ok(ann.http.post(f"/sessions/{session_id}/summarize", json={"model": "mochi"}))
    assert lines(audited) == [
        f"Session settings changed key=ann session_id={session_id} fields=summary_model"
    ]


def test_revoked_key_is_refused_at_once(stub: StubServer, tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.yaml", ann={}, bob={})
    with RunningServer(tmp_path, stub.url, api_keys_file=str(path)) as server:
        bob = as_key(server, "bob")
        bob.ok(bob.http.get("/sessions"))
        write_keys(path, ann={})
        assert error_of(bob.http.get("/sessions")) == (401, "UNAUTHORIZED")


def test_key_that_is_refused_in_a_waiting_stream_is_in_the_log(
    stub: StubServer, tmp_path: Path, audited: pytest.LogCaptureFixture
) -> None:
    write_tools(tmp_path, NOTE_TOOL)
    path = write_keys(tmp_path / "keys.yaml", few={"turns_per_minute": 1}, root={"scope": "all"})
    components = Components(ping_seconds=0.05)
    with RunningServer(tmp_path, stub.url, components, api_keys_file=str(path)) as server:
        few, root = as_key(server, "few"), as_key(server, "root")
        session_id = few.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        stream, second = f"/chat/{session_id}/stream", {"message": "Hi", "if_busy": "wait"}
        message = instruct(calls("note", text="x"), words(3))
        with (
            few.open_stream(session_id, message) as events,
            few.http.stream("POST", stream, json=second) as waiting,
        ):
            next(event for event in events if event.type == "tool_call_confirmation_required")
            assert waiting.status_code == 200
            root.ok(root.http.post(f"/chat/{session_id}/stop"))
            assert [event.data.get("code") for event in read_events(waiting)] == [
                "RATE_LIMITED",
                None,
            ]
        line = f"API key refused key=few error=RATE_LIMITED method=POST path=/api/v1{stream}"
        assert line in lines(audited)
        counted = 'mochi_key_refusals_total{key="few"} 1.0'
        until(lambda: counted in root.http.get("/metrics").text)
