"""kill -9 of the server at random moments of turns of all kinds: nothing is lost, and nothing
happens twice.

MOCHI_FAULT_ROUNDS=200 kills two hundred servers.
"""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.faults.rounds import ROUNDS
from tests.faults.test_killed_approvals import TOOLS
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api, read_events
from tests.support.cluster import Member
from tests.support.instructions import calls, instruct, words
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import Receiver

DEADLINE_SECONDS = 120.0
KINDS = ["text", "stream", "tools", "agent", "approval"]
WORDS_A_SECOND = 50
"""Speed of the stub's answers."""

pytestmark = pytest.mark.slow


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=2) as stub:
        yield stub


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def new_session(api: Api, kind: str, text: str) -> tuple[str, str]:
    """Create a session for a turn of a kind. Return its ID and the message that starts the turn."""
    free = {"execution_policy": "never_confirm"}
    first, second = calls("note", text=f"{text}-a"), calls("note", text=f"{text}-b")
    settings: dict[str, Any] = {
        "tool_settings": {"tools": ["note"], **(free if kind != "approval" else {})}
    }
    message = instruct(words(30))
    if kind in ("tools", "approval"):
        message = instruct(first, second, words(20))
    elif kind == "agent":
        settings = {
            "agent_settings": {"enabled_agents": ["helper"]},
            "tool_settings": {"tools": [], **free},
        }
        message = nested(delegate(words(3), first, second, words(5)), words(20))
    return api.create_session("mochi", **settings)["session_id"], message


def begin(url: str, kind: str, session_id: str, message: str) -> bool:
    """Send the message of a turn. Return whether the server has acknowledged it."""
    with suppress(httpx.HTTPError), Api(url) as api:
        if kind != "stream":
            body = {"message": message, "background": True}
            return api.http.post(f"/chat/{session_id}", json=body).status_code == 202
        with api.http.stream(
            "POST", f"/chat/{session_id}/stream", json={"message": message}
        ) as sent:
            return any(event.type == "content_delta" for event in read_events(sent))
    return False


def approve_all(api: Api, session_id: str) -> None:
    for waiting in api.ok(api.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]:
        body = {"confirmation_id": waiting["confirmation_id"], "approved": True}
        assert api.http.post(f"/chat/{session_id}/confirm-tool", json=body).status_code in (
            200,
            404,
            408,
            409,
        )


