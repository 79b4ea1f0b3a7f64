"""Writes of the lock holder of a PostgreSQL session after a database outage."""

import pytest

from mochi_server.errors import SessionTaken
from mochi_server.sessions.change import Change
from mochi_server.storage.postgres.store import PostgresSessionStore
from tests.sessions.conftest import postgres_store
from tests.sessions.samples import assistant, contents, stored_session, user

pytestmark = pytest.mark.slow

ANSWER = assistant("so far and further")


async def test_write_with_a_lost_commit_response_can_be_repeated(database: str) -> None:
    async with postgres_store(database) as holder, postgres_store(database) as unnoticed:
        session = await stored_session(holder, user("a"))
        async with holder.hold(session.session_id, run_id="r"):
            await unnoticed.write(session.session_id, Change([ANSWER]))
            await holder.write(session.session_id, Change([ANSWER]))
            await holder.write(session.session_id, Change([user("b")]))
        assert contents(await holder.load(session.session_id)) == ["a", "so far and further", "b"]


async def test_replacement_with_a_lost_commit_can_be_repeated(database: str) -> None:
    async with postgres_store(database) as holder, postgres_store(database) as unnoticed:
        session = await stored_session(holder, user("a"), assistant("old"))
        async with holder.hold(session.session_id, run_id="r"):
            for store in (unnoticed, holder):
                await store.write(
                    session.session_id, Change([ANSWER], start=1, revision=session.revision)
                )
        assert contents(await holder.load(session.session_id)) == ["a", "so far and further"]


async def test_final_answer_replaces_recovered_text(database: str) -> None:
    async with postgres_store(database) as holder, postgres_store(database) as other:
        session_id = (await stored_session(holder, user("a"))).session_id
        async with holder.hold(session_id, run_id="r"):
            await holder.write(session_id, Change(partial=assistant("so far")))
            await without_lock(holder, session_id)
            await other.recover_all_crashed()
            assert contents(await other.load(session_id)) == ["a", "so far"]
            await holder.write(session_id, Change(partial=assistant("so far and")))
            await other.recover_all_crashed()
            assert contents(await other.load(session_id)) == ["a", "so far and"]
            await holder.write(session_id, Change([ANSWER]))
        assert contents(await other.load(session_id)) == ["a", "so far and further"]


async def test_session_locked_by_another_server_is_not_written(database: str) -> None:
    async with postgres_store(database) as holder, postgres_store(database) as other:
        session_id = (await stored_session(holder, user("a"))).session_id
        async with holder.hold(session_id, run_id="r"):
            await holder.write(session_id, Change(partial=assistant("so far")))
            await without_lock(holder, session_id)
            async with other.hold(session_id):
                pass
            for change in (Change([ANSWER]), Change(partial=ANSWER)):
                with pytest.raises(SessionTaken):
                    await holder.write(session_id, change)
        assert contents(await other.load(session_id)) == ["a", "so far"]


async def test_partial_text_without_a_final_message_is_recovered(database: str) -> None:
    async with postgres_store(database) as holder:
        session_id = (await stored_session(holder, user("a"))).session_id
        async with holder.hold(session_id, run_id="r"):
            await holder.write(session_id, Change(partial=assistant("so far")))
        (_, partial) = (await holder.load(session_id)).messages
        assert (partial["content"], dict(partial)["interrupted"]) == ("so far", True)


async def without_lock(store: PostgresSessionStore, session_id: str) -> None:
    """Release the session's lock, as an outage does."""
    await store._process.release(store._key(session_id))
