"""Turn log: writes during a turn and recovery after a crash.

A crash is a copy of the directory at that moment.
"""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from hashlib import blake2b
from itertools import count
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, StorageFailed
from mochi_server.sessions import ChatSession, FileSessionStore, Message, SessionManager
from mochi_server.sessions.change import Change
from mochi_server.sessions.serialization import encode
from mochi_server.sessions.types import ToolCall, UnfinishedCalls
from mochi_server.storage.session_record import SessionRecord
from mochi_server.util.clock import new_id, now, timestamp
from tests.sessions.samples import (
    appended,
    assistant,
    contents,
    file_of,
    log_of,
    new_session,
    read_count,
    stored_session,
    user,
)
from tests.support.cases import cases
from tests.support.full_disk import largest_file

Crash = Callable[[], Path]


@pytest.fixture
def crash(tmp_path: Path, sessions_dir: Path) -> Crash:
    """Return the directory as a crash now would leave it."""
    numbers = count()
    return lambda: Path(shutil.copytree(sessions_dir, tmp_path / f"crash{next(numbers)}"))


def load(directory: Path, session: ChatSession) -> ChatSession:
    return SessionManager(directory).load_session(session.session_id)


async def test_turn_writes_whole_file_at_first_change_and_end(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files, user("before"))
    path, log = file_of(sessions_dir, session.session_id), log_of(sessions_dir, session.session_id)
    versions = [path.read_bytes()]
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        versions.append(path.read_bytes())
        assert not log.exists()
        await files.write(session.session_id, Change(partial=assistant("so f")))
        await files.write(session.session_id, Change([assistant("so far")]))
        await files.patch(session.session_id, {"title": "t"})
        await files.write(session.session_id, Change([assistant("better")], start=2))
        versions.append(path.read_bytes())
        assert len(log.read_bytes().splitlines()) == 4
    versions.append(path.read_bytes())
    assert versions[0] != versions[1] == versions[2] != versions[3]
    assert not log.exists()
    assert contents(await files.load(session.session_id)) == ["before", "a", "better"]


async def test_changes_outside_a_turn_leave_no_log(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files, user("a"))
    async with files.hold(session.session_id):
        await files.write(session.session_id, Change([user("b")]))
        assert b'"b"' in file_of(sessions_dir, session.session_id).read_bytes()
        await files.write(session.session_id, Change([], start=0))
    await files.patch(session.session_id, {"title": "t"})
    assert not log_of(sessions_dir, session.session_id).exists()


async def test_crash_keeps_the_partial_answer(files: FileSessionStore, crash: Crash) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change(partial=assistant("so")))
        await files.write(session.session_id, Change(partial=assistant("so f")))
        directory = crash()
        found = load(directory, session)
    assert contents(found) == ["a", "so f"]
    assert dict(found.messages[-1])["interrupted"] is True
    assert found.metadata.message_count == 2
    assert load(directory, session) == found
    assert SessionManager(directory).list_sessions()[0]["message_count"] == 2


async def test_crash_keeps_changes_of_a_large_file_without_times(
    files: FileSessionStore, sessions_dir: Path, crash: Crash
) -> None:
    session = await stored_session(files)
    large = {"metadata": {"model": "m"}, "messages": [{"role": "user", "content": "x" * 2**20}]}
    file_of(sessions_dir, session.session_id).write_bytes(encode(large))
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change(partial=assistant("so f")))
        directory = crash()
    assert contents(load(directory, session))[1:] == ["a", "so f"]


