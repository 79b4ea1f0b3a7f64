"""Background turns continue after their server was killed or stopped.

A copy of the files of a live server is what a kill leaves.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mochi_server.chat.limits import RunLimits
from mochi_server.container import Components
from mochi_server.errors import StorageFailed
from mochi_server.sessions import Change, FileSessionStore
from mochi_stub import Failure, Gate, Prompt, Reply, StubServer, Text, ToolCall, ToolCalls
from tests.frontends.chats import Frontend, user
from tests.support.agents import delegate, nested, notes, write_agent
from tests.support.api import Api, error_of, read_events, text_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stores import with_store
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import Receiver

TOOLS = '''
    from pathlib import Path
    from time import sleep

    HERE = Path(__file__).parent

    def note(text: str) -> str:
        """Write a note, and wait while there is a file `wait`."""
        with (HERE / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        while (HERE / "wait").exists():
            sleep(0.01)
        return f"Noted {text}."

    __all__ = ["note"]
'''
SETTINGS = {"tool_settings": {"tools": ["note"], "execution_policy": "never_confirm"}}


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def stub(gate: Gate) -> Iterator[StubServer]:
    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.user_text == "call and hold" and prompt.messages[-1].role != "tool":
            return Reply([ToolCalls([ToolCall("note", {"text": "a"})])])
        if prompt.user_text == "fail":
            return Reply([Text("Half"), Failure("kaput")])
        return Reply([Text(["one "]), gate, Text("two")]) if "hold" in prompt.user_text else None

    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub
        gate.open()


def begin(api: Api, session_id: str, message: str | None, **headers: str) -> str:
    body = {"message": message, "background": True}
    run = api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=headers), 202)
    return str(run["run_id"])


def run_of(api: Api, session_id: str) -> dict[str, Any]:
    run: dict[str, Any] = api.ok(api.http.get(f"/chat/{session_id}/run"))
    return run


def killed(data_dir: Path) -> Path:
    """Return a copy of the files of a live server."""
    copy = data_dir.with_name("killed")
    shutil.copytree(data_dir, copy, ignore=shutil.ignore_patterns("wait", ".lock*"))
    return copy


def noted(data_dir: Path) -> list[str]:
    file = data_dir / "tools" / "notes.txt"
    return file.read_text().split() if file.exists() else []


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    write_tools(directory, TOOLS)
    return directory


def test_killed_turn_continues_with_one_answer_and_one_webhook(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    receiver = Receiver()
    with RunningServer(data_dir, stub.url) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        run_id = begin(server.client, session_id, "hold")
        stub.wait_for(lambda exchanges: any(e.path == "/api/chat" and e.chunks for e in exchanges))
        copy = killed(data_dir)
        with RunningServer(
            copy, stub.url, **receiver.settings, summarization_enabled=False
        ) as other:
            api = other.client
            until(lambda: run_of(api, session_id).get("continues") == run_id)
            assert run_of(api, session_id)["state"] == "running"
            with api.http.stream(
                "GET", f"/chat/{session_id}/stream", headers={"Last-Event-ID": f"{run_id}:1"}
            ) as sent:
                events = read_events(sent)
                assert next(events).type == "snapshot"
                gate.open()
                rest = list(events)
            assert (text_of(rest), rest[-1].type) == ("one two", "done")
            assert [message["content"] for message in api.messages(session_id)] == [
                "hold",
                "one two",
            ]
            assert [event["type"] for event in receiver.wait(1)] == ["run.completed"]
            assert receiver.wait(1)[0]["data"]["run_id"] == run_of(api, session_id)["run_id"]
    receiver.close()


def test_stopped_server_leaves_a_background_turn_to_the_next_one(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        run_id = begin(server.client, session_id, "hold")
    gate.open()
    with RunningServer(data_dir, stub.url) as server:
        until(lambda: run_of(server.client, session_id)["state"] == "completed")
        assert run_of(server.client, session_id)["continues"] == run_id
        assert [message["content"] for message in server.client.messages(session_id)] == [
            "hold",
            "one two",
        ]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_interrupted_regeneration_without_an_answer_goes_on_or_ends(
    stub: StubServer, gate: Gate, data_dir: Path, *, is_stopped: bool
) -> None:
    old: list[dict[str, Any]] = [
        {"role": "user", "content": "hold"},
        {"role": "assistant", "content": "old"},
    ]
    file = {"metadata": {"model": "mochi"}, "messages": old}
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        imported = server.client.ok(server.client.http.post("/sessions/import", json=file), 201)
        session_id = imported["sessions"][0]["session_id"]
        begin(server.client, session_id, None)
    gate.open()
    if is_stopped:
        stub.stop()  # the turn does not continue before
    with RunningServer(data_dir, stub.url) as server:
        api = server.client
        if is_stopped:
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
        until(lambda: run_of(api, session_id)["state"] != "running")
    stored = json.loads((data_dir / "chat_sessions" / f"{session_id}.json").read_text())
    answer, turn = stored["messages"][-1], stored["metadata"]["turn"]
    if is_stopped:
        assert (answer["content"], turn["state"], turn.get("answer_id")) == ("old", "stopped", None)
    else:
        assert (answer["content"], turn["state"]) == ("one two", "completed")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_call_that_has_begun_does_not_run_again(
    stub: StubServer, data_dir: Path, is_stopped: bool
) -> None:
    (data_dir / "tools" / "wait").touch()
    message = instruct(
        {
            "tool_call": [
                *calls("note", text="a")["tool_call"],
                *calls("note", text="b")["tool_call"],
            ]
        },
        words(3),
    )
    with RunningServer(data_dir, stub.url) as server:
        session_id = server.client.create_session("mochi", **SETTINGS)["session_id"]
        begin(server.client, session_id, message)
        until(lambda: noted(data_dir) == ["a"])
        copy = killed(data_dir)
        (data_dir / "tools" / "wait").unlink()
    if is_stopped:
        stub.stop()  # the turn does not continue before
    with RunningServer(copy, stub.url) as server:
        api = server.client
        if is_stopped:
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
        until(lambda: run_of(api, session_id)["state"] in ("completed", "stopped"))
        results = [m for m in api.messages(session_id) if m["role"] == "tool"]
    assert "outcome is unknown" in results[0]["content"]
    assert (results[1]["content"] == "Noted b.") != is_stopped
    assert noted(copy) == (["a"] if is_stopped else ["a", "b"])


def test_agent_continues_with_the_turn_that_called_it(stub: StubServer, data_dir: Path) -> None:
    write_agent(data_dir)
    message = nested(delegate(words(1), calls("note", text="x"), calls("wait"), words(2)), words(3))
    policy = {"execution_policy": "never_confirm"}
    settings = {
        "agent_settings": {"enabled_agents": ["helper"]},
        "tool_settings": {"tools": [], **policy},
    }
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        api = server.client
        session_id = api.create_session("mochi", **settings)["session_id"]
        begin(api, session_id, message)
        until(lambda: notes(data_dir) == ["x"])
        until(
            lambda: has_started(data_dir / "agents" / "agent_chats", index=1)
        )  # this call waits for ever
        copy = killed(data_dir)
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
    with RunningServer(copy, stub.url) as server:
        api = server.client
        until(lambda: run_of(api, session_id)["state"] == "completed")
        result = api.messages(session_id)[2]
        assert [message["role"] for message in api.messages(session_id)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert "Result of note: Noted." in result["content"]
        assert "outcome is unknown" in result["content"]
        assert len(api.ok(api.http.get("/agents/chats"))["sessions"]) == 1
    assert notes(copy) == ["x"]


def has_started(folder: Path, *, index: int) -> bool:
    """Return whether the files of the sessions in a folder contain that a call has begun."""
    mark = f'"started_index":{index}'.encode()
    return any(mark in file.read_bytes().replace(b": ", b":") for file in folder.glob(".*.jsonl"))


def test_turn_is_started_at_most_three_times(stub: StubServer, gate: Gate, data_dir: Path) -> None:
    receiver = Receiver()
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        run_id = begin(server.client, session_id, "hold")
    file = data_dir / "chat_sessions" / f"{session_id}.json"
    session = json.loads(file.read_text())
    session["metadata"]["turn"]["starts"] = 3
    file.write_text(json.dumps(session))
    with RunningServer(data_dir, stub.url, **receiver.settings) as server:
        until(lambda: run_of(server.client, session_id)["state"] == "failed")
        with server.client.http.stream(
            "GET", f"/chat/{session_id}/stream?after={run_id}:0"
        ) as sent:
            (error,) = [event.data for event in read_events(sent) if event.type == "error"]
        assert error["code"] == "SERVER_LOST"
        # The server was stopped, not killed.
        assert "started 3 times, and its server stopped or died each time" in error["message"]
        assert receiver.wait(1)[0]["type"] == "run.failed"
        server.client.send_message(session_id, "Hi")
    receiver.close()
    gate.open()


def test_failed_turn_has_its_own_error_after_a_restart(stub: StubServer, data_dir: Path) -> None:
    with RunningServer(data_dir, stub.url) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        with server.client.open_stream(session_id, "fail") as events:
            (seen,) = [event for event in events if event.type == "error"]
    with RunningServer(data_dir, stub.url) as server:
        run_id = seen.id.partition(":")[0]
        with server.client.http.stream(
            "GET", f"/chat/{session_id}/stream?after={run_id}:0"
        ) as sent:
            (error,) = [event.data for event in read_events(sent) if event.type == "error"]
    assert (error["code"], error["message"]) == (seen.data["code"], seen.data["message"])
    assert error["code"] != "SERVER_LOST"


def test_setting_ends_interrupted_background_turns(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        begin(server.client, session_id, "hold")
    gate.open()
    with RunningServer(data_dir, stub.url, continue_background_turns=False) as server:
        until(lambda: run_of(server.client, session_id)["state"] == "failed")


def test_stop_ends_a_turn_that_is_about_to_continue(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        begin(server.client, session_id, "hold")
    with RunningServer(data_dir, stub.url) as server:
        assert (
            server.client.ok(server.client.http.post(f"/chat/{session_id}/stop"))["state"]
            == "stopped"
        )
        gate.open()
        server.client.send_message(session_id, "Hi")
        assert [message["role"] for message in server.client.messages(session_id)][-2:] == [
            "user",
            "assistant",
        ]


def test_message_does_not_end_a_turn_that_is_about_to_continue(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        begin(server.client, session_id, "hold")
    gate.open()
    stub.stop()
    components = Components(runs=RunLimits(scan_seconds=0.05, retry_seconds=0.05))
    with RunningServer(data_dir, stub.url, components) as server:
        api = server.client
        denies = {"message": "Hi", "if_waiting": "deny"}
        assert error_of(api.http.post(f"/chat/{session_id}", json=denies)) == (409, "SESSION_BUSY")
        refused = Frontend(api, session_id).post_ai_sdk(user("Hi"))
        assert error_of(refused) == (409, "SESSION_BUSY")
        stub.start()
        until(lambda: run_of(api, session_id)["state"] == "completed")
        contents = [message["content"] for message in api.messages(session_id)]
    assert contents == ["hold", "one two"]


@pytest.mark.parametrize("field", ["input", "first"])
def test_unreadable_turn_ends_as_interrupted(
    stub: StubServer, gate: Gate, data_dir: Path, field: str
) -> None:
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        begin(server.client, session_id, "hold")
    gate.open()
    file = data_dir / "chat_sessions" / f"{session_id}.json"
    session = json.loads(file.read_text())
    session["metadata"]["turn"][field] = {"model": 5} if field == "input" else 99
    file.write_text(json.dumps(session))
    with RunningServer(data_dir, stub.url) as server:
        until(lambda: run_of(server.client, session_id)["state"] == "failed")
        assert [message["content"] for message in server.client.messages(session_id)] == ["hold"]
        server.client.send_message(session_id, "Hi")


def test_repeated_key_of_an_interrupted_turn_continues_with_its_results(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    body, key = {"message": "call and hold"}, {"Idempotency-Key": "k1"}
    with RunningServer(data_dir, stub.url) as server:
        api = server.client
        session_id = api.create_session("mochi", **SETTINGS)["session_id"]
        with api.http.stream("POST", f"/chat/{session_id}/stream", json=body, headers=key) as sent:
            events = read_events(sent)
            assert any(event.type == "content_delta" for event in events)
            copy = killed(data_dir)
            del events  # until now, it keeps the connection
    gate.open()
    with RunningServer(copy, stub.url) as server:
        answer = server.client.ok(
            server.client.http.post(f"/chat/{session_id}", json=body, headers=key)
        )
        assert answer["message"]["content"] == "one two"
        roles = [stored["role"] for stored in server.client.messages(session_id)]
        assert roles == ["user", "assistant", "tool", "assistant"]
    assert noted(copy) == ["a"]


class FullStore(FileSessionStore):
    """Store on a disk that is full."""

    is_full = False

    async def write(self, session_id: str, change: Change) -> int:
        if self.is_full:
            raise StorageFailed("save", OSError(28, "No space left on device"))
        return await super().write(session_id, change)


@pytest.mark.parametrize("path", ["native", "responses"])
def test_background_turn_is_accepted_when_it_is_stored(
    stub: StubServer, data_dir: Path, path: str
) -> None:
    with RunningServer(data_dir, stub.url, with_store(FullStore)) as server:
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        server.app.state.services.stores.chats.is_full = True
        if path == "native":
            refused = api.http.post(
                f"/chat/{session_id}", json={"message": "Hi", "background": True}
            )
        else:
            body = {"model": "mochi", "input": "Hi", "background": True}
            refused = api.http.post(
                f"{server.url}/v1/responses", json=body, headers={"X-Mochi-Session": session_id}
            )
        assert refused.status_code == 500, refused.text
        if path == "native":
            assert error_of(refused) == (500, "STORAGE_FAILED")
        assert api.messages(session_id) == []


def test_expiry_of_an_approval_on_a_full_disk_ends_the_turn_later(
    stub: StubServer, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tools(data_dir, TOOLS)
    runs = RunLimits(scan_seconds=0.05, retry_seconds=0.05)
    components = replace(with_store(FullStore), runs=runs)
    settings: dict[str, Any] = {"tool_confirmation_timeout_seconds": 1}
    with RunningServer(data_dir, stub.url, components, **settings) as server:
        api = server.client
        tools = {"tool_settings": {"tools": ["note"]}}
        session_id = api.create_session("mochi", **tools)["session_id"]
        begin(api, session_id, instruct(calls("note", text="x"), words(2)))
        until(lambda: run_of(api, session_id)["state"] == "waiting_for_approval")
        chats = server.app.state.services.stores.chats
        chats.is_full = True
        until(lambda: "No space left on device" in caplog.text)
        chats.is_full = False
        until(lambda: run_of(api, session_id)["state"] == "completed")
    assert noted(data_dir) == []


def in_the_earlier_format(file: Path) -> None:
    """Rewrite the file of a session whose turn waits as servers before format 1.4 wrote it."""
    session = json.loads(file.read_text())
    metadata = session["metadata"]
    turn = metadata.pop("turn")
    approval = turn["approval"]
    agent = approval.get("agent")
    if agent is not None:
        agent["parent_call_id"] = agent.pop("call_id")
    metadata["format_version"] = "1.3"
    metadata["last_run"] = {"run_id": turn["run_ids"][-1], "state": "running", "answer_id": None}
    metadata["pending_approval"] = {
        "due": turn.get("due"),
        **{
            "source": None,
            "decision": None,
            "replacement": None,
            "started": None,
            **approval,
            "agent": agent,
        },
        "run_id": turn["run_ids"][-1],
        "earlier": turn["run_ids"][:-1],
        "events": turn.get("events", 0),
        "position": turn["first"],
        "input": turn["input"],
    }
    file.write_text(json.dumps(session))


@pytest.mark.parametrize("in_agent", [False, True], ids=["session", "agent"])
def test_turn_that_waits_in_a_file_of_an_earlier_version_continues(
    stub: StubServer, data_dir: Path, in_agent: bool
) -> None:
    write_agent(data_dir)
    settings: dict[str, Any] = {"tool_settings": {"tools": ["note"]}}
    message = instruct(calls("note", text="a"), words(3))
    if in_agent:
        settings = {"agent_settings": {"enabled_agents": ["helper"]}}
        message = nested(delegate(words(1), calls("note", text="a"), words(2)), words(3))
    with RunningServer(data_dir, stub.url) as server:
        api = server.client
        session_id = api.create_session("mochi", **settings)["session_id"]
        begin(api, session_id, message)
        path = f"/chat/{session_id}/confirmations"
        until(lambda: api.ok(api.http.get(path))["confirmations"])
    in_the_earlier_format(data_dir / "chat_sessions" / f"{session_id}.json")
    if in_agent:
        (file,) = (data_dir / "agents" / "agent_chats").glob("*.json")
        chat = json.loads(file.read_text())
        del chat["metadata"]["turn"]
        chat["metadata"] |= {
            "format_version": "1.3",
            "pending_approval": {"due": None, "session_id": session_id},
        }
        file.write_text(json.dumps(chat))
    with RunningServer(data_dir, stub.url) as server:
        api = server.client
        (call,) = api.ok(api.http.get(path))["confirmations"]
        body = {"confirmation_id": call["confirmation_id"], "approved": True}
        api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=body))
        until(lambda: run_of(api, session_id)["state"] == "completed")
        assert [m["role"] for m in api.messages(session_id)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
    assert (notes(data_dir) if in_agent else noted(data_dir)) == (["a"])


def test_repeated_request_finds_the_turn_that_continues(
    stub: StubServer, gate: Gate, data_dir: Path
) -> None:
    key = {"Idempotency-Key": "k1"}
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        run_id = begin(server.client, session_id, "hold", **key)
    with RunningServer(data_dir, stub.url) as server:
        api = server.client
        until(lambda: run_of(api, session_id).get("continues") == run_id)
        continued = run_of(api, session_id)["run_id"]
        assert begin(api, session_id, "hold", **key) == continued
        assert begin(api, session_id, "hold", **key) == continued
        gate.open()
        body = {"message": "hold"}
        answer = api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=key))
        assert answer["message"]["content"] == "one two"
        assert run_of(api, session_id)["state"] == "completed"
        assert [message["content"] for message in api.messages(session_id)] == ["hold", "one two"]


def test_agent_that_failed_before_the_kill_fails_its_call(stub: StubServer, data_dir: Path) -> None:
    write_agent(data_dir)
    message = nested(delegate(words(1), calls("note", text="x"), calls("wait"), words(2)), words(3))
    settings = {
        "agent_settings": {"enabled_agents": ["helper"]},
        "tool_settings": {"tools": [], "execution_policy": "never_confirm"},
    }
    with RunningServer(data_dir, stub.url, shutdown_grace_seconds=0) as server:
        api = server.client
        session_id = api.create_session("mochi", **settings)["session_id"]
        begin(api, session_id, message)
        until(lambda: notes(data_dir) == ["x"])
    (file,) = (data_dir / "agents" / "agent_chats").glob("*.json")
    chat = json.loads(file.read_text())
    chat["metadata"]["turn"] |= {
        "state": "failed",
        "error": {"code": "OLLAMA_ERROR", "message": "Out of order."},
    }
    file.write_text(json.dumps(chat))
    with RunningServer(data_dir, stub.url) as server:
        until(lambda: run_of(server.client, session_id)["state"] == "completed")
        result = server.client.messages(session_id)[2]
        assert not result["success"]
        assert "The agent failed: Out of order." in result["content"]
        run_id = run_of(server.client, session_id)["run_id"]
        url = f"/chat/{session_id}/stream?after={run_id}:0"
        with server.client.http.stream("GET", url) as response:
            events = read_events(response)
            (complete,) = [event for event in events if event.type == "agent_complete"]
        assert complete.data["error_code"] == "OLLAMA_ERROR"
