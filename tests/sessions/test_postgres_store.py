"""PostgreSQL store beyond the common contract: notifications, crash recovery, clocks and copies."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import orjson
import psycopg
import pytest
from psycopg import sql

from mochi_server.cli.store_copy import content_of, copy
from mochi_server.cli.store_copy import open_stores as open_place
from mochi_server.constants import FORMAT_VERSION
from mochi_server.errors import SessionBusy, SessionNotFound, SessionTooNew, StorageFailed
from mochi_server.sessions import (
    ChatSession,
    FileSessionStore,
    Image,
    SessionManager,
    SessionQuery,
)
from mochi_server.sessions.change import Change, Notice, VersionChange
from mochi_server.sessions.session import user_message
from mochi_server.sessions.store import Stores
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import ImageReference, ToolCall, UnfinishedCalls
from mochi_server.storage.postgres.database import Database, fetch_one
from mochi_server.storage.postgres.processes import RECENT_SECONDS, SILENT_SECONDS, lock_key
from mochi_server.storage.postgres.store import PostgresStores
from mochi_server.util.clock import new_id, now, timestamp
from tests.benchmarks.database import turn_costs
from tests.sessions.samples import appended, assistant, contents, new_session, stored_session, user
from tests.support.images import PNG
from tests.support.postgres import Postgres, end_holder, private_cluster

pytestmark = pytest.mark.slow


@asynccontextmanager
async def open_stores(url: str) -> AsyncIterator[PostgresStores]:
    stores = PostgresStores(url)
    await stores.open()
    try:
        yield stores
    finally:
        await stores.aclose()


@asynccontextmanager
async def open_database(url: str) -> AsyncIterator[Database]:
    opened = Database(url)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.aclose()


async def test_history_changed_by_another_process_is_read_anew(database: str) -> None:
    async with open_stores(database) as here, open_stores(database) as there:
        session_id = (
            await stored_session(here.chats, user("a"), assistant("b"), user("c"))
        ).session_id
        await there.chats.load(session_id)
        await here.chats.write(session_id, Change([assistant("B")], start=1))
        assert contents(await there.chats.load(session_id)) == ["a", "B"]
        await here.chats.write(session_id, Change([user("d"), assistant("e")]))
        await here.chats.write(session_id, Change([assistant("E"), user("f")], start=3))
        assert contents(await there.chats.load(session_id)) == ["a", "B", "d", "E", "f"]
        await here.chats.delete(session_id)
        fresh = new_session()
        fresh.metadata.session_id = session_id
        await here.chats.create(fresh)
        assert contents(await there.chats.load(session_id)) == []


async def test_session_of_a_later_version_is_kept_and_not_listed(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_stores(database) as stores, open_database(database) as other:
        listed, later = [
            (await stored_session(stores.chats, user(text))).session_id for text in ("a", "aa")
        ]
        for session_id in (listed, later):
            await stores.chats.patch(session_id, {"tags": ["t"]})
        async with other.transaction("write as a later version") as connection:
            statement = """UPDATE sessions SET metadata = replace(metadata, '"1.4"', '"9.0"') WHERE session_id = %s"""
            await connection.execute(statement, [later])
        for operation in (stores.chats.delete, stores.chats.load):
            with pytest.raises(SessionTooNew):
                await operation(later)
        for query in (SessionQuery(), SessionQuery(text="a"), SessionQuery(limit=1)):
            page = await stores.chats.list(query)
            assert [entry["session_id"] for entry in page.entries] == [listed]
            assert page.total == 1
        assert await stores.chats.count_tags(SessionQuery()) == {"t": 1}
    assert "omitted" not in caplog.text


async def definition(database: Database, index: str) -> str:
    """Return the statement that creates an index."""
    async with database.connection("read the schema") as connection:
        statement = "SELECT pg_get_indexdef(%s::text::regclass)"
        row = await fetch_one(connection, statement, [index])
    assert row is not None
    return str(row[0])


async def test_index_of_later_versions_has_those_after_the_version_of_this_server(
    database: str,
) -> None:
    async with open_stores(database), open_database(database) as other:
        created = await definition(other, "sessions_of_later_versions")
    version = FORMAT_VERSION.replace(".", ",")
    assert f"> '{{{version}}}'" in created


async def test_session_in_transaction_of_frozen_process_can_be_deleted(database: str) -> None:
    async with open_stores(database) as stores, open_database(database) as frozen:
        session_id = (await stored_session(stores.chats, user("a"))).session_id
        with suppress(StorageFailed):  # the database ends the transaction
            async with frozen.transaction("freeze") as connection:
                await fetch_one(connection, "SELECT 1 FROM sessions FOR UPDATE")
                with anyio.fail_after(2 * SILENT_SECONDS):
                    await stores.chats.delete(session_id)
        with pytest.raises(SessionNotFound):
            await stores.chats.load(session_id)


async def test_partial_answer_is_stored_after_its_process_ended(database: str) -> None:
    async with open_stores(database) as here:
        session = await stored_session(here.chats, user("a"))
        async with open_stores(database) as there:
            hold = there.chats.hold(session.session_id, run_id="r")
            await hold.__aenter__()
            await there.chats.write(session.session_id, Change(partial=assistant("so f")))
            assert contents(await here.chats.load(session.session_id)) == ["a"]
            with pytest.raises(SessionBusy):
                async with here.chats.hold(session.session_id, run_id="s"):
                    pass
        loaded = await here.chats.load(session.session_id)
        assert contents(loaded) == ["a", "so f"]
        assert dict(loaded.messages[-1])["interrupted"]
        assert (await here.chats.list(SessionQuery())).entries[0]["message_count"] == 2


async def test_turn_of_a_reconnecting_process_is_not_due(database: str) -> None:
    async with open_stores(database) as here:
        session_id = (await stored_session(here.chats, user("a"))).session_id
        async with open_stores(database) as there:
            hold = there.chats.hold(session_id, run_id="r")
            await hold.__aenter__()
            await there.chats.write(session_id, Change(turn=StoredTurn(["r"])))
            with psycopg.connect(database, autocommit=True) as connection:
                end_holder(connection, lock_key("chats", session_id))
            assert await here.chats.due_turns(math.inf) == {}
        with anyio.fail_after(60):  # it is due when the process could have reconnected
            while [*await here.chats.due_turns(math.inf)] != [session_id]:  # noqa: ASYNC110 - the store has no event
                await anyio.sleep(0.05)


async def test_turn_of_another_process_is_not_due_right_after_a_crash_of_the_database() -> None:
    """The crash empties the table of processes."""
    with private_cluster() as cluster:
        async with open_stores(cluster.url()) as here:
            session_id = (await stored_session(here.chats, user("a"))).session_id
            async with open_stores(cluster.url()) as there:
                hold = there.chats.hold(session_id, run_id="r")
                await hold.__aenter__()
                await there.chats.write(session_id, Change(turn=StoredTurn(["r"])))
                cluster.stop("immediate")
            cluster.start()
            due, age = await due_turns_and_age(here, cluster)
            while age >= RECENT_SECONDS:  # the machine is busy
                cluster.stop("immediate")
                cluster.start()
                due, age = await due_turns_and_age(here, cluster)
            assert due == []


async def due_turns_and_age(stores: PostgresStores, cluster: Postgres) -> tuple[list[str], float]:
    """Return the sessions whose turns are due once the database can be reached, and for how many
    seconds it had run then.
    """
    with anyio.fail_after(60):
        due = await due_turns(stores)
        while due is None:
            await anyio.sleep(0.01)
            due = await due_turns(stores)
    age = "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float"
    with psycopg.connect(cluster.url()) as connection:
        row = connection.execute(age).fetchone()
    assert row is not None
    return due, row[0]


async def due_turns(stores: PostgresStores) -> list[str] | None:
    """Return the sessions whose turns are due, or None while the database cannot be reached."""
    with suppress(StorageFailed):
        return [*await stores.chats.due_turns(math.inf)]
    return None


async def test_idempotency_key_of_a_claimant_that_has_died_is_claimed(database: str) -> None:
    async with open_stores(database) as here:
        session_id = (await stored_session(here.chats, user("a"))).session_id
        async with open_stores(database) as there:
            claimant = await here.peers.find(there.peers.name)
        assert claimant is not None
        with anyio.fail_after(60):
            while await here.peers.find(claimant.name):  # noqa: ASYNC110 - the store has no event
                await anyio.sleep(0.05)
            assert await here.peers.claim_key(session_id, "k1", claimant) is None
        async with open_stores(database) as third:
            owner = await third.peers.key_owner(session_id, "k1")
        assert owner is not None
        assert owner.name == here.peers.name


async def test_open_tool_calls_get_results_after_process_ended(database: str) -> None:
    later: ToolCall = {"id": "call_2", "function": {"index": 1, "name": "add", "arguments": {}}}
    result: UnfinishedCalls = {
        "role": "tool",
        "content": "",
        "tool_name": "wait",
        "tool_call_id": "call_1",
        "message_id": new_id(),
        "timestamp": now(),
        "tool_calls": [later],
    }
    async with open_stores(database) as here:
        session = await stored_session(here.chats, user("a"))
        async with open_stores(database) as there:
            hold = there.chats.hold(session.session_id, run_id="r")
            await hold.__aenter__()
            await there.chats.write(session.session_id, Change(partial=result))
            assert contents(await here.chats.load(session.session_id)) == ["a"]
        results = [dict(m) for m in (await here.chats.load(session.session_id)).messages[1:]]
    assert [(m["tool_name"], m["tool_call_id"], m["interrupted"]) for m in results] == [
        ("wait", "call_1", True),
        ("add", "call_2", True),
    ]


async def test_times_are_those_of_the_database(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    ahead = (datetime.now(timezone.utc) + timedelta(days=400)).isoformat()
    monkeypatch.setattr("mochi_server.sessions.session.now", lambda: ahead)
    async with open_stores(database) as stores:
        session = await stores.chats.create(new_session())
        changed = await appended(stores.chats, session.session_id, [user("a")])
    for moment in (session.metadata.created_at, changed.metadata.updated_at):
        assert 0 <= timestamp(moment) - row[0].timestamp() < 60


async def test_text_that_postgresql_cannot_store_is_kept(database: str) -> None:
    async with open_stores(database) as stores:
        session = await stored_session(stores.chats, user("a\0b"), assistant("\0"))
        await stores.chats.patch(session.session_id, {"options": {"stop": ["\0t"]}})
        loaded = await stores.chats.load(session.session_id)
        assert contents(loaded) == ["a\0b", "\0"]
        assert loaded.metadata.options == {"stop": ["\0t"]}
        assert (await stores.chats.list(SessionQuery(text="b"))).total == 1


async def test_agent_chats_and_sessions_are_separate(database: str) -> None:
    async with open_stores(database) as stores:
        session = await stores.agents.create(new_session())
        assert (await stores.chats.list(SessionQuery())).total == 0
        assert (await stores.agents.load(session.session_id)).session_id == session.session_id


async def test_turn_of_a_cached_long_session_touches_few_rows(database: str) -> None:
    first, later = await turn_costs(database, 1000, 1)
    assert first.read > 1000
    assert later.read < 100
    assert max(first.written, later.written) < 30


async def test_sessions_move_to_the_database_and_back_unchanged(
    tmp_path: Path, database: str
) -> None:
    manager = SessionManager(tmp_path / "here" / "chat_sessions")
    sessions = []
    for number in range(5):
        session = new_session(system_prompt="Be brief." if number % 2 else None)
        session.metadata.extra["unknown"] = {"key": [1, 2.5, None, "\0"]}
        session.messages += [user(f"{number} \U0001f600"), assistant("b")]
        session.extra["beside"] = number
        sessions.append(await _put(tmp_path / "here" / "chat_sessions", session))
    agents = await _put(tmp_path / "here" / "agents" / "agent_chats", new_session())

    steps: list[tuple[int, int]] = []
    first = await copy(str(tmp_path / "here"), database, lambda *step: steps.append(step))
    manager.append_messages(sessions[0], [user("later")])
    again = await copy(str(tmp_path / "here"), database, lambda *_: None)
    back = await copy(database, str(tmp_path / "there"), lambda *_: None)

    assert steps == [(done, 6) for done in range(1, 7)]
    assert (first.copied, first.existing, first.different) == (6, 0, [])
    assert (again.copied, again.existing, again.different) == (1, 5, [])
    assert (back.copied, back.messages) == (6, again.messages)
    for session_id in sessions:
        moved = SessionManager(tmp_path / "there" / "chat_sessions").load_session(session_id)
        assert content_of(moved) == content_of(manager.load_session(session_id))
    assert SessionManager(tmp_path / "there" / "agents" / "agent_chats").load_session(agents)
    async with open_stores(database) as stores:
        await stores.chats.patch(sessions[1], {"title": "newer"})
    assert (await copy(str(tmp_path / "here"), database, lambda *_: None)).different == [
        sessions[1]
    ]


async def test_copy_does_not_change_the_source_database(tmp_path: Path, database: str) -> None:
    async with open_stores(database) as stores:
        session_id = (await stored_session(stores.chats, user("a"))).session_id
    partial = {"role": "assistant", "content": "so f", "message_id": new_id(), "timestamp": now()}
    with psycopg.connect(database, autocommit=True) as connection:
        values = [orjson.dumps(partial).decode(), session_id]
        statement = "INSERT INTO partials SELECT key, %s, 1 FROM sessions WHERE session_id = %s"
        connection.execute(statement, values)
        processes = rows_of(connection, "processes")
        before = [rows_of(connection, table) for table in ("sessions", "messages", "partials")]

        assert (await copy(database, str(tmp_path), lambda *_: None)).copied == 1
        after = [rows_of(connection, table) for table in ("sessions", "messages", "partials")]
        assert after == before
        assert rows_of(connection, "processes") == processes
        moved = SessionManager(tmp_path / "chat_sessions").load_session(session_id)
        assert contents(moved) == ["a", "so f"]

        connection.execute("DELETE FROM mochi_schema WHERE version > 18")
        with pytest.raises(StorageFailed, match="its schema has version 18"):
            await copy(database, str(tmp_path), lambda *_: None)
        connection.execute("DROP TABLE mochi_schema")
        with pytest.raises(StorageFailed, match="its schema has version 0"):
            await copy(database, str(tmp_path), lambda *_: None)


def rows_of(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> list[tuple[Any, ...]]:
    statement = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table))
    return connection.execute(statement).fetchall()


async def test_versions_and_their_images_move_to_the_database_and_back(
    tmp_path: Path, database: str
) -> None:
    picture = Image.of(PNG)
    directory = tmp_path / "here" / "chat_sessions"
    store = FileSessionStore(directory)
    session = await store.create(new_session())
    session_id = session.session_id
    look = user_message("Look", [picture])
    await store.write(session_id, Change([look, assistant("1")], images=[picture]))
    await store.write(session_id, Change([user("other")], start=0, versions=VersionChange()))
    versions = await store.load_versions(session_id)
    await store.aclose()
    assert (await copy(str(tmp_path / "here"), database, lambda *_: None)).copied == 1
    assert (await copy(str(tmp_path / "here"), database, lambda *_: None)).existing == 1
    assert (await copy(database, str(tmp_path / "there"), lambda *_: None)).copied == 1
    moved = FileSessionStore(tmp_path / "there" / "chat_sessions")
    assert await moved.load_versions(session_id) == versions
    assert await moved.load_image(picture.sha256) == PNG
    await moved.aclose()


async def test_undelivered_webhooks_move_to_the_database_and_back(
    tmp_path: Path, database: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir()
    async with open_place(str(here)) as stores:
        session_id = (await stored_session(stores.chats, user("a"))).session_id
        notices = [Notice(f"msg_{number}", session_id, "{}") for number in range(2)]
        damaged = Notice("\0", session_id, "{}")
        await stores.chats.write(session_id, Change([assistant("b")], notices=[damaged, *notices]))
    assert (await copy(str(here), database, lambda *_: None)).copied == 1
    assert (await copy(database, str(there), lambda *_: None)).copied == 1
    for place in (database, str(there)):
        async with open_place(place) as stores:
            assert await _deliver(stores) == notices
    for source, target in ((here, database), (database, there)):
        assert (await copy(str(source), str(target), lambda *_: None)).existing == 1
        async with open_place(str(target)) as stores:
            assert await _deliver(stores) == []


async def _deliver(stores: Stores) -> list[Notice]:
    """Remove all webhooks in their order, as after their delivery, and return them."""
    delivered = []
    notice = await stores.webhooks.claim(60)
    while notice is not None:
        delivered.append(notice)
        await stores.webhooks.remove(notice.webhook_id)
        notice = await stores.webhooks.claim(60)
    return delivered


async def test_copy_continues_without_a_lost_image(tmp_path: Path, database: str) -> None:
    lost: ImageReference = {"sha256": "0" * 64, "media_type": "image/png"}
    session = new_session()
    message = user("Look")
    message["images"] = [lost]
    session.messages.append(message)
    session_id = await _put(tmp_path / "chat_sessions", session)
    await _put(tmp_path / "chat_sessions", new_session())
    assert (await copy(str(tmp_path), database, lambda *_: None)).copied == 2
    async with open_stores(database) as stores:
        assert dict((await stores.chats.load(session_id)).messages[0])["images"] == [lost]


async def _put(directory: Path, session: ChatSession) -> str:
    store = FileSessionStore(directory)
    try:
        return (await store.put(session)).session_id
    finally:
        await store.aclose()