async def test_tool_calls_interrupted_by_a_crash_have_results(
    files: FileSessionStore, crash: Crash
) -> None:
    session = await stored_session(files, user("a"))
    later: ToolCall = {"id": "call_2", "function": {"index": 1, "name": "add", "arguments": {}}}
    result: UnfinishedCalls = {
        "role": "tool",
        "content": "cut off",
        "tool_name": "wait",
        "tool_call_id": "call_1",
        "message_id": new_id(),
        "timestamp": now(),
        "tool_calls": [later],
    }
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([assistant("")]))
        await files.write(session.session_id, Change(partial=result))
        directory = crash()
    found = load(directory, session)
    results = [
        (m["role"], m["tool_name"], m["tool_call_id"], m["interrupted"])
        for m in map(dict, found.messages[2:])
    ]
    assert results == [("tool", "wait", "call_1", True), ("tool", "add", "call_2", True)]
    assert len({message["message_id"] for message in found.messages}) == 4
    assert not any("tool_calls" in message for message in found.messages[2:])
    assert load(directory, session) == found


async def test_parallel_checkpoints_do_not_affect_each_other(
    files: FileSessionStore, crash: Crash
) -> None:
    sessions = [await stored_session(files, user("a")) for _ in range(20)]
    ids = [session.session_id for session in sessions]
    async with AsyncExitStack() as holds:
        for session_id in ids:
            await holds.enter_async_context(files.hold(session_id, run_id="r"))
        for text in ("so", "so f", "so fa"):
            await asyncio.gather(
                *(files.write(session_id, Change(partial=assistant(text))) for session_id in ids)
            )
        await files.delete(ids[7])
        flushes = (
            files.write(session_id, Change(partial=assistant("so far"))) for session_id in ids
        )
        errors = await asyncio.gather(*flushes, return_exceptions=True)
        directory = crash()
    failures = [type(error) for error in errors if isinstance(error, Exception)]
    assert failures == [SessionNotFound]
    for session in sessions[:7] + sessions[8:]:
        assert contents(load(directory, session)) == ["a", "so far"]


async def test_log_deleted_during_a_turn_is_recreated(
    files: FileSessionStore, sessions_dir: Path, crash: Crash
) -> None:
    session = await stored_session(files, user("a"))
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change(partial=assistant("so")))
        await files.write(session.session_id, Change(partial=assistant("so f")))
        log_of(sessions_dir, session.session_id).unlink()
        await files.write(session.session_id, Change(partial=assistant("so fa")))
        assert contents(load(crash(), session)) == ["a", "so fa"]
        await files.write(session.session_id, Change(partial=assistant("so far")))
        directory = crash()
    assert contents(load(directory, session)) == ["a", "so far"]


async def test_checkpoint_replaced_by_a_later_message_is_ignored(
    files: FileSessionStore, crash: Crash
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change(partial=assistant("so f")))
        await files.write(session.session_id, Change([assistant("so far")]))
        assert contents(load(crash(), session)) == ["a", "so far"]


async def test_crash_keeps_everything_acknowledged(files: FileSessionStore, crash: Crash) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        for step in ("a", "b", "c"):
            acknowledged = await appended(files, session.session_id, [user(step)])
            assert load(crash(), session) == acknowledged
        acknowledged = await files.patch(session.session_id, {"title": "t"})
        assert load(crash(), session) == acknowledged
        acknowledged = await appended(files, session.session_id, [user("B")], start=1)
        assert load(crash(), session) == acknowledged


async def crashed(files: FileSessionStore, crash: Crash) -> tuple[Path, ChatSession]:
    """A directory whose turn was killed, with a log that has every kind of line."""
    session = await stored_session(files, user("before"))
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change([assistant("b")]))
        await files.patch(session.session_id, {"title": "t"})
        await files.write(session.session_id, Change(partial=assistant("so f")))
        directory = crash()
    return directory, session


async def test_next_history_change_recovers_a_crashed_turn(
    files: FileSessionStore, crash: Crash
) -> None:
    directory, session = await crashed(files, crash)
    found = load(directory, session)
    changed = SessionManager(directory).append_messages(session.session_id, [user("again")])
    assert contents(changed) == ["before", "a", "b", "so f", "again"]
    assert changed.messages[:-1] == found.messages
    assert not log_of(directory, session.session_id).exists()
    assert load(directory, session) == changed
    assert changed.metadata.title == "t"