def end_of(url: str, session_id: str) -> dict[str, Any]:
    """Approve the calls of a turn until it has ended. Return its last run."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    with Api(url) as api:
        while time.monotonic() < deadline:
            run: dict[str, Any] = api.ok(api.http.get(f"/chat/{session_id}/run"))
            if run["state"] not in ("running", "waiting_for_approval"):
                return run
            approve_all(api, session_id)
            time.sleep(0.02)
    raise AssertionError(f"the turn of session {session_id} did not end: {run}")


def check(
    api: Api, kind: str, session_id: str, run: dict[str, Any], *, is_acknowledged: bool
) -> None:
    messages = api.messages(session_id)
    if run["state"] == "idle":  # the server was killed before it stored the message
        assert (messages, is_acknowledged) == ([], False)
        return
    assert [message["role"] for message in messages].count("user") == 1
    call_ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    results = [message for message in messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == call_ids
    if kind != "stream":
        assert run["state"] == "completed", (kind, run)
        answers = [m for m in messages if m["role"] == "assistant" and not m.get("tool_calls")]
        assert len(answers) == 1
        assert not answers[0].get("interrupted")


@pytest.mark.parametrize("store", ["files", "postgres"])
def test_killed_servers_lose_nothing_and_do_nothing_twice(
    request: pytest.FixtureRequest, stub: StubServer, receiver: Receiver, tmp_path: Path, store: str
) -> None:
    write_tools(tmp_path, TOOLS)
    write_agent(tmp_path)
    settings: dict[str, Any] = {
        "summarization_enabled": False,
        "park_seconds": 0.2,
        **receiver.settings,
    }
    if store == "postgres":
        settings["store_url"] = request.getfixturevalue("database")
    chance, ended = random.Random(2028), dict[str, str]()
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:

        def start() -> Member:
            member = Member(str(tmp_path), stub.url, **settings)
            stack.callback(member.kill)
            return member

        spare = start() if store == "postgres" else None
        server = start()
        for number in range(max(ROUNDS, len(KINDS))):
            kind = KINDS[number % len(KINDS)]
            with Api(server.url) as api:
                session_id, message = new_session(api, kind, f"n{number}")
            sending = pool.submit(begin, server.url, kind, session_id, message)
            if kind == "approval":
                time.sleep(chance.random() * 0.1)
                with suppress(httpx.HTTPError), Api(server.url) as api:
                    approve_all(api, session_id)
            time.sleep(
                chance.random() * 0.4
            )  # at a random time, so that every step is hit eventually
            server.kill()
            server, spare = (spare, start()) if spare is not None else (start(), None)
            is_acknowledged = sending.result(DEADLINE_SECONDS)
            run = end_of(server.url, session_id)
            with Api(server.url) as api:
                check(api, kind, session_id, run, is_acknowledged=is_acknowledged)
            if run["state"] in ("completed", "failed"):
                ended[session_id] = f"run.{run['state']}"

        def reported() -> dict[str, set[str]]:
            events: dict[str, set[str]] = {}
            for body in [
                json.loads(received) for _, received in receiver.received
            ]:  # signatures are valid for minutes
                if body["type"] != "run.waiting_for_approval":
                    events.setdefault(body["data"]["session_id"], set()).add(body["type"])
            return events

        until(lambda: reported().keys() >= ended.keys(), DEADLINE_SECONDS)
        assert reported() == {session_id: {event} for session_id, event in ended.items()}
    for notes in (tmp_path / "tools" / "notes.txt", tmp_path / "agents" / "helper" / "notes.txt"):
        lines = notes.read_text().split() if notes.exists() else []
        assert len(lines) == len(set(lines)), "a call ran twice"


@pytest.mark.parametrize("seconds", [0.5, pytest.param(20, marks=pytest.mark.nightly)])
def test_background_turn_has_one_answer_whenever_its_server_is_killed(
    tmp_path: Path, seconds: float
) -> None:
    """A turn of so many seconds with two calls, killed at ten moments of its duration."""
    write_tools(tmp_path, TOOLS.replace("sleep(0.02)", f"sleep({seconds / 5})"))
    notes = tmp_path / "tools" / "notes.txt"
    settings = {"summarization_enabled": False}
    with StubServer(speed=1) as stub, StubServer(speed=0) as fast_stub:
        for moment in range(10):
            server = Member(str(tmp_path), stub.url, **settings)
            with Api(server.url) as api:
                session_id = new_session(api, "tools", "")[0]
                a, b = calls("note", text=f"a{moment}"), calls("note", text=f"b{moment}")
                message = instruct(a, b, words(round(seconds * WORDS_A_SECOND * 3 / 5)))
                body = {"message": message, "background": True}
                api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
            time.sleep(seconds * (moment + 0.5) / 10)
            server.kill()
            server = Member(str(tmp_path), fast_stub.url, **settings)
            try:
                run = end_of(server.url, session_id)
                with Api(server.url) as api:
                    check(api, "tools", session_id, run, is_acknowledged=True)
                    messages = api.messages(session_id)
            finally:
                server.kill()
            assert run.get("continues"), "the turn had ended before its server was killed"
            results = [message for message in messages if message["role"] == "tool"]
            lines = notes.read_text().split()
            for result, text in zip(results, [f"a{moment}", f"b{moment}"], strict=True):
                assert lines.count(text) == 1 or (result["interrupted"] and text not in lines)
