"""Two processes on one directory: neither loses what the other writes, nor takes its answer for a crashed one."""

import os
from pathlib import Path

import pytest

from mochi_server.errors import SessionConflict
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager
from mochi_server.sessions.presence import Presence
from tests.faults.other_writers import (
    edit_the_first,
    leave_an_answer_unfinished,
    look_on,
    serve_beside,
    take_a_turn,
)
from tests.sessions.processes import child
from tests.sessions.samples import answered, contents, log_of, said, stored_session

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs locks that go with their process"),
]


async def test_an_answer_that_another_process_is_writing_is_no_interrupted_one(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [said("question")])
        await files.checkpoint(session.session_id, answered("half an ans"))
        with child(look_on, sessions_dir, session.session_id) as other:
            assert other.rest() == [["question"], 1]


async def test_turns_of_two_processes_on_one_session_keep_every_message(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [said("question")])
        await files.checkpoint(session.session_id, answered("half an ans"))
        with child(take_a_turn, sessions_dir, session.session_id) as other:
            assert other.rest() == [["question", "other question", "other answer"]]
        await files.checkpoint(session.session_id, answered("most of the answ"))
        await files.append(session.session_id, [answered("answer")])
    ended = await files.load(session.session_id)
    assert contents(ended) == ["question", "other question", "other answer", "answer"]
    assert not log_of(sessions_dir, session.session_id).exists()


async def test_a_short_hold_of_another_process_leaves_a_running_turn_its_log(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [said("question")])
        await files.checkpoint(session.session_id, answered("half an ans"))
        with child(edit_the_first, sessions_dir, session.session_id) as other:
            assert other.rest() == [["edited"]]
        await files.append(session.session_id, [answered("answer")])
    assert contents(await files.load(session.session_id)) == ["edited", "answer"]


async def test_a_change_that_another_process_has_not_seen_is_not_replaced_by_it(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files, said("question"), answered("old answer"))
    async with files.hold(session.session_id, run_id="r"):
        with child(take_a_turn, sessions_dir, session.session_id) as other:
            other.rest()
        with pytest.raises(SessionConflict):
            await files.replace_tail(session.session_id, 1, [answered("new answer")], revision=session.revision)
    assert contents(await files.load(session.session_id))[1:] == ["old answer", "other question", "other answer"]


def test_an_answer_of_a_process_that_died_is_an_interrupted_one(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(_options()).session_id
    with child(leave_an_answer_unfinished, sessions_dir, session_id) as other:
        other.next()
        assert contents(manager.load_session(session_id)) == ["question"]
        other.process.kill()
        other.rest()
    assert contents(manager.load_session(session_id)) == ["question", "half an ans"]
    assert manager.load_session(session_id).messages[-1]["interrupted"] is True


async def test_who_opens_a_directory_that_is_served_is_told_by_whom_and_what_that_means(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    await files.open()
    with child(serve_beside, sessions_dir) as other:
        ((line,),) = other.rest()
    assert f"another process, {os.getpid()}, serves {sessions_dir} as well" in line
    assert "turns of one session are not coordinated between processes" in line


async def test_who_opens_a_directory_alone_is_told_nothing_and_what_dead_processes_left_is_swept(
    manager: SessionManager, sessions_dir: Path
) -> None:
    session_id = manager.create_session(_options()).session_id
    with child(leave_an_answer_unfinished, sessions_dir, session_id) as dying:
        dying.next()
        dying.process.kill()
        dying.rest()
    (left,) = (sessions_dir / ".locks").glob("*.process")
    with child(serve_beside, sessions_dir) as other:
        assert other.rest() == [[]]
    assert not left.exists()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    presence.join()
    ready, go = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        os.write(ready[1], b".")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        assert Presence(tmp_path).lives(presence.name)
        name, presence.name = presence.name, None  # its file stays, as after a kill
        presence.leave()
        assert not Presence(tmp_path).lives(name)
    finally:
        os.write(go[1], b".")
        os.waitpid(pid, 0)
        for end in (*ready, *go):
            os.close(end)


@pytest.mark.parametrize("name", [None, "", "../1-000000000000", "1-0", "1-000000000000"])
def test_a_name_that_nobody_has_is_nobodys(tmp_path: Path, name: str | None) -> None:
    assert not Presence(tmp_path).lives(name)


def _options() -> SessionCreationOptions:
    return SessionCreationOptions(model="m")
