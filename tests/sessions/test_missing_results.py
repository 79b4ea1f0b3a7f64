"""Tool calls without a result: after a crash and in stored sessions they get interrupted
results.
"""

import shutil
from pathlib import Path

import pytest

from mochi_server.sessions import (
    AssistantMessage,
    ChatSession,
    FileSessionStore,
    Message,
    SessionManager,
    SessionStore,
)
from mochi_server.sessions.change import Change
from mochi_server.sessions.history import History, with_missing_results
from mochi_server.sessions.types import UnfinishedCalls
from mochi_server.util.clock import new_id, now
from tests.sessions.conftest import postgres_store
from tests.sessions.samples import appended, assistant, file_of, new_session, stored_session, user
from tests.support.cases import cases


def calling(*ids: str, client_tool_calls: list[str] | None = None) -> AssistantMessage:
    message = assistant("")
    message["tool_calls"] = [
        {"id": name, "function": {"index": i, "name": "look", "arguments": {}}}
        for i, name in enumerate(ids)
    ]
    if client_tool_calls is not None:
        message["client_tool_calls"] = client_tool_calls
    return message


def result(call_id: str, *following: str) -> UnfinishedCalls:
    """Return a tool result. As a checkpoint it also has the following calls."""
    message: UnfinishedCalls = {
        "role": "tool",
        "content": "seen",
        "tool_name": "look",
        "tool_call_id": call_id,
        "message_id": new_id(),
        "timestamp": now(),
    }
    if following:
        message["tool_calls"] = calling(*following)["tool_calls"]
    return message


def roles(session: ChatSession) -> list[str]:
    return [message["role"] for message in session.messages]


def results(session: ChatSession) -> list[tuple[str, bool]]:
    """Return the ids of calls with a result, and whether the result is interrupted."""
    found = [message for message in session.messages if message["role"] == "tool"]
    return [(message["tool_call_id"], message.get("interrupted", False)) for message in found]


async def test_crash_after_stored_calls_leaves_results(
    files: FileSessionStore, tmp_path: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(
            session.session_id, Change([calling("c1", "c2")], partial=result("c1", "c2"))
        )
        shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
        assert roles(await files.load(session.session_id)) == ["user", "assistant"]
        await files.write(session.session_id, Change([result("c1")], partial=result("c2")))
        shutil.copytree(tmp_path / "sessions", tmp_path / "later")
    first = SessionManager(tmp_path / "crashed").load_session(session.session_id)
    assert results(first) == [("c1", True), ("c2", True)]
    later = SessionManager(tmp_path / "later").load_session(session.session_id)
    assert results(later) == [("c1", False), ("c2", True)]


async def test_torn_checkpoint_does_not_prevent_recovery(
    files: FileSessionStore, tmp_path: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(
            session.session_id, Change([calling("c1", "c2")], partial=result("c1", "c2"))
        )
        shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
    (log,) = (tmp_path / "crashed").glob(".*.turn.jsonl")
    log.write_bytes(log.read_bytes()[:-20])
    found = SessionManager(tmp_path / "crashed").load_session(session.session_id)
    assert results(found) == [("c1", True), ("c2", True)]


async def test_database_stores_the_checkpoint_with_the_calls(database: str) -> None:
    async with postgres_store(database) as here:
        session = await stored_session(here, user("a"))
        async with postgres_store(database) as there:
            hold = there.hold(session.session_id, run_id="r")
            await hold.__aenter__()
            await there.write(
                session.session_id, Change([calling("c1", "c2")], partial=result("c1", "c2"))
            )
            assert roles(await here.load(session.session_id)) == ["user", "assistant"]
            assert roles(await there.load(session.session_id)) == ["user", "assistant"]
        assert results(await here.load(session.session_id)) == [("c1", True), ("c2", True)]


@pytest.mark.parametrize(
    "store", ["files", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
async def test_stored_calls_without_results_get_results(store: SessionStore) -> None:
    session = await stored_session(
        store, user("a"), calling("c1"), user("b"), calling("c2", "c3"), result("c2")
    )
    loaded = await store.load(session.session_id)
    assert roles(loaded) == ["user", "assistant", "tool", "user", "assistant", "tool", "tool"]
    assert results(loaded) == [("c1", True), ("c2", False), ("c3", True)]
    assert len({message["message_id"] for message in loaded.messages}) == len(loaded.messages)
    async with store.hold(session.session_id, run_id="r"):
        assert await store.load(session.session_id) == loaded
        after = await appended(store, session.session_id, [user("c")], revision=loaded.revision)
    assert roles(after) == [*roles(loaded), "user"]
    assert roles(await store.load(session.session_id)) == roles(after)


@pytest.mark.parametrize(
    "store", ["files", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
async def test_turn_follows_results_that_it_added(store: SessionStore) -> None:
    imported = new_session()
    imported.messages += [user("a"), calling("c1")]
    (session,) = await store.create_all([(imported, ())])  # an import does not load what it stores
    async with store.hold(session.session_id, run_id="r"):
        await store.load(session.session_id)
        for message in (user("b"), assistant("c")):
            await store.write(session.session_id, Change([message]))
            await store.load(session.session_id)
    found = await store.load(session.session_id)
    assert [message["content"] for message in found.messages][3:] == ["b", "c"]
    assert results(found) == [("c1", True)]


async def test_added_results_are_stored_by_the_next_turn(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files, user("a"), calling("c1"))
    async with files.hold(session.session_id, run_id="r"):
        assert b'"interrupted":true' in file_of(sessions_dir, session.session_id).read_bytes()


async def test_client_tool_calls_get_no_results(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), calling("c1", client_tool_calls=["c1"]))
    assert roles(await store.load(session.session_id)) == ["user", "assistant"]


async def test_old_name_of_client_tool_calls_is_read(files: FileSessionStore) -> None:
    session = await stored_session(files, user("a"), calling("c1", client_tool_calls=["c1"]))
    file = file_of(files.path, session.session_id)
    file.write_text(file.read_text().replace("client_tool_calls", "handed_back"))
    loaded = await files.load(session.session_id)
    assert (results(loaded), dict(loaded.messages[-1])["client_tool_calls"]) == ([], ["c1"])


def test_complete_history_is_unchanged() -> None:
    turn: list[Message] = [
        user("a"),
        calling("c1", "c2"),
        result("c2"),
        result("c1"),
        assistant("b"),
    ]
    history = History.of(turn * 50)
    assert with_missing_results(history) is history


@cases("calls", [[5], [{"id": 5}], [{"id": "c"}], [{"id": "c", "function": "f"}], [{}]])
def test_unreadable_calls_are_skipped(calls: list[object]) -> None:
    answer = assistant("")
    answer["tool_calls"] = calls  # type: ignore[typeddict-item]  # as in a file
    history = History.of([user("a"), answer])
    assert with_missing_results(history) is history


def test_results_without_ids_match_calls_in_order() -> None:
    first, second = result("x"), result("y")
    del first["tool_call_id"], second["tool_call_id"]
    history = History.of([user("a"), calling("c1", "c2"), first, second])
    assert with_missing_results(history) is history
