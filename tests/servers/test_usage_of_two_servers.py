"""Usage, limits and permissions of API keys at two servers of one database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.servers.conftest import Start
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.tools import NOTE_TOOL, write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.slow

_UNKNOWN = "There is no tool named 'note'"


def test_usage_of_two_servers_adds_up(start: Start, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", ann={"tokens_per_day": 1}, root={"scope": "all"})
    first, second = (start(api_keys_file=str(keys)) for _ in range(2))
    ann, elsewhere = (Api(server.url, headers=headers("ann")) for server in (first, second))
    with ann, elsewhere:
        ann.send_message(ann.create_session("mochi")["session_id"], "Hello")
        used = ann.ok(ann.http.get("/usage"))["tokens_today"]
        until(lambda: elsewhere.ok(elsewhere.http.get("/usage"))["tokens_today"] == used > 0)
        session_id = elsewhere.create_session("mochi")["session_id"]
        response = elsewhere.http.post(f"/chat/{session_id}", json={"message": "Hello"})
        assert error_of(response) == (429, "RATE_LIMITED")
    for server in (first, second):
        with Api(server.url, headers=headers("root")) as root:
            root.send_message(root.create_session("mochi")["session_id"], "Hello")
    with Api(first.url, headers=headers("root")) as root:
        until(lambda: _requests(root, "root") == 2)


def test_forwarded_requests_carry_the_permissions(start: Start, tmp_path: Path) -> None:
    """The server that runs a turn of another key's session knows what this key may not use."""
    write_tools(tmp_path, NOTE_TOOL)
    keys = write_keys(tmp_path / "keys.yaml", ann={}, app={"scope": "all", "tools": "[]"})
    tools_dir = str(tmp_path / "tools")
    first, second = (start(api_keys_file=str(keys), tools_dir=tools_dir) for _ in range(2))
    with (
        Api(first.url, headers=headers("ann")) as ann,
        Api(second.url, headers=headers("app")) as app,
    ):
        settings = {"tools": ["note"], "execution_policy": "never_confirm"}
        session_id = ann.create_session("mochi", tool_settings=settings)["session_id"]
        path = f"/chat/{session_id}/stream"
        with ann.open_stream(session_id, "hold") as events:
            next(events)
            body = {"message": "Hello", "if_busy": "wait"}
            with app.http.stream("POST", path, json=body) as response:
                ann.ok(ann.http.post(f"/chat/{session_id}/stop"))
                text = "".join(response.iter_text())
        assert _UNKNOWN in text  # a warning that the turn ignores the tool
        assert _UNKNOWN not in ann.http.post(path, json={"message": "Hello"}).text


def test_burst_at_two_servers_starts_as_many_turns_as_the_limit(
    start: Start, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.yaml", few={"turns_per_minute": 3})
    servers = [start(api_keys_file=str(keys)) for _ in range(2)]
    with ExitStack() as stack:
        apis = [stack.enter_context(Api(server.url, headers=headers("few"))) for server in servers]
        session_ids = [apis[0].create_session("mochi")["session_id"] for _ in range(10)]
        statuses = []
        with ThreadPoolExecutor(len(session_ids)) as threads:
            for number, session_id in enumerate(session_ids):
                statuses.append(threads.submit(_status, apis[number % 2], session_id))
    assert sorted(status.result() for status in statuses) == [200] * 3 + [429] * 7


def test_turn_of_a_killed_server_does_not_count(start: Start, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", one={"turns_at_a_time": 1})
    first, second = (start(api_keys_file=str(keys)) for _ in range(2))
    with (
        Api(first.url, headers=headers("one")) as one,
        Api(second.url, headers=headers("one")) as elsewhere,
    ):
        held, other = (one.create_session("mochi")["session_id"] for _ in range(2))
        with one.open_stream(held, "hold") as events:
            next(events)
            assert _status(elsewhere, other) == 429
            first.kill()
        until(lambda: _status(elsewhere, other) == 200)


def test_turn_that_another_server_continues_counts(start: Start, tmp_path: Path) -> None:
    write_tools(tmp_path, NOTE_TOOL)
    keys = write_keys(tmp_path / "keys.yaml", one={"turns_at_a_time": 1})
    plan = instruct(calls("note", text="x"), calls("note", text="y"), words(2))
    with StubServer(speed=0) as stub:
        first = start(stub.url, api_keys_file=str(keys), park_seconds=0)
        second = start(stub.url, api_keys_file=str(keys))
        with (
            Api(first.url, headers=headers("one")) as one,
            Api(second.url, headers=headers("one")) as elsewhere,
        ):
            tools = {"tools": ["note"]}
            asking = one.create_session("mochi", tool_settings=tools)["session_id"]
            other = one.create_session("mochi")["session_id"]
            body = {"message": plan, "background": True}
            one.ok(one.http.post(f"/chat/{asking}", json=body), 202)
            until(lambda: _status(elsewhere, other) == 200)  # the turn is parked
            (waiting,) = one.ok(one.http.get(f"/chat/{asking}/confirmations"))["confirmations"]
            decision = {"confirmation_id": waiting["confirmation_id"], "approved": True}
            elsewhere.ok(elsewhere.http.post(f"/chat/{asking}/confirm-tool", json=decision))
            until(lambda: _status(one, other) == 429)
            elsewhere.ok(elsewhere.http.post(f"/chat/{asking}/stop"))
            until(lambda: _status(one, other) == 200)


def _status(api: Api, session_id: str) -> int:
    return api.http.post(f"/chat/{session_id}", json={"message": "Hello"}).status_code


def _requests(api: Api, key: str) -> int:
    entries = api.ok(api.http.get("/usage"))["usage"]
    return sum(entry["requests"] for entry in entries if entry["key"] == key)
