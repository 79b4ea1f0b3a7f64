"""Two processes on one directory: neither loses the other's writes nor treats its running turn as crashed."""

import os
from pathlib import Path

import pytest

from mochi_server.errors import SessionConflict
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager
from mochi_server.storage.files.locks import ProcessRegistry
from tests.faults.other_writers import (
    edit_first_message,
    open_store,
    run_turn,
    run_unfinished_turn,
    send_session,
)
from tests.sessions.processes import child
from tests.sessions.samples import assistant, contents, log_of, stored_session, user

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs locks that go with their process"),
]


@pytest.mark.slow
async def test_running_answer_of_another_process_is_not_interrupted(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [user("question")])
        await files.flush(session.session_id, assistant("half an ans"))
        with child(send_session, sessions_dir, session.session_id) as other:
            assert other.rest() == [["question"], 1]


async def test_turns_of_two_processes_on_one_session_keep_all_messages(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [user("question")])
        await files.flush(session.session_id, assistant("half an ans"))
        with child(run_turn, sessions_dir, session.session_id) as other:
            assert other.rest() == [["question", "other question", "other answer"]]
        await files.flush(session.session_id, assistant("most of the answ"))
        await files.append(session.session_id, [assistant("answer")])
    ended = await files.load(session.session_id)
    assert contents(ended) == ["question", "other question", "other answer", "answer"]
    assert not log_of(sessions_dir, session.session_id).exists()


async def test_short_lock_of_another_process_keeps_log_of_running_turn(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files)
    async with files.hold(session.session_id, run_id="r"):
        await files.append(session.session_id, [user("question")])
        await files.flush(session.session_id, assistant("half an ans"))
        with child(edit_first_message, sessions_dir, session.session_id) as other:
            assert other.rest() == [["edited"]]
        await files.append(session.session_id, [assistant("answer")])
    assert contents(await files.load(session.session_id)) == ["edited", "answer"]


async def test_replacing_an_outdated_history_is_a_conflict(files: FileSessionStore, sessions_dir: Path) -> None:
    session = await stored_session(files, user("question"), assistant("old answer"))
    async with files.hold(session.session_id, run_id="r"):
        with child(run_turn, sessions_dir, session.session_id) as other:
            other.rest()
        with pytest.raises(SessionConflict):
            await files.replace_tail(session.session_id, 1, [assistant("new answer")], revision=session.revision)
    assert contents(await files.load(session.session_id))[1:] == ["old answer", "other question", "other answer"]


def test_answer_of_a_dead_process_is_interrupted(manager: SessionManager, sessions_dir: Path) -> None:
    session_id = manager.create_session(_options()).session_id
    with child(run_unfinished_turn, sessions_dir, session_id) as other:
        other.next()
        assert contents(manager.load_session(session_id)) == ["question"]
        other.process.kill()
        other.rest()
    assert contents(manager.load_session(session_id)) == ["question", "half an ans"]
    assert manager.load_session(session_id).messages[-1]["interrupted"] is True


async def test_opening_a_served_directory_logs_the_other_process(files: FileSessionStore, sessions_dir: Path) -> None:
    await files.open()
    with child(open_store, sessions_dir) as other:
        ((line,),) = other.rest()
    assert f"sessions directory shared process={os.getpid()} directory={sessions_dir}:" in line
    assert "turns of one session are not coordinated between processes" in line


async def test_opening_sweeps_files_of_dead_processes_without_warning(
    manager: SessionManager, sessions_dir: Path
) -> None:
    session_id = manager.create_session(_options()).session_id
    with child(run_unfinished_turn, sessions_dir, session_id) as dying:
        dying.next()
        dying.process.kill()
        dying.rest()
    (left,) = (sessions_dir / ".locks").glob("*.process")
    with child(open_store, sessions_dir) as other:
        assert other.rest() == [[]]
    assert not left.exists()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_child_does_not_keep_presence_of_dead_parent(tmp_path: Path) -> None:
    presence = ProcessRegistry(tmp_path)
    presence.register()
    ready, go = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        os.write(ready[1], b".")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        assert ProcessRegistry(tmp_path).is_running(presence.name)
        name, presence.name = presence.name, None  # the file remains, as after a kill
        presence.unregister()
        assert not ProcessRegistry(tmp_path).is_running(name)
    finally:
        os.write(go[1], b".")
        os.waitpid(pid, 0)
        for end in (*ready, *go):
            os.close(end)


@pytest.mark.parametrize("name", [None, "", "../1-000000000000", "1-0", "1-000000000000"])
def test_invalid_process_name_is_not_present(tmp_path: Path, name: str | None) -> None:
    assert not ProcessRegistry(tmp_path).is_running(name)


def _options() -> SessionCreationOptions:
    return SessionCreationOptions(model="m")
