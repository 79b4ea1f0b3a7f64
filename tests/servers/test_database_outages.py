"""Turns while PostgreSQL is stopped, restarted or locked."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from mochi_server.storage.postgres.database import RESPONSE_SECONDS
from mochi_server.storage.postgres.processes import SILENT_SECONDS
from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.servers.conftest import Start
from tests.support import postgres
from tests.support.api import Api, Event, error_of, text_of, types_of
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct
from tests.support.keys import headers, write_keys
from tests.support.postgres import Postgres
from tests.support.tools import write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.slow

WHOLE = "one two three four"
NOTE = '''
    def note() -> str:
        """Write a line."""
        return "Noted."

    __all__ = ["note"]
'''


@pytest.fixture
def cluster() -> Iterator[Postgres]:
    with postgres.private_cluster() as cluster:
        yield cluster


def endings(events: list[Event]) -> list[tuple[str, str | None]]:
    """Return the types of the last two events, with the code of an error."""
    return [(event.type, event.data.get("code")) for event in events[-2:]]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
@pytest.mark.parametrize("seconds", [2.5, 4])
def test_answer_survives_a_database_restart(
    start: Start, holding: GatedStub, cluster: Postgres, seconds: float, mode: str
) -> None:
    with Api(start(store_url=cluster.url()).url, timeout=60) as api:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            received = [next(events) for _ in range(3)]
            cluster.stop(mode)
            starting = threading.Timer(seconds, cluster.start)
            starting.start()
            holding.gate.open()
            received += events
            starting.join()
        assert text_of(received) == WHOLE
        assert endings(received) == [("message_complete", None), ("done", None)]
        said, answer = api.messages(session_id)
        assert (said["content"], answer["content"], answer.get("interrupted")) == (
            "hold",
            WHOLE,
            None,
        )
        assert api.send_message(session_id, "Again")["message"]["content"] == "Fine."


def test_turn_that_is_compacted_during_an_outage_continues(start: Start, cluster: Postgres) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply:
        is_compaction = prompt.messages[0].role == "system"
        return Reply([gate, Text("They said x.")]) if is_compaction else Reply.of("Fine.")

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        Api(
            start(stub.url, store_url=cluster.url(), summarization_enabled=False).url, timeout=60
        ) as api,
    ):
        session_id = api.create_session("mochi-chat")["session_id"]
        for _ in range(4):
            api.send_message(session_id, "x" * 1400)
        with api.open_stream(session_id, "x" * 1400) as events:
            stub.wait_for(
                lambda exchanges: (
                    exchanges[-1].path == "/api/chat" and exchanges[-1].outcome == "running"
                )
            )
            cluster.stop()
            until(lambda: api.http.get("/health/ready").status_code == 503)
            gate.open()
            starting = threading.Timer(1, cluster.start)
            starting.start()
            received = list(events)
            starting.join()
        assert "context_compacted" in types_of(received)
        assert endings(received) == [("message_complete", None), ("done", None)]


@pytest.mark.parametrize("remember", ["once", "session"])
def test_call_that_is_approved_during_an_outage_runs(
    start: Start, cluster: Postgres, tmp_path: Path, remember: str
) -> None:
    write_tools(tmp_path, NOTE)
    with (
        StubServer(speed=0) as stub,
        Api(start(stub.url, store_url=cluster.url()).url, timeout=60) as api,
    ):
        session_id = api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        with api.open_stream(session_id, instruct(calls("note"))) as events:
            received = [
                next(event for event in events if event.type == "tool_call_confirmation_required")
            ]
            cluster.stop()
            until(lambda: api.http.get("/health/ready").status_code == 503)
            confirmation_id = received[0].data["confirmation_id"]
            decision = {"confirmation_id": confirmation_id, "approved": True, "remember": remember}
            starting = threading.Timer(2, cluster.start)
            starting.start()
            api.ok(
                api.http.post(f"/chat/{session_id}/confirm-tool", json=decision)
            )  # responds when it is stored
            received += events
            starting.join()
        (result,) = (event for event in received if event.type == "tool_result")
        assert result.data["success"]
        assert endings(received) == [("message_complete", None), ("done", None)]
        approved = ["note"] if remember == "session" else None
        assert api.session(session_id)["tool_settings"].get("approved_tools") == approved


def test_answer_survives_locked_tables(start: Start, holding: GatedStub, database: str) -> None:
    with Api(start().url, timeout=60) as api, psycopg.connect(database) as connection:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            received = [next(events) for _ in range(3)]
            connection.execute("LOCK TABLE sessions, messages, partials IN ACCESS EXCLUSIVE MODE")
            holding.gate.open()
            release = threading.Timer(20, connection.rollback)  # longer than the statement timeout
            release.start()
            received += events
            release.join()
        assert endings(received) == [("message_complete", None), ("done", None)]
        assert [message["content"] for message in api.messages(session_id)] == ["hold", WHOLE]


def test_client_gets_an_error_for_an_unstored_answer(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    with Api(start(store_url=cluster.url(), store_retry_seconds=1).url, timeout=60) as api:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            received = [next(events) for _ in range(3)]
            cluster.stop()
            holding.gate.open()
            received += events
        assert endings(received) == [("error", "STORAGE_FAILED"), ("done", None)]


def test_turn_that_ends_during_an_outage_no_longer_counts(
    start: Start, holding: GatedStub, cluster: Postgres, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.yaml", one={"turns_at_a_time": 1})
    server = start(store_url=cluster.url(), store_retry_seconds=1, api_keys_file=str(keys))
    with Api(server.url, headers=headers("one"), timeout=60) as api:
        session_id, other = (api.create_session("mochi")["session_id"] for _ in range(2))
        with api.open_stream(session_id, "hold") as events:
            next(events)
            cluster.stop("fast")  # unlike a crash, it keeps the counts
            until(lambda: api.http.get("/health/ready").status_code == 503)
            holding.gate.open()
            assert list(events)[-1].type == "done"
        cluster.start()
        body = {"message": "Hello"}
        until(lambda: api.http.post(f"/chat/{other}", json=body).status_code == 200)


def test_stopped_turn_reports_that_its_text_is_not_stored(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    with Api(start(store_url=cluster.url(), store_retry_seconds=1).url, timeout=60) as api:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events, ThreadPoolExecutor(1) as pool:
            received = [next(events) for _ in range(3)]
            cluster.stop("fast")
            stopping = pool.submit(api.http.post, f"/chat/{session_id}/stop")
            received += events
            stopping.result()
        assert endings(received) == [("error", "STORAGE_FAILED"), ("done", None)]
        assert len(holding.chats("cancelled")) == 1


def test_stopped_turn_stores_its_text_after_an_outage(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    with Api(start(store_url=cluster.url()).url, timeout=60) as api:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events, ThreadPoolExecutor(1) as pool:
            received = [next(events) for _ in range(3)]
            cluster.stop("fast")
            stopping = pool.submit(api.http.post, f"/chat/{session_id}/stop")
            assert len(holding.chats("cancelled")) == 1
            cluster.start()
            received += events
            assert stopping.result().json()["state"] == "stopped"
        assert endings(received) == [("stopped", None), ("done", None)]
        said, answer = api.messages(session_id)
        assert said["content"] == "hold"
        assert (answer["content"], answer["interrupted"]) == (text_of(received), True)


def test_shutdown_stores_answers_within_its_grace_period(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    server = start(store_url=cluster.url(), shutdown_grace_seconds=60)
    with Api(server.url, timeout=60) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            received = [next(events) for _ in range(3)]
            cluster.stop("fast")
            holding.gate.open()
            stopping = pool.submit(server.stop)
            threading.Timer(2, cluster.start).start()
            received += events
        stopping.result()
    assert endings(received) == [("message_complete", None), ("done", None)]
    with Api(start(store_url=cluster.url()).url) as api:
        assert [message["content"] for message in api.messages(session_id)] == ["hold", WHOLE]


def test_shutdown_without_the_database_reports_lost_answers(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    server = start(store_url=cluster.url(), shutdown_grace_seconds=1)
    with Api(server.url, timeout=60) as api, ThreadPoolExecutor(1) as pool:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            received = [next(events) for _ in range(3)]
            cluster.stop("fast")
            until(lambda: api.http.get("/health/ready").status_code == 503)
            holding.gate.open()
            stopping = pool.submit(server.stop)
            received += events
        stopping.result()
    assert endings(received) == [("error", "STORAGE_FAILED"), ("done", None)]


def test_frozen_database_delays_requests_for_a_limited_time(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    """A frozen database, for example in a paused container, still acknowledges what it receives."""
    with (
        Api(start(store_url=cluster.url(), store_retry_seconds=1).url, timeout=60) as api,
        ThreadPoolExecutor(3) as pool,
    ):
        busy, idle = (api.create_session("mochi")["session_id"] for _ in range(2))
        with api.open_stream(busy, "hold") as events:
            received = [next(events) for _ in range(3)]
            began = time.monotonic()
            with cluster.frozen():
                holding.gate.open()
                reading = pool.submit(api.http.get, f"/sessions/{idle}")
                sending = pool.submit(api.http.post, f"/chat/{idle}", json={"message": "Hi"})
                probing = pool.submit(api.http.get, "/health/ready")
                assert (
                    error_of(reading.result())
                    == error_of(sending.result())
                    == (500, "STORAGE_FAILED")
                )
                assert error_of(probing.result()) == (503, "NOT_READY")
                received += events
                assert time.monotonic() - began < 3 * RESPONSE_SECONDS
        assert endings(received) == [("error", "STORAGE_FAILED"), ("done", None)]
        until(lambda: api.http.get("/health/ready").status_code == 200)
        for session_id in (busy, idle):
            assert api.send_message(session_id, "Again")["message"]["content"] == "Fine."


def test_read_only_database_makes_servers_not_ready_and_hides_no_turn(
    start: Start, holding: GatedStub, cluster: Postgres
) -> None:
    with (
        Api(start(store_url=cluster.url()).url) as a,
        Api(start(store_url=cluster.url()).url) as b,
        psycopg.connect(cluster.url(), autocommit=True) as connection,
    ):
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events:
            next(events)
            connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            connection.execute("SELECT pg_reload_conf()")
            until(lambda: a.http.get("/health/ready").status_code == 503)
            assert error_of(a.http.get("/health/ready")) == (503, "NOT_READY")
            assert "the database is read-only" in a.http.get("/health/ready").text
            age = "SELECT max(seen) < clock_timestamp() - %s * interval '1 s' FROM processes"
            until(lambda: connection.execute(age, [SILENT_SECONDS]).fetchone() == (True,))
            assert b.ok(b.http.get(f"/chat/{session_id}/run"))["state"] == "running"
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")
            holding.gate.open()
            assert endings(list(events)) == [("message_complete", None), ("done", None)]
        until(lambda: a.http.get("/health/ready").status_code == 200)
