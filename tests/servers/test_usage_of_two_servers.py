"""Usage and permissions of API keys at two servers of one database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.conftest import Start
from tests.support.api import Api, error_of
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


def _requests(api: Api, key: str) -> int:
    entries = api.ok(api.http.get("/usage"))["usage"]
    return sum(entry["requests"] for entry in entries if entry["key"] == key)