@pytest.mark.parametrize("run_id", ["r", None])
async def test_next_lock_recovers_a_crashed_turn(
    files: FileSessionStore, crash: Crash, run_id: str | None
) -> None:
    directory, session = await crashed(files, crash)
    found = load(directory, session)
    store = FileSessionStore(directory)
    async with store.hold(session.session_id, run_id=run_id):
        assert not log_of(directory, session.session_id).exists()
        assert await store.load(session.session_id) == found
    await store.aclose()
    assert load(directory, session) == found


async def test_crashed_turn_is_deleted_on_a_full_disk(
    files: FileSessionStore, crash: Crash
) -> None:
    directory, session = await crashed(files, crash)
    store = FileSessionStore(directory)
    await store.open()
    with largest_file(0):
        with pytest.raises(StorageFailed):
            async with store.hold(session.session_id, run_id="r"):
                pass
        async with store.hold(session.session_id):
            assert contents(await store.load(session.session_id)) == ["before", "a", "b", "so f"]
            await store.delete(session.session_id)
    assert await store.ids() == []
    assert not log_of(directory, session.session_id).exists()
    await store.aclose()


async def test_patch_by_another_process_keeps_the_running_turn(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    other = SessionManager(sessions_dir)
    async with files.hold(session.session_id, run_id="r"):
        spoken = await appended(files, session.session_id, [user("a")])
        other.update_session(session.session_id, title="one")
        await files.write(session.session_id, Change(partial=assistant("so f")))
        other.update_session(session.session_id, title="two", summary_model="s")
        assert contents(await files.load(session.session_id)) == ["a"]
        await files.write(
            session.session_id, Change([assistant("so far")], revision=spoken.revision)
        )
    ended = await files.load(session.session_id)
    assert contents(ended) == ["a", "so far"]
    assert (ended.metadata.title, ended.metadata.summary_model) == ("two", "s")


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9, 1.0])
async def test_torn_last_line_of_a_log_is_ignored(
    files: FileSessionStore, crash: Crash, fraction: float
) -> None:
    directory, session = await crashed(files, crash)
    log, found = log_of(directory, session.session_id), load(directory, session)
    torn = (
        SessionRecord.of(found)
        .with_tail(3, [], "")
        .tail_line(
            3,
            SessionRecord.of(found).with_tail(3, [user("never acknowledged")], ""),
        )
        .rstrip(b"\n")
    )
    log.write_bytes(log.read_bytes() + torn[: int(len(torn) * fraction)])
    assert load(directory, session) == found
    patched = SessionManager(directory).update_session(session.session_id, title="after")
    assert patched.messages == found.messages
    assert load(directory, session) == patched
    assert patched.metadata.title == "after"


async def test_log_already_in_the_file_changes_nothing(
    files: FileSessionStore, crash: Crash
) -> None:
    directory, session = await crashed(files, crash)
    log = log_of(directory, session.session_id)
    lines = log.read_bytes()
    store = FileSessionStore(directory)
    async with store.hold(session.session_id, run_id="r"):
        pass
    folded = await store.load(session.session_id)
    for _ in range(2):
        log.write_bytes(lines)
        assert await store.load(session.session_id) == folded
        async with store.hold(session.session_id, run_id="r"):
            assert not log.exists()
    assert await store.load(session.session_id) == folded
    await store.aclose()


async def test_log_left_after_a_completed_turn_changes_nothing(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    log = log_of(sessions_dir, session.session_id)
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change(partial=assistant("b?")))
        await files.write(session.session_id, Change([assistant("b")]))
        await files.patch(session.session_id, {"title": "t"})
        lines = log.read_bytes()
    ended = await files.load(session.session_id)
    log.write_bytes(lines)
    assert await files.load(session.session_id) == ended


async def test_old_log_does_not_change_later_messages(
    files: FileSessionStore, crash: Crash
) -> None:
    directory, session = await crashed(files, crash)
    log = log_of(directory, session.session_id)
    lines = log.read_bytes()
    manager = SessionManager(directory)
    manager.append_messages(session.session_id, [user("later")])
    moved_on = manager.update_session(session.session_id, title="later")
    log.write_bytes(lines)
    assert load(directory, session) == moved_on
    assert manager.append_messages(session.session_id, []).messages == moved_on.messages


