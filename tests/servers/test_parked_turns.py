"""Turns that are parked at one server, and are decided or expire at another server of the same
database.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mochi_server.chat.limits import RunLimits
from mochi_server.container import Components
from mochi_server.storage.postgres.database import Database, prepare
from mochi_server.storage.postgres.store import _DUE_TURNS
from mochi_stub import StubServer
from tests.servers.conftest import Start
from tests.servers.test_approvals import TOOLS
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

PLAN = instruct(calls("note", text="x"), words(2))

pytestmark = pytest.mark.slow


def confirm(api: Api, session_id: str, asked: dict[str, Any]) -> int:
    decision = {"confirmation_id": asked["confirmation_id"], "approved": True}
    return api.http.post(f"/chat/{session_id}/confirm-tool", json=decision).status_code


def test_stream_at_one_server_follows_a_decision_at_another(start: Start, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub, ThreadPoolExecutor(2) as pool:
        first, second = (start(stub.url, park_seconds=0) for _ in range(2))
        with Api(first.url) as a, Api(second.url) as b, Api(first.url) as other:
            session_id = a.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
            with a.open_stream(session_id, PLAN) as events:
                asked = next(
                    event for event in events if event.type == "tool_call_confirmation_required"
                )
                statuses = pool.map(lambda api: confirm(api, session_id, asked.data), (b, other))
                assert sorted(statuses) == [200, 409]
                types = [event.type for event in events]
            assert types.count("tool_result") == 1
            assert types[-1] == "done"
    assert (tmp_path / "tools" / "notes.txt").read_text().split() == ["x"]


@pytest.mark.parametrize("park_seconds", [0, 30])
@pytest.mark.parametrize("path", ["", "/stream"])
def test_message_at_one_server_denies_what_waits_at_another(
    start: Start, tmp_path: Path, park_seconds: float, path: str
) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub:
        first, second = (start(stub.url, park_seconds=park_seconds) for _ in range(2))
        with Api(first.url) as a, Api(second.url) as b:
            session_id = a.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
            a.ok(
                a.http.post(f"/chat/{session_id}", json={"message": PLAN, "background": True}), 202
            )
            until(lambda: a.ok(a.http.get(f"/chat/{session_id}/confirmations"))["confirmations"])
            sent = b.http.post(
                f"/chat/{session_id}{path}", json={"message": "Hello", "if_waiting": "deny"}
            )
            assert sent.status_code == 200, sent.text
            stored = b.messages(session_id)
    assert [message["role"] for message in stored] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert stored[2]["error_code"] == "TOOL_EXECUTION_DENIED"


def test_stop_at_one_server_ends_the_agent_of_a_turn_that_waits_at_another(
    start: Start, tmp_path: Path
) -> None:
    write_agent(tmp_path)
    message = nested(delegate(words(1), calls("note", text="x"), words(2)), words(3))
    with StubServer(speed=0) as stub:
        first, second = (start(stub.url, park_seconds=0) for _ in range(2))
        with Api(first.url) as a, Api(second.url) as b:
            settings = {"agent_settings": {"enabled_agents": ["helper"]}}
            session_id = a.create_session("mochi", **settings)["session_id"]
            body = {"message": message, "background": True}
            a.ok(a.http.post(f"/chat/{session_id}", json=body), 202)
            until(lambda: a.ok(a.http.get(f"/chat/{session_id}/confirmations"))["confirmations"])
            b.ok(b.http.post(f"/chat/{session_id}/stop"))
            (chat,) = b.ok(b.http.get("/agents/chats"))["sessions"]
            stored = b.ok(b.http.get(f"/agents/chats/{chat['session_id']}"))["messages"]
    assert stored[-1]["error_code"] == "TOOL_EXECUTION_DENIED"


def test_stream_of_a_waiting_turn_ends_when_another_server_deletes_its_session(
    start: Start, database: str, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub:
        first, second = (start(stub.url, park_seconds=0) for _ in range(2))
        with Api(first.url) as a, Api(second.url) as b:
            session_id = a.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
            with a.open_stream(session_id, PLAN) as events:
                next(event for event in events if event.type == "tool_call_confirmation_required")
                forget_runs(database)
                assert b.http.delete(f"/sessions/{session_id}").status_code == 204
                assert [event.type for event in events][-2:] == ["stopped", "done"]


def forget_runs(database: str) -> None:
    """Delete the ended runs, as the servers do six minutes after each run has ended."""
    with psycopg.connect(database, autocommit=True) as connection:
        until(lambda: connection.execute("DELETE FROM runs WHERE ended < now()").rowcount)


def test_approval_expires_after_its_server_was_killed(start: Start, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub:
        killed, left = (
            start(stub.url, park_seconds=0, tool_confirmation_timeout_seconds=3) for _ in range(2)
        )
        with Api(killed.url) as a, Api(left.url) as b:
            session_id = a.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
            a.ok(
                a.http.post(f"/chat/{session_id}", json={"message": PLAN, "background": True}), 202
            )
            until(lambda: a.ok(a.http.get(f"/chat/{session_id}/confirmations"))["confirmations"])
            killed.kill()
            until(lambda: len(b.messages(session_id)) == 4)
            assert b.messages(session_id)[2]["decided_by"] == "timeout"


async def test_search_for_parked_turns_uses_its_index(database: str) -> None:
    await prepare(database)
    opened = Database(database)
    await opened.open()
    try:
        async with opened.transaction("explain the search") as connection:
            await connection.execute("SET LOCAL enable_seqscan = off")
            values = {"until": 0.0, "collection": "chats", "own": "0123456789"}
            explained = await connection.execute("EXPLAIN " + _DUE_TURNS, values)
            rows: list[Any] = await explained.fetchall()
    finally:
        await opened.aclose()
    assert any("sessions_due" in str(row[0]) for row in rows), rows


def test_turn_is_not_tried_again_before_its_pause(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The search that finds the second turn, whose approval expires, finds the first one, too."""
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url, store_url=database) as server:
            decided_id, asked = waiting_call(server.client)
        settings: dict[str, Any] = {"store_url": database, "tool_confirmation_timeout_seconds": 3}
        with RunningServer(tmp_path, stub.url, **settings) as server:
            expiring_id, _ = waiting_call(server.client)
    components = Components(runs=RunLimits(scan_seconds=0.05, retry_seconds=3600))
    with RunningServer(tmp_path, stub.url, components, store_url=database) as server:
        assert confirm(server.client, decided_id, asked) == 202
        until(lambda: f"turn continues later session_id={expiring_id}" in caplog.text)
    assert f"turn continues later session_id={decided_id}" not in caplog.text


def waiting_call(api: Api) -> tuple[str, dict[str, Any]]:
    """Start a turn in the background, and return its session and the call that waits."""
    session_id = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
    api.ok(api.http.post(f"/chat/{session_id}", json={"message": PLAN, "background": True}), 202)
    path = f"/chat/{session_id}/confirmations"
    until(lambda: api.ok(api.http.get(path))["confirmations"])
    (asked,) = api.ok(api.http.get(path))["confirmations"]
    return session_id, asked
