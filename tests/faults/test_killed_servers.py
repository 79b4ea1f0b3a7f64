"""SIGKILL of the server while it streams: at most the last two seconds of an answer are lost."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.faults.rounds import share
from tests.faults.world import HANGING
from tests.sessions.processes import DEADLINE
from tests.support.api import Api
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command
from tests.support.stub import chats
from tests.support.tools import write_tools

LOST_SECONDS = 2.0
SLACK_SECONDS = 3.0
"""Extra time on a busy machine: writing the checkpoint and sending the text."""

Received = list[tuple[float, str]]
"""Chunks of an answer with the times of their arrival."""


pytestmark = pytest.mark.slow


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=1) as stub:
        yield stub


def arguments(stub: StubServer) -> list[str]:
    return ["--port", "0", "--ollama-host", stub.url]


def test_kill_loses_at_most_two_seconds_of_an_answer(stub: StubServer, tmp_path: Path) -> None:
    check: Callable[[Api], None] = no_sessions
    for _ in range(share(2)):
        with (
            Command("mochi_server", *arguments(stub), cwd=tmp_path) as command,
            command.api() as api,
        ):
            check(api)
            settled = api.create_session("mochi")["session_id"]
            api.send_message(settled, "Hello!")
            resting = {name: api.messages(name) for name in ids_of(api)}
            streaming = [api.create_session("mochi")["session_id"] for _ in range(3)]
            check = partial(
                assert_kept, resting, streaming, *streamed_until_killed(api, command, streaming)
            )
    with Command("mochi_server", *arguments(stub), cwd=tmp_path) as command, command.api() as api:
        check(api)
    assert not list((tmp_path / "chat_sessions").glob("*.corrupt-*"))


def assert_kept(
    resting: dict[str, list[dict[str, Any]]],
    streaming: list[str],
    received: list[Received],
    killed: float,
    api: Api,
) -> None:
    """Idle sessions are unchanged; streaming ones have the text that was received until shortly
    before the kill.
    """
    assert ids_of(api) == {*resting, *streaming}
    for session_id, before in resting.items():
        assert api.messages(session_id) == before
    for session_id, pieces in zip(streaming, received, strict=True):
        question, partial_answer = api.messages(session_id)
        assert (question["role"], partial_answer["interrupted"]) == ("user", True)
        due = "".join(
            text for moment, text in pieces if moment < killed - LOST_SECONDS - SLACK_SECONDS
        )
        assert due
        assert partial_answer["content"].startswith(due)
    api.send_message(streaming[0], "Go on")
    assert len(api.messages(streaming[0])) == 4


def no_sessions(api: Api) -> None:
    assert ids_of(api) == set()


def ids_of(api: Api) -> set[str]:
    return {entry["session_id"] for entry in api.ok(api.http.get("/sessions"))["sessions"]}


def streamed_until_killed(
    api: Api, command: Command, ids: list[str]
) -> tuple[list[Received], float]:
    """Kill the server during endless answers.

    Return the received chunks and the time of the kill.
    """
    received: list[Received] = [[] for _ in ids]
    long_enough = [Event() for _ in ids]

    def listen(number: int) -> None:
        # The stream ends with the process, sometimes within an event.
        with (
            suppress(httpx.HTTPError, AssertionError),
            api.open_stream(ids[number], instruct(words(1_000_000))) as events,
        ):
            for event in events:
                received[number].append((time.monotonic(), event.data["content"]))
                if (
                    received[number][-1][0] - received[number][0][0]
                    > LOST_SECONDS + SLACK_SECONDS + 0.5
                ):
                    long_enough[number].set()

    with ThreadPoolExecutor(len(ids)) as listeners:
        listening = [listeners.submit(listen, number) for number in range(len(ids))]
        try:
            assert all(event.wait(DEADLINE) for event in long_enough)
        finally:
            command.process.kill()
        killed = time.monotonic()
        for listener in listening:
            listener.result()
    return received, killed


def test_session_is_usable_after_kill_during_tool_call(stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, HANGING)
    settings = {"tools": ["hang"], "execution_policy": "never_confirm"}
    with Command("mochi_server", *arguments(stub), cwd=tmp_path) as command, command.api() as api:
        session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
        with (
            suppress(httpx.HTTPError, AssertionError),
            api.open_stream(session_id, instruct(calls("hang"))) as events,
        ):
            assert next(event for event in events if event.type == "tool_call")
            command.process.kill()
            list(events)

    with Command("mochi_server", *arguments(stub), cwd=tmp_path) as command, command.api() as api:
        assert [m["role"] for m in api.messages(session_id)] == ["user", "assistant", "tool"]
        assert api.messages(session_id)[-1]["interrupted"]
        assert api.send_message(session_id, "And now?")["message"]["content"]
        sent = chats(stub)[-1].body["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_pending_approval_is_decided_after_a_restart(
    stub: StubServer, tmp_path: Path, end: str
) -> None:
    write_tools(tmp_path, HANGING)
    settings = {"MOCHI_SHUTDOWN_GRACE_SECONDS": "0", "MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS": "0"}
    with (
        Command("mochi_server", *arguments(stub), cwd=tmp_path, **settings) as command,
        command.api() as api,
    ):
        session_id = api.create_session("mochi", tool_settings={"tools": ["hang"]})["session_id"]
        with (
            suppress(httpx.HTTPError, AssertionError),
            api.open_stream(session_id, instruct(calls("hang"))) as events,
        ):
            request = next(
                event for event in events if event.type == "tool_call_confirmation_required"
            )
            getattr(command.process, end)()
            list(events)

    with Command("mochi_server", *arguments(stub), cwd=tmp_path) as command, command.api() as api:
        decision = {"confirmation_id": request.data["confirmation_id"], "approved": True}
        waiting = {**request.data, "agent_name": None, "state": "waiting"}
        assert api.ok(api.http.get(f"/chat/{session_id}/confirmations")) == {
            "confirmations": [waiting]
        }
        fork = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)["session_id"]
        assert api.ok(api.http.get(f"/chat/{fork}/confirmations")) == {"confirmations": []}
        denial = {**decision, "approved": False}
        api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=denial))
        with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
            response.read()  # until the turn has ended
        assert len(api.messages(session_id)) == 4
        assert api.messages(session_id)[2]["error_code"] == "TOOL_EXECUTION_DENIED"