async def test_turn_does_not_read_its_own_writes(
    files: FileSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await stored_session(files, user("before"))
    reads = read_count(monkeypatch)
    async with files.hold(session.session_id, run_id="r"):
        await files.load(session.session_id)
        await files.write(session.session_id, Change([user("a")]))
        await files.write(session.session_id, Change(partial=assistant("so f")))
        await files.patch(session.session_id, {"title": "t"})
        await files.write(session.session_id, Change([assistant("so far")]))
    await files.load(session.session_id)
    assert reads() == 0


async def test_turns_continue_after_a_crash(files: FileSessionStore, crash: Crash) -> None:
    directory, session = await crashed(files, crash)
    store = FileSessionStore(directory)
    async with store.hold(session.session_id, run_id="next"):
        found = await store.load(session.session_id)
        await store.write(session.session_id, Change([user("c")], revision=found.revision))
        await store.write(session.session_id, Change([assistant("d")]))
    assert contents(await store.load(session.session_id)) == ["before", "a", "b", "so f", "c", "d"]
    await store.aclose()


def test_applying_a_log_twice_changes_nothing() -> None:
    before = SessionRecord.of(new_session()).with_tail(0, [user("a")], "2026-01-01T00:00:00+00:00")
    log, record = b"", before
    tails: list[list[Message]] = [[assistant("b")], [user("c"), assistant("d")]]
    for tail in tails:
        after = record.with_tail(len(record.messages), tail, "2026-01-02T00:00:00+00:00")
        log, record = log + record.tail_line(len(record.messages), after), after
    once = before.with_log(log)
    assert once.messages == record.messages
    assert once.with_log(log) == once


@cases("line", [b"[]", b"{}", b"null", b'{"at": 1}', b'{"fields": 1}', b'{"fields": {}}', b"\xff"])
def test_unknown_lines_in_a_log_are_ignored(line: bytes) -> None:
    record = SessionRecord.of(new_session())
    after = record.with_tail(0, [user("a")], "2026-01-02T00:00:00+00:00")
    found = record.with_log(line + b"\n" + record.tail_line(0, after))
    assert found.messages == after.messages


def test_equal_histories_have_equal_revisions() -> None:
    messages = [user(str(i)) if i % 2 else assistant(str(i)) for i in range(300)]
    at_once = SessionRecord.of(new_session()).with_tail(0, messages, "")
    grown = SessionRecord.of(new_session())
    for number in range(0, 300, 25):
        grown = grown.with_tail(number, messages[number : number + 25], "")
        assert grown.digest == grown.with_partial(assistant("no part of it")).digest
    shortened = grown.with_tail(300, messages, "").with_tail(300, [], "")
    lines = b"\n".join(map(encode, messages))
    for record in (at_once, grown, shortened):
        assert record.digest == blake2b(lines, digest_size=8).hexdigest()


def test_messages_encoded_once_are_not_encoded_again() -> None:
    first = SessionRecord.of(new_session()).with_tail(
        0, [user("a"), assistant("b")], "2026-01-01T00:00:00+00:00"
    )
    later = first.with_fields({"title": "t"}, "2026-01-02T00:00:00+00:00").with_tail(
        2, [user("c")], ""
    )
    assert len(later.lines) == 3
    assert all(mine is theirs for mine, theirs in zip(later.lines, first.lines, strict=False))


async def test_interrupted_answer_keeps_the_time_of_the_last_change(
    files: FileSessionStore, crash: Crash
) -> None:
    session = await stored_session(files, user("a"))
    partial = assistant("so f")
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change(partial=partial))
        found = load(crash(), session)
    assert timestamp(found.metadata.updated_at) == timestamp(session.metadata.updated_at)
    assert found.messages[-1] == {**partial, "interrupted": True}
