"""Cache of sessions in memory: never outdated relative to the files, and of limited size."""

import shutil
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import pytest

from mochi_server.errors import SessionNotFound
from mochi_server.inference.messages import encode_messages
from mochi_server.sessions import FileSessionStore, Message, SessionManager
from mochi_server.sessions.change import Change
from mochi_server.storage.files.atomic_files import Signature
from mochi_server.storage.files.backend import FileSnapshot, SessionDirectory
from mochi_server.storage.session_record import MAX_BYTES, SessionCache, SessionRecord
from tests.sessions.samples import (
    appended,
    assistant,
    contents,
    file_of,
    log_of,
    new_session,
    stored_session,
    user,
)
from tests.support.cases import cases

MEBIBYTE = 1024 * 1024


async def test_next_turn_has_messages_of_a_manager(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session_id = (await stored_session(files, user("a"), assistant("b"))).session_id
    with SessionManager(sessions_dir) as manager:
        manager.append_messages(session_id, [user("other question"), assistant("other answer")])
    async with files.hold(session_id, run_id="r"):
        assert contents(await files.load(session_id)) == [
            "a",
            "b",
            "other question",
            "other answer",
        ]
        await files.write(session_id, Change([user("c")]))
    assert contents(SessionManager(sessions_dir).load_session(session_id)) == [
        "a",
        "b",
        "other question",
        "other answer",
        "c",
    ]


@pytest.mark.parametrize("in_turn", [True, False])
async def test_file_changed_by_hand_is_loaded_at_once(
    files: FileSessionStore, sessions_dir: Path, in_turn: bool
) -> None:
    session_id = (await stored_session(files, user("before"))).session_id
    path = file_of(sessions_dir, session_id)
    for word in ("behind", "beyond"):  # as long as before
        path.write_bytes(
            path.read_bytes().replace(b"before", word.encode()).replace(b"behind", word.encode())
        )
        async with files.hold(session_id, run_id="r" if in_turn else None):
            assert contents(await files.load(session_id)) == [word]


async def test_restored_older_file_is_loaded(files: FileSessionStore, sessions_dir: Path) -> None:
    session_id = (await stored_session(files, user("a"))).session_id
    path = file_of(sessions_dir, session_id)
    shutil.copy2(path, path.with_name("backup"))
    await files.write(session_id, Change([assistant("b")]))
    shutil.copy2(path.with_name("backup"), path)
    assert contents(await files.load(session_id)) == ["a"]
    assert contents(await appended(files, session_id, [assistant("c")])) == ["a", "c"]


async def test_session_removed_by_hand_is_not_found(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session_id = (await stored_session(files, user("a"))).session_id
    file_of(sessions_dir, session_id).unlink()
    with pytest.raises(SessionNotFound):
        await files.load(session_id)
    with pytest.raises(SessionNotFound):
        async with files.hold(session_id, run_id="r"):
            pass


async def test_turn_on_a_large_session_writes_its_file_once(
    files: FileSessionStore, sessions_dir: Path, tmp_path: Path
) -> None:
    session_id = (await stored_session(files, user("x" * 2 * MEBIBYTE), assistant("y"))).session_id
    path = file_of(sessions_dir, session_id)
    before = path.stat()
    async with files.hold(session_id, run_id="r"):
        await files.write(session_id, Change([user("question")]))
        assert path.stat() == before
        assert log_of(sessions_dir, session_id).stat().st_size < 1000
        crashed = Path(shutil.copytree(sessions_dir, tmp_path / "crashed"))
        await files.write(session_id, Change([assistant("answer")], ends_turn=True))
        assert not log_of(sessions_dir, session_id).exists()
    assert contents(SessionManager(crashed).load_session(session_id))[1:] == ["y", "question"]
    assert contents(SessionManager(sessions_dir).load_session(session_id))[1:] == [
        "y",
        "question",
        "answer",
    ]


class Stored(NamedTuple):
    memory: int


def test_cache_keeps_the_most_recently_used_sessions() -> None:
    recent = SessionCache[Stored](max_bytes=MEBIBYTE)
    for number in range(1000):
        recent.put(str(number), Stored(20_000))
        recent.get("0")
    cached = [number for number in range(1000) if recent.get(str(number))]
    assert cached == [0, *range(1001 - len(cached), 1000)]
    assert 10 < len(cached) < 100


def test_too_large_session_is_not_cached() -> None:
    recent = SessionCache[Stored](max_bytes=MEBIBYTE)
    recent.put("small", Stored(20_000))
    recent.put("large", Stored(20_000))
    recent.put("large", Stored(MEBIBYTE + 1))
    assert recent.get("small")
    assert recent.get("large") is None


def test_session_of_ten_thousand_messages_is_cached() -> None:
    recent = SessionCache[FileSnapshot]()
    session = FileSnapshot(SessionRecord.of(new_session()), Signature(1, 1, 10_000 * 350))
    recent.put("long", session)
    assert recent.get("long")


@cases("text", ["hi", "word " * 40, "\u4e2d" * 100, "word " * 40 + "\U0001f600"])
def test_cached_sessions_use_at_most_the_estimated_memory(
    locked_directory: SessionDirectory, text: str
) -> None:
    number = 400
    session = new_session()
    answer = assistant(text)
    answer |= {"eval_count": 20, "prompt_eval_count": 20}
    turn: list[Message] = [user(text), answer]
    session.messages = turn * (number // 2)
    locked_directory.create(session)
    tracemalloc.start()
    try:
        found = locked_directory.read(session.session_id)
        found.record.file()
        told_of = [block.cached(encode_messages) for block in found.record.messages.blocks]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told_of
    recent = SessionCache[FileSnapshot](max_bytes=used - 1)
    recent.put(session.session_id, found)
    assert recent.get(session.session_id) is None, "it would be kept where it does not fit"
    assert used < MAX_BYTES
