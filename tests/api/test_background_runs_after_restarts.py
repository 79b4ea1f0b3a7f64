"""States of background runs in the session files, and after restarts."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mochi_server.sessions import Change, ChatSession, FileSessionStore
from mochi_stub import Cut, Gate, Prompt, Reply, StubServer, Text
from tests.api.test_background_runs import ended, run_of, start, wait_for_text
from tests.support.api import Api
from tests.support.holding import GatedStub
from tests.support.server import RunningServer
from tests.support.stores import with_store
from tests.support.waiting import until


@pytest.fixture
def server(holding: GatedStub, holding_server: RunningServer) -> RunningServer:
    return holding_server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


def resolve(prompt: Prompt) -> Reply | None:
    if prompt.user_text == "hold":
        return Reply([Text(["one "]), Gate()])
    return Reply([Text(["one "]), Cut()]) if prompt.user_text == "fail" else Reply.of("Fine.")


MESSAGES = {
    **{"completed": "Hi", "stopped": "hold", "failed": "fail", "cancelled": "hold"},
    **{"regenerated": "Hi", "repeated": "Hi"},
}
"""Messages of turns by their end. The end of the server cancels a turn."""
OFF = {"continue_background_turns": False}


def repeatable(api: Api, session_id: str, message: str) -> dict[str, Any]:
    body, key = {"message": message, "background": True}, {"Idempotency-Key": "a"}
    return api.ok(api.http.post(f"/chat/{session_id}", json=body, headers=key), 202)


def test_final_state_is_shown_after_a_restart(tmp_path: Path) -> None:
    with StubServer(speed=0, resolve=resolve) as stub:
        with RunningServer(tmp_path, stub.url, **OFF, shutdown_grace_seconds=0) as server:
            api, runs = server.client, dict[str, dict[str, Any]]()
            sessions = {end: api.create_session("mochi")["session_id"] for end in MESSAGES}
            for end, message in MESSAGES.items():
                runs[end] = repeatable(api, sessions[end], message)
                if message == "hold":
                    wait_for_text(api, sessions[end])
                else:
                    ended(api, sessions[end], runs[end]["run_id"])
            api.ok(api.http.post(f"/chat/{sessions['stopped']}/stop"))
            runs["regenerated"] = start(api, sessions["regenerated"], None)
            ended(api, sessions["regenerated"], runs["regenerated"]["run_id"])
        with RunningServer(tmp_path, stub.url, shutdown_grace_seconds=0) as server:
            runs["repeated"] = repeatable(server.client, sessions["repeated"], MESSAGES["repeated"])
            ended(server.client, sessions["repeated"], runs["repeated"]["run_id"])
        with RunningServer(tmp_path, stub.url) as server:
            api = server.client
            for end, session_id in sessions.items():
                state = end if end in ("stopped", "failed", "cancelled") else "completed"
                answer = api.messages(session_id)[-1]
                expected = {
                    "run_id": runs[end]["run_id"],
                    "state": state,
                    "answer_id": answer["message_id"],
                }
                assert answer["role"] == "assistant"
                assert run_of(api, session_id) == expected
                fork = api.ok(api.http.post(f"/sessions/{session_id}/fork", json={}), 201)
                assert run_of(api, fork["session_id"])["state"] == "idle"


class CountingStore(FileSessionStore):
    """Store that counts the changes of sessions."""

    writes = 0

    async def write(self, session_id: str, change: Change) -> int:
        self.writes += 1
        return await super().write(session_id, change)

    async def patch(self, *arguments: Any, **options: Any) -> ChatSession:
        self.writes += 1
        return await super().patch(*arguments, **options)


def test_completed_turn_stores_its_state_without_another_write(
    tmp_path: Path, stub: StubServer
) -> None:
    components = with_store(CountingStore)
    with RunningServer(tmp_path, stub.url, components, summarization_enabled=False) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hi")
        store: CountingStore = server.app.state.services.stores.chats
        before = store.writes
        server.client.send_message(session_id, "Hi again")
        turn = json.loads((tmp_path / "chat_sessions" / f"{session_id}.json").read_text())[
            "metadata"
        ]["turn"]
        stored = {
            "run_id": turn["run_ids"][-1],
            "state": turn["state"],
            "answer_id": turn["answer_id"],
        }
        assert stored == run_of(server.client, session_id)
    assert store.writes - before == 2


def test_run_of_a_killed_server_has_failed(tmp_path: Path, holding: GatedStub) -> None:
    with RunningServer(tmp_path, holding.stub.url, **OFF, shutdown_grace_seconds=0) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        run = start(server.client, session_id, "hold")
        holding.stub.wait_for(
            lambda all_: any(e.path == "/api/chat" and e.chunks >= 3 for e in all_)
        )
        until(
            lambda: server.client.messages(session_id)
        )  # the user message is stored while the model answers
        copy = tmp_path / "copy"
        is_partial = shutil.ignore_patterns(
            "*.turn.jsonl"
        )  # with a partial answer, on a busy machine
        shutil.copytree(tmp_path / "chat_sessions", copy / "chat_sessions", ignore=is_partial)
    with RunningServer(copy, holding.stub.url) as server:
        expected = {"run_id": run["run_id"], "state": "failed", "answer_id": None}
        assert run_of(server.client, session_id) == expected
