"""One process changes a data directory.

Others are refused at once, and a dead process leaves no lock.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mochi_server.app import create_app
from mochi_server.errors import DirectoryInUse
from mochi_server.sessions import FileSessionStore, SessionCreationOptions, SessionManager
from mochi_server.sessions.change import Change
from mochi_server.util.platform import lock_file
from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.sessions.processes import change, child, copy
from tests.sessions.samples import assistant, contents, stored_session, user
from tests.support.api import error_of, text_of
from tests.support.mcp import write_mcp
from tests.support.process import Command, run
from tests.support.server import RunningServer
from tests.support.waiting import until

OPTIONS = SessionCreationOptions(model="m")


def changed_by_another_process(directory: Path) -> list[Any]:
    with child(change, directory) as other:
        return other.rest()


def is_locked(directory: Path) -> bool:
    try:
        lock_file(directory / ".lock")()
    except BlockingIOError:
        return True
    return False


def serve(stub: StubServer, directory: Path) -> Command:
    return Command("mochi_server", "--port", "0", "--ollama-host", stub.url, cwd=directory)


def test_second_server_is_refused_and_names_the_first(stub: StubServer, tmp_path: Path) -> None:
    with serve(stub, tmp_path) as first, first.api() as api:
        session_id = api.create_session("mochi")["session_id"]
        code, output = run("mochi_server", "--port", "0", "--ollama-host", stub.url, cwd=tmp_path)
        found, refusal = changed_by_another_process(tmp_path / "chat_sessions")
        assert [entry["session_id"] for entry in api.ok(api.http.get("/sessions"))["sessions"]] == [
            session_id
        ]
        beginning = (
            f"Process {first.process.pid} already uses the sessions in "
            f"{tmp_path / 'chat_sessions'}: "
        )
        first.end()
    assert code == 1
    assert output == f"mochi-server: {refusal}\n"
    assert refusal.startswith(beginning)
    assert all(
        advice in refusal for advice in ("Python client", "MOCHI_DATA_DIR", "MOCHI_STORE_URL")
    )
    assert found == 1
    assert changed_by_another_process(tmp_path / "chat_sessions") == [1, 2]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_child_process_of_a_killed_server_does_not_keep_the_lock(
    stub: StubServer, tmp_path: Path
) -> None:
    # The server's end kills the process group of an MCP server, so the process that survives has
    # its own.
    note = "open('child', 'w').write(str(os.getpid()))"
    script = f"import os, time; os.fork() or (os.setsid(), {note}); time.sleep(60)"
    write_mcp(
        tmp_path, slow={"command": sys.executable, "args": ["-c", script], "cwd": str(tmp_path)}
    )
    with serve(stub, tmp_path) as server:
        server.api()
        until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "")
        server.end(signal.SIGKILL)
    process_id = int((tmp_path / "child").read_text())
    try:
        os.kill(process_id, 0)
        with serve(stub, tmp_path) as server, server.api() as api:
            api.create_session("mochi")
    finally:
        os.kill(process_id, signal.SIGKILL)


def test_executed_child_does_not_inherit_the_lock(
    manager: SessionManager, sessions_dir: Path
) -> None:
    manager.create_session(OPTIONS)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        close_fds=False,
    ) as program:
        assert is_locked(sessions_dir)
        manager.close()
        until(
            lambda: not is_locked(sessions_dir)
        )  # Linux closes descriptors shortly after the start of the program
        assert program.poll() is None


def test_error_explains_a_lock_of_another_machine(
    manager: SessionManager, sessions_dir: Path
) -> None:
    sessions_dir.mkdir()
    with held(sessions_dir, "123 other.example"), pytest.raises(DirectoryInUse) as caught:
        manager.create_session(OPTIONS)
    assert caught.value.message.startswith("Process 123 on the machine other.example already uses")
    assert "If that machine no longer runs, delete the file .lock" in caught.value.message
    with (
        held(sessions_dir, ""),
        pytest.raises(DirectoryInUse, match=r"Process \(unknown\) already uses"),
    ):
        manager.create_session(OPTIONS)


def test_server_is_not_ready_while_another_process_uses_its_sessions(
    stub: StubServer, tmp_path: Path, sessions_dir: Path
) -> None:
    lock = sessions_dir / ".lock"
    lock.mkdir(parents=True)  # the server starts, but cannot lock the directory
    with RunningServer(tmp_path, stub.url) as server:
        lock.rmdir()
        with held(sessions_dir, "123 other.example"):
            refused = server.api().http.get("/health/ready")
        assert error_of(refused) == (503, "NOT_READY")
        assert refused.json()["error"]["details"] == {
            "reason": "Another process uses the session files."
        }
        assert str(tmp_path) not in refused.text
        assert server.api().http.get("/health/ready").status_code == 200


@contextmanager
def held(directory: Path, owner: str) -> Iterator[None]:
    unlock = lock_file(directory / ".lock")
    (directory / ".lock-owner").write_text(owner)
    yield
    unlock()


def test_last_user_of_a_directory_unlocks_it(
    stub: StubServer, tmp_path: Path, sessions_dir: Path
) -> None:
    with SessionManager(sessions_dir) as manager:
        with RunningServer(tmp_path, stub.url) as server:
            session_id = server.api().create_session("mochi")["session_id"]
            manager.append_messages(session_id, [user("Hello")])
            assert len(server.api().messages(session_id)) == 1
        assert is_locked(sessions_dir)
    assert not is_locked(sessions_dir)
    manager.append_messages(session_id, [user("Hello")])
    assert is_locked(sessions_dir)
    del manager
    assert not is_locked(sessions_dir)


async def test_failed_start_releases_the_lock(stub: StubServer, tmp_path: Path) -> None:
    """The server locks its sessions, and then cannot lock those of agents."""
    agents = tmp_path / "agents" / "agent_chats"
    agents.mkdir(parents=True)
    app = create_app(data_dir=str(tmp_path), ollama_host=stub.url)
    with held(agents, "123 other.example"), pytest.raises(DirectoryInUse, match="Process 123"):
        async with app.router.lifespan_context(app):
            pass
    assert (tmp_path / "chat_sessions" / ".lock").exists()
    assert not is_locked(tmp_path / "chat_sessions")


def test_directory_of_agent_sessions_is_locked(stub: StubServer, tmp_path: Path) -> None:
    (tmp_path / "agents" / "agent_chats").mkdir(parents=True)
    with RunningServer(tmp_path, stub.url):
        assert is_locked(tmp_path / "agents" / "agent_chats")
    assert not is_locked(tmp_path / "agents" / "agent_chats")


def test_two_servers_of_one_process_share_the_locks_of_sessions(tmp_path: Path) -> None:
    gate = Gate()
    with (
        StubServer(speed=0, resolve=lambda _: Reply([Text(["Hi"]), gate])) as stub,
        RunningServer(tmp_path, stub.url) as one,
        RunningServer(tmp_path, stub.url) as two,
    ):
        session_id = one.api().create_session("mochi")["session_id"]
        url, renamed = f"/chat/{session_id}", {"title": "renamed"}
        with one.api().open_stream(session_id, "Hello!") as events:
            first = next(events)
            assert error_of(two.api().http.post(url, json={"message": "Hello?"})) == (
                409,
                "SESSION_BUSY",
            )
            two.api().ok(two.api().http.patch(f"/sessions/{session_id}", json=renamed))
            gate.open()
            assert text_of([first, *events]) == "Hi"
        two.api().send_message(session_id, "Hello?")
        session = one.api().session(session_id)
    assert session["title"] == "renamed"
    assert [message["content"] for message in session["messages"]] == [
        "Hello!",
        "Hi",
        "Hello?",
        "Hi",
    ]


def test_regenerated_answer_keeps_messages_of_a_manager(
    manager: SessionManager, tmp_path: Path
) -> None:
    gate = Gate()
    answers = iter([Reply.of("Old."), Reply([Text(["New"]), gate])])

    def resolve(_: Prompt) -> Reply:
        return next(answers)

    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        with api.open_stream(session_id) as events:
            begun = [next(events)]
            manager.append_messages(session_id, [user("from elsewhere")])
            gate.open()
            rest = list(events)
        assert text_of(begun + rest) == "New"
        assert [(event.type, event.data.get("code")) for event in rest] == [
            ("error", "SESSION_CONFLICT"),
            ("done", None),
        ]
        assert [m["content"] for m in api.messages(session_id)] == [
            "Hello!",
            "Old.",
            "from elsewhere",
        ]


async def test_manager_sees_a_running_answer_as_unfinished(
    files: FileSessionStore, manager: SessionManager
) -> None:
    session_id = (await stored_session(files)).session_id
    async with files.hold(session_id, run_id="r"):
        await files.write(session_id, Change([user("question")]))
        await files.write(session_id, Change(partial=assistant("half an ans")))
        assert contents(manager.load_session(session_id)) == ["question"]
        assert manager.list_sessions()[0]["message_count"] == 1
        await files.write(session_id, Change([assistant("answer")]))
    assert contents(manager.load_session(session_id)) == ["question", "answer"]


async def test_copy_reads_a_served_directory_without_a_change(
    stub: StubServer, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    with RunningServer(source, stub.url) as server:
        api = server.api()
        api.create_session("mochi")
        api.http.get("/sessions")  # the index has the session now, and is not written again
        before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
        with child(copy, source, target) as other:
            assert other.rest() == [1]
        assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before
        with child(copy, target, source) as other:
            assert other.rest() == ["STORAGE_BUSY"]
