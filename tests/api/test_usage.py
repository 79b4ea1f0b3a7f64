"""Usage of API keys, and the limits that count it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.sessions.usage import today
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer
from tests.support.tools import NOTE_TOOL, write_tools

_MODEL_PATHS = ("/api/chat", "/api/generate", "/api/embed")


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("usage")
    write_tools(data_dir, NOTE_TOOL)
    keys = write_keys(
        data_dir / "keys.yaml",
        ann={},
        bob={},
        spent={"tokens_per_day": 1},
        one={"turns_at_a_time": 1},
        minute={"turns_per_minute": 1},
        root={"scope": "all"},
    )
    settings = {"api_keys_file": str(keys), "summarization_enabled": False}
    with RunningServer(data_dir, shared_stub.url, **settings) as server:
        yield server


def as_key(server: RunningServer, name: str) -> Api:
    return server.api(headers=headers(name))


def usage(api: Api) -> dict[str, Any]:
    return api.ok(api.http.get("/usage"))


def asked(stub: StubServer) -> int:
    """Return the number of requests that made a model work."""
    return [exchange.path in _MODEL_PATHS for exchange in stub.exchanges()].count(True)


def test_usage_is_what_ollama_counts(server: RunningServer) -> None:
    ann = as_key(server, "ann")
    session_id = ann.create_session("mochi")["session_id"]
    prompt_tokens = answer_tokens = 0
    for _ in range(2):
        ann.send_message(session_id, "Hello")
        answer = ann.messages(session_id)[-1]
        prompt_tokens += answer["prompt_eval_count"] - (answer.get("prompt_eval_cached_count") or 0)
        answer_tokens += answer["eval_count"]
    report = usage(ann)
    (entry,) = report["usage"]
    assert entry["prompt_tokens"] == prompt_tokens
    assert entry["answer_tokens"] == answer_tokens
    assert (entry["key"], entry["model"], entry["requests"]) == ("ann", "mochi:latest", 2)
    assert report["tokens_today"] == prompt_tokens + answer_tokens
    assert report["limits"]["tokens_per_day"] is None
    assert report["key"] == "ann"


def test_key_of_scope_own_sees_only_its_usage(server: RunningServer) -> None:
    bob, root = as_key(server, "bob"), as_key(server, "root")
    body = {"model": "mochi-embed", "input": "Hello"}
    bob.ok(bob.http.post(f"{server.url}/v1/embeddings", json=body))
    assert {entry["key"] for entry in usage(bob)["usage"]} == {"bob"}
    assert "bob" in {entry["key"] for entry in usage(root)["usage"]}
    metrics = root.http.get("/metrics").text
    (count,) = re.findall(r'mochi_key_tokens_total{direction="in",key="bob"} (\S+)', metrics)
    assert float(count) == usage(bob)["tokens_today"] > 0


@cases("days", ["0", "401", "many"])
def test_invalid_number_of_days_is_refused(server: RunningServer, days: str) -> None:
    response = as_key(server, "ann").http.get("/usage", params={"days": days})
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_no_route_makes_a_model_work_after_the_tokens_of_the_day(
    server: RunningServer, shared_stub: StubServer
) -> None:
    from tests.support.openapi import routes

    spent = as_key(server, "spent")
    session_id = spent.create_session("mochi")["session_id"]
    spent.send_message(session_id, "Hello")
    before = asked(shared_stub)
    refused = set()
    for route in routes():
        path = re.sub(r"\{(\w+)\}", lambda m: {"session_id": session_id}.get(m[1], "1"), route.path)
        if (route.method, path) == ("DELETE", f"/api/v1/sessions/{session_id}"):
            continue
        url, body = str(spent.http.base_url.join(path)), route.example
        if route.path.endswith("/models/test"):
            body = {"modelIds": ["mochi"], "message": "Hello"}
        response = spent.http.request(route.method, url, json=body)
        if response.status_code == 429:
            assert 0 < int(response.headers["Retry-After"]) <= 24 * 60 * 60
            refused.add(route.path.removeprefix("/api/v1"))
    assert asked(shared_stub) == before
    assert refused >= {
        "/chat/{session_id}",
        "/chat/{session_id}/stream",
        "/chat/{session_id}/ai-sdk",
        "/chat/{session_id}/ag-ui",
        "/models/test",
        "/sessions/{session_id}/summarize",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
    }
    metrics = as_key(server, "root").http.get("/metrics").text
    assert 'mochi_key_refusals_total{key="spent"}' in metrics


def test_turn_that_waits_counts_on_every_route(server: RunningServer) -> None:
    one = as_key(server, "one")
    asking = one.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    with one.open_stream(asking, instruct(calls("note", text="x"), words(3))) as events:
        next(event for event in events if event.type == "tool_call_confirmation_required")
        requests = [
            ("/models/test", {"modelIds": ["mochi"], "message": "Hello"}),
            (f"/sessions/{asking}/summarize", {}),
            (f"{server.url}/v1/embeddings", {"model": "mochi-embed", "input": "Hello"}),
        ]
        for path, body in requests:
            assert one.http.post(path, json=body).status_code == 429, path
        one.ok(one.http.post(f"/chat/{asking}/stop"))
    for _ in range(2):  # a comparison that has ended is not counted
        response = one.http.post("/models/test", json={"modelIds": ["mochi"], "message": "Hello"})
        assert response.status_code == 200


def test_refused_request_is_not_counted_as_a_turn(server: RunningServer) -> None:
    minute = as_key(server, "minute")
    url = f"{server.url}/v1/embeddings"
    file = {"metadata": {"model": "absent"}, "messages": [{"role": "user", "content": "Hello"}]}
    (session,) = minute.ok(minute.http.post("/sessions/import", json=file), 201)["sessions"]
    summary = f"/sessions/{session['session_id']}/summarize"
    for _ in range(2):
        assert minute.http.post(summary).status_code == 404
        response = minute.http.post(url, json={"model": "absent", "input": "Hello"})
        assert response.status_code == 404
    body = {"model": "mochi-embed", "input": "Hello"}
    assert minute.http.post(url, json=body).status_code == 200
    assert minute.http.post(url, json=body).status_code == 429


def test_usage_survives_a_restart(stub: StubServer, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", ann={"tokens_per_day": 1})
    reports = []
    for _ in range(2):
        with RunningServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
            ann = as_key(server, "ann")
            session_id = ann.create_session("mochi")["session_id"]
            response = ann.http.post(f"/chat/{session_id}", json={"message": "Hello"})
            reports.append((response.status_code, usage(ann)["tokens_today"]))
    assert [status for status, _ in reports] == [200, 429]
    assert reports[0][1] == reports[1][1] > 0


def test_usage_of_many_models_in_one_day_is_counted(stub: StubServer, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", root={"scope": "all"})
    counts = {"requests": 1, "prompt_tokens": 1, "answer_tokens": 1}
    rows = [{"key": "root", "model": f"model-{number:050}", **counts} for number in range(10_000)]
    (tmp_path / "usage").mkdir()
    file = tmp_path / "usage" / "2927-01-31.json"
    file.write_text(json.dumps({"usage": rows}))
    assert file.stat().st_size > 1024 * 1024
    with RunningServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
        assert len(usage(as_key(server, "root"))["usage"]) == 10_000


def test_damaged_usage_file_counts_as_empty(stub: StubServer, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", ann={})
    (tmp_path / "usage").mkdir()
    for name in ("2927-01-31.json", "notes.json"):
        (tmp_path / "usage" / name).write_text("{")
    row = {"key": "ann", "model": "mochi", "requests": "x", "prompt_tokens": 1, "answer_tokens": 1}
    (tmp_path / "usage" / "2927-02-01.json").write_text(json.dumps({"usage": [row]}))
    with RunningServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
        assert usage(as_key(server, "ann"))["usage"] == []


@pytest.mark.parametrize("field", ["key", "model"])
def test_damaged_usage_file_of_today_is_replaced(
    stub: StubServer, tmp_path: Path, field: str
) -> None:
    keys = write_keys(tmp_path / "keys.yaml", ann={})
    row = {"key": "ann", "model": "mochi", "requests": 1, "prompt_tokens": 1, "answer_tokens": 1}
    (tmp_path / "usage").mkdir()
    damaged = json.dumps({"usage": [{**row, field: None}]})
    (tmp_path / "usage" / f"{today()}.json").write_text(damaged)
    body = {"model": "mochi-embed", "input": "Hello"}
    with RunningServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
        ann = as_key(server, "ann")
        ann.ok(ann.http.post(f"{server.url}/v1/embeddings", json=body))
        (counted,) = usage(ann)["usage"]
    with RunningServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
        assert usage(as_key(server, "ann"))["usage"] == [counted]
