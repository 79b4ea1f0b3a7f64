"""Two servers on one data directory, and a server beside a program that uses its sessions."""

import os
from pathlib import Path

import pytest

from mochi_server.sessions import SessionManager
from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.sessions.samples import user
from tests.support.api import text_of
from tests.support.process import Command
from tests.support.server import RunningServer


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs locks that end with their process")
def test_second_server_on_a_directory_warns_and_both_serve(stub: StubServer, tmp_path: Path) -> None:
    arguments = ["--port", "0", "--ollama-host", stub.url]
    with (
        Command("mochi_server", *arguments, cwd=tmp_path) as first,
        first.api() as one,
        Command("mochi_server", *arguments, cwd=tmp_path) as second,
        second.api() as other,
    ):
        (line,) = [line for line in second.output if "directory shared" in line]
        assert f"sessions directory shared process={first.process.pid} directory={tmp_path / 'chat_sessions'}:" in line
        assert "turns of one session are not coordinated between processes" in line

        session_id = one.create_session("mochi")["session_id"]
        one.send_message(session_id, "one")
        other.send_message(session_id, "other")
        one.ok(one.http.patch(f"/sessions/{session_id}", json={"title": "t"}))
        other.ok(other.http.patch(f"/sessions/{session_id}", json={"summary_model": "mochi"}))

        found = one.session(session_id)
        assert found == other.session(session_id)
        assert [m["content"] for m in found["messages"] if m["role"] == "user"] == ["one", "other"]
        assert (found["title"], found["summary_model"]) == ("t", "mochi")


def test_regenerated_answer_keeps_messages_of_other_processes(manager: SessionManager, tmp_path: Path) -> None:
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
        assert [m["content"] for m in api.messages(session_id)] == ["Hello!", "Old.", "from elsewhere"]
