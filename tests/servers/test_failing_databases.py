"""Databases that are unreachable, slow, of another version, full, or refuse the login."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from mochi_server.errors import StorageFailed, StorageUnavailable
from mochi_server.storage.postgres.database import (
    _SCHEMA_LOCK,
    RESPONSE_SECONDS,
    Database,
    prepare,
)
from mochi_server.storage.postgres.processes import lock_key
from tests.servers.conftest import Start
from tests.support import postgres
from tests.support.api import Api, error_of, text_of, types_of
from tests.support.cluster import Member
from tests.support.holding import GatedStub
from tests.support.process import run
from tests.support.relay import CuttingRelay
from tests.support.waiting import until

WRONG = "wrong-password"
FULL = """
CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_sessions BEFORE INSERT ON sessions EXECUTE FUNCTION is_full();
CREATE TRIGGER full_messages BEFORE INSERT ON messages EXECUTE FUNCTION is_full();
"""
"""Triggers that raise PostgreSQL's error for a full disk, because not every machine can provide a
small disk.
"""


@pytest.fixture
def relay_to(database: str) -> tuple[CuttingRelay, str]:
    """Return a relay in front of the database and the URL of the relay."""
    port = urlsplit(database).port
    relay = CuttingRelay(f"http://127.0.0.1:{port}")
    return relay, database.replace(f":{port}/", f":{urlsplit(relay.url).port}/")


@pytest.mark.slow
def test_turn_continues_when_the_database_is_lost(
    start: Start, holding: GatedStub, relay_to: tuple[CuttingRelay, str]
) -> None:
    relay, url = relay_to
    with relay, Api(start(store_url=url).url) as api:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            seen = [next(events) for _ in range(3)]
            relay.cut()
            holding.gate.open()
            seen += events
        assert types_of(seen[-2:]) == ["message_complete", "done"]
        assert [message["content"] for message in api.messages(session_id)] == [
            "hold",
            text_of(seen),
        ]
        assert api.send_message(session_id, "Again")["message"]["content"] == "Fine."


@pytest.mark.slow
def test_server_without_the_lock_does_not_write_the_session(
    start: Start, holding: GatedStub, relay_to: tuple[CuttingRelay, str]
) -> None:
    relay, url = relay_to
    with relay, Api(start(store_url=url).url) as loser, Api(start().url) as other:
        session_id = loser.create_session("mochi")["session_id"]
        with loser.open_stream(session_id, "hold") as events:
            next(events)
            relay.set_target("http://127.0.0.1:9")
            relay.cut()
            assert (
                other.send_message(session_id, "Mine now", if_busy="wait")["message"]["content"]
                == "Fine."
            )
            before = other.messages(session_id)
            relay.set_target(f"http://127.0.0.1:{postgres.shared_instance().port}")
            *_, error, done = events
        assert (error.data["code"], done.type) == ("SESSION_CONFLICT", "done")
        assert loser.messages(session_id) == other.messages(session_id) == before
        assert [message["content"] for message in before] == ["hold", "Mine now", "Fine."]


@pytest.mark.slow
def test_server_without_database_is_not_ready(
    start: Start, relay_to: tuple[CuttingRelay, str]
) -> None:
    relay, url = relay_to
    with relay, Api(start(store_url=url).url, timeout=60) as api:
        wait_until_ready(api)
        relay.set_target("http://127.0.0.1:9")
        relay.cut()
        response = api.http.get("/health/ready")
        assert error_of(response) == (503, "NOT_READY")
        assert api.http.get("/health/live").status_code == 200
        with ThreadPoolExecutor() as pool:  # each waits for a while
            creating = pool.submit(api.http.post, "/sessions", json={"model": "mochi"})
            decision = {"confirmation_id": "conf_0123456789", "approved": True}
            deciding = pool.submit(api.http.post, "/chat/0123456789/confirm-tool", json=decision)
            assert {error_of(waiting.result()) for waiting in (creating, deciding)} == {
                (500, "STORAGE_FAILED")
            }


def wait_until_ready(api: Api) -> None:
    until(lambda: api.http.get("/health/ready").status_code == 200)


@pytest.mark.slow
def test_full_database_refuses_changes_and_keeps_stored_state(start: Start, database: str) -> None:
    with Api(start().url) as api, psycopg.connect(database, autocommit=True) as connection:
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        before = api.messages(session_id)
        connection.execute(FULL)
        refused = api.http.post("/sessions", json={"model": "mochi"})
        assert error_of(refused) == (500, "STORAGE_FAILED")
        assert "disk is full" in refused.json()["error"]["message"]
        error, done = list(api.stream_message(session_id, "There is no room for this"))
        assert (error.type, error.data["code"], done.type) == ("error", "STORAGE_FAILED", "done")
        assert api.messages(session_id) == before
        connection.execute(
            "DROP TRIGGER full_sessions ON sessions; DROP TRIGGER full_messages ON messages"
        )
        assert api.send_message(session_id, "Now there is")["message"]["content"] == "Fine."


@pytest.mark.slow
def test_blocked_table_fails_only_requests_that_need_it(start: Start, database: str) -> None:
    with Api(start().url, timeout=60) as api, psycopg.connect(database) as connection:
        session_id = api.create_session("mochi")["session_id"]
        with connection.transaction(force_rollback=True):
            connection.execute("LOCK TABLE messages")
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(api.http.get, f"/sessions/{session_id}")
                assert api.http.get("/health/live").status_code == 200
                assert not waiting.done()
                response = waiting.result()
            assert error_of(response) == (500, "STORAGE_FAILED")
            assert "took too long" in response.json()["error"]["message"]
        assert api.send_message(session_id, "Hello!")["message"]["content"] == "Fine."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("/postgres?", "/no_such?"), "there is no database with that name"),
        (("postgres@", "nobody-here@"), "the database refuses the user or the password"),
        (("postgres@", f"{postgres.LOCKED}@"), "the database refuses the user or the password"),
        (("?options", "?opinions"), "its URL is not a valid PostgreSQL URL"),
        (("127.0.0.1:", "127.0.0.1:x"), "its URL is not a valid PostgreSQL URL"),
    ],
)
async def test_invalid_database_url_is_reported(
    database: str, change: tuple[str, str], reason: str
) -> None:
    with pytest.raises(StorageFailed, match=reason):
        await Database(database.replace(*change, 1)).open(wait_seconds=0)


@pytest.mark.slow
async def test_exhausted_database_connections_are_reported(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        name = f"crowded_{uuid4().hex[:8]}"
        connection.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 0")
        try:
            with pytest.raises(StorageFailed, match="the database has no connections left"):
                await Database(database.replace("postgres@", f"{name}@", 1)).open(wait_seconds=0)
        finally:
            connection.execute(f"DROP ROLE {name}")


async def test_unreachable_database_is_reported() -> None:
    with pytest.raises(StorageFailed, match="the database cannot be reached"):
        await Database("postgresql://me@127.0.0.1:9/x").open(wait_seconds=0)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["40P01", "40001", "25P03"])
async def test_aborted_transaction_may_succeed_later(database: str, state: str) -> None:
    """A deadlock, a conflict with another transaction, and a transaction that was idle."""
    abort = f"DO $$ BEGIN RAISE EXCEPTION 'aborted' USING ERRCODE = '{state}'; END $$"
    opened = Database(database)
    await opened.open()
    try:
        with pytest.raises(StorageUnavailable, match="the database aborted the transaction"):
            async with opened.transaction("write") as connection:
                await connection.execute(abort)
    finally:
        await opened.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("command", [[], ["migrate"]])
def test_unreachable_database_ends_server_with_one_line(tmp_path: Path, command: list[str]) -> None:
    url = f"postgresql://me:{WRONG}@127.0.0.1:9/x"
    code, said = run("mochi_server", *command, cwd=tmp_path, MOCHI_STORE_URL=url)
    assert (code, said) == (
        1,
        "mochi-server: Cannot use the database postgresql://***@127.0.0.1:9/x: the database "
        "cannot be reached.\n",
    )


@pytest.mark.slow
def test_wrong_password_is_reported_and_never_printed(tmp_path: Path) -> None:
    url = postgres.shared_instance().url(postgres.LOCKED, WRONG)
    code, said = run("mochi_server", cwd=tmp_path, MOCHI_STORE_URL=url, MOCHI_LOG_LEVEL="DEBUG")
    reason = "the database refuses the user or the password"
    assert (code, f"/postgres: {reason}." in said) == (1, True)
    assert WRONG not in said


@pytest.mark.slow
def test_newer_schema_is_refused_and_older_is_migrated(tmp_path: Path, database: str) -> None:
    said = run("mochi_server", "migrate", cwd=tmp_path, MOCHI_STORE_URL=database)
    assert said == (0, "mochi-server: the database schema is up to date (version 19)\n")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE processes, runs, idempotency_keys, peer_secret, images, named_images, "
            "webhooks, secrets, usage, versions, version_images, key_turns"
        )
        connection.execute(
            "DROP INDEX sessions_due; ALTER TABLE sessions DROP COLUMN owner, DROP COLUMN tags, "
            "DROP COLUMN pinned, DROP COLUMN archived, DROP COLUMN temporary, "
            "DROP COLUMN expires_at"
        )
        connection.execute(
            "CREATE TABLE requests (); CREATE TABLE parts ()"
        )  # of versions before 5
        connection.execute("DELETE FROM mochi_schema WHERE version > 1")
        assert run("mochi_server", "migrate", cwd=tmp_path, MOCHI_STORE_URL=database) == said
        assert connection.execute(
            "SELECT to_regclass('requests'), to_regclass('parts')"
        ).fetchone() == (None, None)
        connection.execute("INSERT INTO mochi_schema VALUES (1000, now())")
    code, refused = run("mochi_server", cwd=tmp_path, MOCHI_STORE_URL=database)
    assert (code, refused.count("\n")) == (1, 1)
    assert (
        "schema has version 1000, but this mochi-server supports only versions up to 19" in refused
    )


@pytest.mark.slow
def test_current_schema_needs_no_privilege_to_create(
    start: Start, tmp_path: Path, database: str
) -> None:
    migrate = ("mochi_server", "migrate")
    migrated = run(*migrate, cwd=tmp_path, MOCHI_STORE_URL=database)
    role = f"writer_{uuid4().hex[:12]}"
    url = database.replace("//postgres@", f"//{role}@")
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("SELECT current_schema()").fetchone()
        assert row is not None
        (schema,) = row
        connection.execute(
            f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; "
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
        )
        try:
            assert run(*migrate, cwd=tmp_path, MOCHI_STORE_URL=url) == migrated
            with Api(start(store_url=url).url) as api:
                assert api.create_session("mochi")["session_id"]
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.slow
def test_schemas_of_one_search_path_have_their_own_sessions(start: Start, database: str) -> None:
    _, first_schema = database.split("search_path%3D")
    with Api(start(store_url=database).url) as first:
        first.create_session("mochi")
    with postgres.fresh_schema(postgres.shared_instance().url()) as url:
        second = start(store_url=f"{url},{first_schema}")
        with Api(second.url) as api:
            assert api.ok(api.http.get("/sessions"))["sessions"] == []
        second.kill()


@pytest.mark.slow
async def test_migration_waits_longer_than_other_statements(database: str) -> None:
    """Another server migrates the schema of a large database, and this one waits for its lock."""
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT pg_advisory_xact_lock(%s)", [_SCHEMA_LOCK])
        migrating = asyncio.ensure_future(prepare(database))
        ended, _ = await asyncio.wait([migrating], timeout=RESPONSE_SECONDS + 1)
        assert not ended
        await other.rollback()
        assert await migrating == 19


@pytest.mark.slow
def test_workers_need_a_database(tmp_path: Path) -> None:
    code, said = run("mochi_server", "--workers", "2", cwd=tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    assert "MOCHI_STORE_URL=postgresql://" in said


@pytest.mark.slow
def test_reconnecting_server_answers_requests_about_its_turn(
    a: Api, b: Api, servers: tuple[Member, Member], database: str
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with (
        a.open_stream(session_id, "hold") as events,
        psycopg.connect(database, autocommit=True) as connection,
    ):
        received = [next(events)]
        disconnect(connection, servers[0])
        assert b.ok(b.http.get(f"/chat/{session_id}/run"))["state"] == "running"
        assert b.ok(b.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
        received += events
    assert types_of(received[-2:]) == ["stopped", "done"]


def disconnect(connection: psycopg.Connection[tuple[str]], member: Member) -> None:
    """End the connection that holds the locks of a server."""
    row = connection.execute("SELECT name FROM processes WHERE url = %s", [member.url]).fetchone()
    assert row is not None
    postgres.end_holder(connection, lock_key("processes", row[0]))
