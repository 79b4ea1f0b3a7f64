"""A server that is frozen (SIGSTOP) keeps its connections and locks.

Other servers report it instead of waiting.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.frontends.chats import Frontend, message, user
from tests.support.api import Api, error_of, read_events
from tests.support.cluster import Member
from tests.support.waiting import until

pytestmark = pytest.mark.slow

LOST = (504, "SERVER_LOST")
FIRST_REPORT_SECONDS = 50.0
LATER_REPORT_SECONDS = 2.0

REQUESTS: dict[str, Callable[[Api, str], httpx.Response]] = {
    "stop": lambda api, session_id: api.http.post(f"/chat/{session_id}/stop"),
    "run": lambda api, session_id: api.http.get(f"/chat/{session_id}/run"),
    "confirmations": lambda api, session_id: api.http.get(f"/chat/{session_id}/confirmations"),
    "stream": lambda api, session_id: api.http.get(f"/chat/{session_id}/stream"),
    "confirm-tool": lambda api, session_id: api.http.post(
        f"/chat/{session_id}/confirm-tool",
        json={"confirmation_id": "conf_0123456789", "approved": True},
    ),
    "repeated": lambda api, session_id: api.http.post(
        f"/chat/{session_id}", json={"message": "hold"}, headers={"Idempotency-Key": "k1"}
    ),
    "waiting": lambda api, session_id: api.http.post(
        f"/chat/{session_id}", json={"message": "Hi", "if_busy": "wait"}
    ),
}


@contextmanager
def frozen(member: Member) -> Iterator[None]:
    """Freeze a server while the context is open."""
    process_id = member.process.pid
    assert process_id is not None
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


@contextmanager
def frozen_in_turn(a: Api, member: Member) -> Iterator[str]:
    """Yield a session with a turn at a frozen server.

    The turn was begun with an idempotency key.
    """
    session_id: str = a.create_session("mochi")["session_id"]
    body, key = {"message": "hold"}, {"Idempotency-Key": "k1"}
    with a.http.stream("POST", f"/chat/{session_id}/stream", json=body, headers=key) as response:
        next(read_events(response))
        with frozen(member):
            yield session_id


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_to_a_frozen_server_end_in_server_lost(
    a: Api, b: Api, servers: tuple[Member, Member], name: str
) -> None:
    with frozen_in_turn(a, servers[0]) as session_id:
        began = time.monotonic()
        assert error_of(REQUESTS[name](b, session_id)) == LOST
        assert time.monotonic() - began < FIRST_REPORT_SECONDS


def test_later_requests_to_a_frozen_server_fail_at_once(
    a: Api, b: Api, servers: tuple[Member, Member]
) -> None:
    with frozen_in_turn(a, servers[0]) as session_id:
        assert error_of(REQUESTS["run"](b, session_id)) == LOST
        for name, request in REQUESTS.items():
            began = time.monotonic()
            assert error_of(request(b, session_id)) == LOST, name
            assert time.monotonic() - began < LATER_REPORT_SECONDS, name
        assert b.http.get(f"/sessions/{session_id}").status_code == 200
        assert b.http.post("/tools/reload").status_code == 200
        assert error_of(b.http.post(f"/chat/{session_id}", json={"message": "Hi"})) == (
            409,
            "SESSION_BUSY",
        )
        for path, body in (
            ("", {"message": "Hi", "if_waiting": "deny"}),
            ("/ai-sdk", {"id": session_id, "messages": [user("Hi")]}),
            ("/ag-ui", {"threadId": session_id, "runId": "r1", "messages": [message("Hi")]}),
        ):
            assert error_of(b.http.post(f"/chat/{session_id}{path}", json=body)) == LOST, path
    until(lambda: REQUESTS["run"](b, session_id).is_success)  # from its next heartbeat on
    assert b.ok(b.http.post(f"/chat/{session_id}/stop"))["state"] in ("stopped", "cancelled"), (
        "it answers again"
    )


def test_new_turns_need_no_server_of_an_ended_turn(
    a: Api, b: Api, servers: tuple[Member, Member]
) -> None:
    ai_sdk, ag_ui = (Frontend(b, a.create_session("mochi")["session_id"]) for _ in range(2))
    denying = a.create_session("mochi")["session_id"]
    for session_id in (ai_sdk.session, ag_ui.session, denying):
        a.send_message(session_id, "Hello")
    with frozen(servers[0]):
        assert error_of(REQUESTS["run"](b, ai_sdk.session)) == LOST
        assert ai_sdk.ai_sdk(user("Hi"))[-1]["type"] == "finish"
        assert ag_ui.ag_ui(message("Hi"))[-1]["type"] == "RUN_FINISHED"
        assert b.send_message(denying, "Hi", if_waiting="deny")["message"]["content"] == "Fine."
        for session_id in (ai_sdk.session, ag_ui.session, denying):
            roles = [stored["role"] for stored in b.messages(session_id)]
            assert roles == ["user", "assistant"] * 2


def test_stream_ends_with_an_error_when_its_server_freezes(
    a: Api, b: Api, servers: tuple[Member, Member]
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with a.open_stream(session_id, "hold") as mine:
        next(mine)
        with b.http.stream("GET", f"/chat/{session_id}/stream") as response:
            events = read_events(response)
            next(events)
            with frozen(servers[0]):
                *_, error, done = events
    assert (error.type, error.data["code"], done.type) == ("error", "SERVER_LOST", "done")


def test_session_of_a_frozen_server_can_be_deleted(
    a: Api, b: Api, servers: tuple[Member, Member]
) -> None:
    with frozen_in_turn(a, servers[0]) as session_id:
        assert b.http.delete(f"/sessions/{session_id}").status_code == 204
        assert error_of(b.http.get(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")
