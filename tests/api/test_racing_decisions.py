"""Requests that meet while a call waits for approval: one of them wins, and no call runs without
its approval.
"""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from mochi_server.sessions import turn as turn_module
from mochi_server.storage.postgres.processes import lock_key
from mochi_stub import Gate, Prompt, Reply, StubServer, Text
from tests.support.agents import delegate, nested, write_agent
from tests.support.agents import notes as agent_notes
from tests.support.api import Api, error_of, read_events
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.postgres import end_holder
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

TOOLS = '''
    from pathlib import Path

    def note(text: str) -> str:
        """Write a note."""
        with (Path(__file__).parent / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return f"Noted {text}."

    def other(text: str) -> str:
        """Do something else."""
        return note(f"other-{text}")

    __all__ = ["note", "other"]
'''
SETTINGS = {"tool_settings": {"tools": ["note", "other"]}}
ASKED = "tool_call_confirmation_required"
ROUNDS = 6


def message_of(text: str) -> str:
    return instruct(calls("note", text=text), words(2))


@pytest.fixture(scope="module")
def server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("racing")
    write_tools(data_dir, TOOLS)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture(scope="module")
def parking(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server that parks turns at once."""
    data_dir = tmp_path_factory.mktemp("parking")
    write_tools(data_dir, TOOLS)
    with RunningServer(
        data_dir, shared_stub.url, park_seconds=0, summarization_enabled=False
    ) as server:
        yield server


def noted(server: RunningServer) -> list[str]:
    file = Path(server.settings.data_dir) / "tools" / "notes.txt"
    return file.read_text().split() if file.exists() else []


def wait(api: Api, text: str) -> tuple[str, dict[str, Any]]:
    """Start a turn whose call waits for approval. Return the ID of its session, and the call."""
    session_id = api.create_session("mochi", **SETTINGS)["session_id"]
    api.ok(
        api.http.post(
            f"/chat/{session_id}", json={"message": message_of(text), "background": True}
        ),
        202,
    )
    until(lambda: confirmations(api, session_id))
    return session_id, confirmations(api, session_id)[0]


def confirmations(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))[
        "confirmations"
    ]
    return listed


def decide(api: Api, session_id: str, call: dict[str, Any]) -> httpx.Response:
    body = {"confirmation_id": call["confirmation_id"], "approved": True}
    return api.http.post(f"/chat/{session_id}/confirm-tool", json=body)


def state(api: Api, session_id: str) -> str:
    return str(api.ok(api.http.get(f"/chat/{session_id}/run"))["state"])


def together(*requests: Any) -> list[httpx.Response]:
    """Send requests at the same moment, and return their responses."""
    barrier = threading.Barrier(len(requests))

    def send(request: Any) -> httpx.Response:
        barrier.wait()
        response: httpx.Response = request()
        return response

    with ThreadPoolExecutor(len(requests)) as pool:
        return [sent.result() for sent in [pool.submit(send, request) for request in requests]]


@cases("name", ["server", "parking"])
def test_stop_ends_a_turn_although_a_decision_continues_it(
    request: pytest.FixtureRequest, name: str
) -> None:
    server: RunningServer = request.getfixturevalue(name)
    api, other = server.client, server.api()
    for number in range(ROUNDS):
        session_id, call = wait(api, f"{name}{number}")
        stopped, decided = together(
            lambda: api.http.post(f"/chat/{session_id}/stop"),  # noqa: B023 - sent in this round
            lambda: decide(other, session_id, call),  # noqa: B023 - sent in this round
        )
        assert stopped.status_code == 200, stopped.text
        assert stopped.json()["state"] in ("stopped", "completed")
        assert decided.status_code in (200, 404, 409), decided.text
        until(lambda: state(api, session_id) in ("stopped", "completed"))  # noqa: B023 - in this round
        assert confirmations(api, session_id) == []


@cases("name", ["server", "parking"])
def test_one_of_several_messages_that_deny_is_answered(
    request: pytest.FixtureRequest, name: str
) -> None:
    server: RunningServer = request.getfixturevalue(name)
    clients = [server.api() for _ in range(4)]
    for number in range(ROUNDS):
        session_id, call = wait(clients[0], f"{name}{number}")

        def send(client: Api, session_id: str = session_id) -> httpx.Response:
            body = {"message": "Hello", "if_waiting": "deny"}
            return client.http.post(f"/chat/{session_id}", json=body)

        decided, *sent = together(
            lambda: decide(clients[0], session_id, call),  # noqa: B023 - sent in this round
            *(lambda client=client: send(client) for client in clients[1:]),
        )
        assert {each.status_code for each in sent} <= {200, 409}, [each.text for each in sent]
        assert decided.status_code in (200, 404, 409), decided.text
        winners = [each for each in (decided, *sent) if each.status_code == 200]
        assert winners, [decided.text, *(each.text for each in sent)]
        for loser in sent:
            if loser.status_code == 409:
                assert loser.json()["error"]["details"]["run_id"]


@cases("name", ["server", "parking"])
def test_client_that_closes_its_stream_and_decides_runs_its_call(
    request: pytest.FixtureRequest, name: str
) -> None:
    server: RunningServer = request.getfixturevalue(name)
    api = server.client
    for number in range(ROUNDS):
        text = f"closed-{name}{number}"
        session_id = api.create_session("mochi", **SETTINGS)["session_id"]
        with api.open_stream(session_id, message_of(text)) as events:
            call = next(event.data for event in events if event.type == ASKED)
        api.ok(decide(api, session_id, call))
        until(lambda: state(api, session_id) == "completed")  # noqa: B023 - in this round
        assert noted(server).count(text) == 1


@cases("park_seconds", [0, 30])
def test_turn_completes_if_its_client_disconnects_right_after_the_decision(
    tmp_path: Path, park_seconds: int
) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.messages[-1].role == "tool":
            return Reply([Text(["one "]), gate, Text(["two"])])
        return None

    write_tools(tmp_path, TOOLS)
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, park_seconds=park_seconds) as server,
    ):
        api, table = server.client, server.app.state.services.turns.table
        session_id = api.create_session("mochi", **SETTINGS)["session_id"]
        with api.open_stream(session_id, message_of("left")) as events:
            call = next(event.data for event in events if event.type == ASKED)
            if not park_seconds:
                until(lambda: not table.running())
            api.ok(decide(api, session_id, call))
        until(lambda: not table.find(session_id).subscribers)
        gate.open()
        until(lambda: state(api, session_id) != "running")
        assert state(api, session_id) == "completed"


@cases("name", ["server", "parking"])
def test_clock_that_jumps_forward_expires_the_list_and_the_decision(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Clock:
        @staticmethod
        def time() -> float:
            return time.time() + 3600

    server: RunningServer = request.getfixturevalue(name)
    session_id, call = wait(server.client, f"clock-{name}")
    monkeypatch.setattr(turn_module, "time", Clock)
    assert confirmations(server.client, session_id) == []
    refused = decide(server.client, session_id, call)
    monkeypatch.undo()
    assert error_of(refused) in ((408, "TOOL_CONFIRMATION_TIMEOUT"), (409, "CONFIRMATION_RESOLVED"))
    server.client.ok(server.client.http.post(f"/chat/{session_id}/stop"))
    assert f"clock-{name}" not in noted(server)


@cases("change", [{"arguments": {"text": "forged"}}, {"tool_name": "other"}, {"call_index": 3}])
def test_approval_of_a_changed_record_runs_no_other_call(
    parking: RunningServer, change: dict[str, Any]
) -> None:
    api, text = parking.client, f"real-{next(iter(change))}"
    session_id, call = wait(api, text)
    until(lambda: not parking.app.state.services.turns.table.running())
    file = parking.settings.resolved_sessions_dir / f"{session_id}.json"
    session = json.loads(file.read_text())
    session["metadata"]["turn"]["approval"] |= change
    file.write_text(json.dumps(session))
    decide(api, session_id, call)
    until(lambda: confirmations(api, session_id) or state(api, session_id) == "completed")
    for _ in range(3):
        for waiting in confirmations(api, session_id):
            decide(api, session_id, waiting)
        with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
            next(read_events(response), None)
        if state(api, session_id) == "completed":
            break
    until(lambda: state(api, session_id) == "completed" or confirmations(api, session_id))
    for waiting in confirmations(api, session_id):
        assert (waiting["tool_name"], waiting["arguments"]) == ("note", {"text": text})
        decide(api, session_id, waiting)
    until(lambda: state(api, session_id) == "completed")
    assert noted(parking).count(text) == 1
    assert "forged" not in noted(parking)
    assert f"other-{text}" not in noted(parking)


@pytest.mark.slow
def test_decision_continues_the_stored_turn_if_another_server_had_taken_the_session(
    shared_stub: StubServer, tmp_path: Path, database: str
) -> None:
    write_tools(tmp_path, TOOLS)
    with (
        RunningServer(tmp_path, shared_stub.url, store_url=database) as server,
        psycopg.connect(database, autocommit=True) as connection,
    ):
        api, decider = server.client, server.api()
        session_id = api.create_session("mochi", **SETTINGS)["session_id"]
        with api.open_stream(session_id, message_of("taken")) as events:
            call = next(event.data for event in events if event.type == ASKED)
            connection.execute("UPDATE sessions SET fence = fence + 1")
            decider.ok(decide(decider, session_id, call))
            ending = [event.type for event in events][-2:]
    assert ending == ["message_complete", "done"]
    assert noted(server) == ["taken"]


@pytest.mark.slow
def test_approved_call_of_an_agent_runs_if_another_server_had_taken_the_session(
    shared_stub: StubServer, tmp_path: Path, database: str
) -> None:
    write_agent(tmp_path)
    with (
        RunningServer(tmp_path, shared_stub.url, store_url=database) as server,
        psycopg.connect(database, autocommit=True) as connection,
    ):
        api, decider = server.client, server.api()
        settings = {"enabled_agents": ["helper"]}
        session_id = api.create_session("mochi", agent_settings=settings)["session_id"]
        does = delegate(words(1), calls("note", text="taken"), words(2))
        with api.open_stream(session_id, nested(does, words(3))) as events:
            call = next(event.data for event in events if event.type == ASKED)
            of_user = "UPDATE sessions SET fence = fence + 1 WHERE session_id = %s"
            connection.execute(of_user, [session_id])
            decider.ok(decide(decider, session_id, call))
            ending = [event.type for event in events][-2:]
    assert ending == ["message_complete", "done"]
    assert agent_notes(tmp_path) == ["taken"]


@pytest.mark.slow
def test_client_of_a_turn_that_waits_stays_connected_if_its_server_has_lost_the_session(
    shared_stub: StubServer, tmp_path: Path, database: str
) -> None:
    write_tools(tmp_path, TOOLS)
    with (
        RunningServer(tmp_path, shared_stub.url, store_url=database) as server,
        psycopg.connect(database, autocommit=True) as connection,
    ):
        api, decider = server.client, server.api()
        session_id = api.create_session("mochi", **SETTINGS)["session_id"]
        with api.open_stream(session_id, message_of("lost")) as events:
            call = next(event.data for event in events if event.type == ASKED)
            connection.execute("UPDATE sessions SET fence = fence + 1")
            process = connection.execute("SELECT name FROM processes").fetchone()
            assert process is not None
            end_holder(connection, lock_key("processes", process[0]))
            until(lambda: not server.app.state.services.turns.table.running())
            decider.ok(decide(decider, session_id, call))
            ending = [event.type for event in events][-2:]
    assert ending == ["message_complete", "done"]
    assert noted(server) == ["lost"]


@pytest.mark.slow
def test_decision_counts_if_its_server_notices_the_loss_of_the_session_while_it_is_stored(
    shared_stub: StubServer, tmp_path: Path, database: str
) -> None:
    write_tools(tmp_path, TOOLS)
    with (
        RunningServer(tmp_path, shared_stub.url, store_url=database) as server,
        psycopg.connect(database) as taker,
        psycopg.connect(database, autocommit=True) as observer,
        ThreadPoolExecutor() as pool,
    ):
        api, decider = server.client, server.api()
        turns = server.app.state.services.turns
        session_id = api.create_session("mochi", **SETTINGS)["session_id"]
        with api.open_stream(session_id, message_of("kept")) as events:
            call = next(event.data for event in events if event.type == ASKED)
            run = turns.table.find(session_id)
            taker.execute("UPDATE sessions SET fence = fence + 1")  # locks the row
            deciding = pool.submit(decide, decider, session_id, call)
            blocked = "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            until(lambda: observer.execute(blocked, [taker.info.backend_pid]).fetchone())
            server.call(lambda: turns.abort_all([session_id]))
            until(lambda: run.control.task_was_cancelled)
            taker.commit()
            decider.ok(deciding.result())
            ending = [event.type for event in events][-2:]
    assert ending == ["message_complete", "done"]
    assert noted(server) == ["kept"]
