"""Keys at one server: limits, log lines, metrics and a changed keys file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.api.test_keys import _GOOD, as_key, keys_file, listed, shared_server  # noqa: F401 - fixtures
from tests.support.api import error_of
from tests.support.instructions import calls, instruct, words
from tests.support.keys import write_keys
from tests.support.server import RunningServer


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


def test_log_and_metrics_name_the_key(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    from mochi_server.telemetry.logging import JsonFormatter, TextFormatter
    from mochi_server.util.text import SecretMasker

    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(
                form(SecretMasker([])).format(record) for form in (JsonFormatter, TextFormatter)
            )

    logger, handler = logging.getLogger("mochi_server.web.request_log"), Handler()
    logger.addHandler(handler)
    try:
        with caplog.at_level("INFO"):
            bob = as_key(server, "bob")
            bob.send_message(bob.create_session("mochi")["session_id"], "Hello")
    finally:
        logger.removeHandler(handler)
    assert any('"key": "bob"' in line for line in lines)
    assert any("key=bob]" in line for line in lines)
    assert not any("bob secret" in line for line in lines)
    metrics = as_key(server, "root").http.get("/metrics").text
    assert 'mochi_key_turns_total{key="bob",outcome="completed"}' in metrics


def test_changed_file_is_read_again(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_keys(tmp_path / "keys.yaml", ann={})
    with RunningServer(tmp_path, stub.url, api_keys_file=str(path)) as server:
        ann, bob = as_key(server, "ann"), as_key(server, "bob")
        first = ann.create_session("mochi")["session_id"]
        assert bob.http.get("/sessions").status_code == 401
        write_keys(path, ann={}, bob={})
        assert listed(bob) == []
        for broken in ("- name: ann\n  hash: md5:0123\n", None):
            path.write_text(broken) if broken else path.unlink()
            caplog.clear()
            assert [listed(ann), listed(ann)] == [[first], [first]]
            (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
            assert str(path) in record.getMessage()
        path.write_text(f"- name: ann\n  hash: {_GOOD}\n")
        assert ann.http.get("/sessions").status_code == 401
