"""Clients that disconnect at any stage of a request: nothing continues to run, and the session can be used."""

import sys
from collections.abc import Callable, Iterator

import pytest

from tests.faults.rounds import share
from tests.faults.rude_clients import RudeClient
from tests.faults.world import World, world
from tests.sessions.processes import DEADLINE
from tests.support.instructions import calls, instruct
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")


@pytest.fixture(scope="module", params=["thread", pytest.param("process", marks=pytest.mark.slow)])
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("data"), in_thread=request.param == "thread") as here:
        yield here


def in_the_head(client: RudeClient, here: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "Hello!"}, share=0.4)


def in_the_body(client: RudeClient, here: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "Hello!"}, share=0.95)


def before_the_first_event(client: RudeClient, here: World, session_id: str) -> None:
    here.clear_journal()
    client.send_request(f"/chat/{session_id}/stream", {"message": "wait"})
    until(here.model_was_called, DEADLINE)


def at_once(client: RudeClient, here: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "wait"})


def in_the_stream(client: RudeClient, here: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "half"})
    client.reads_until(b"event: content_delta")


def in_a_fast_stream(client: RudeClient, here: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "long"})
    client.reads_until(b"event: content_delta")


def when_asked_for_approval(client: RudeClient, here: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": instruct(calls("hang"))})
    client.reads_until(b"event: tool_call_confirmation_required")


def during_a_tool_call(client: RudeClient, here: World, session_id: str) -> None:
    settings = {"tools": ["hang"], "execution_policy": "never_confirm"}
    here.api.ok(here.api.http.patch(f"/sessions/{session_id}", json={"tool_settings": settings}))
    client.send_request(f"/chat/{session_id}/stream", {"message": instruct(calls("hang"))})
    client.reads_until(b"event: tool_call")


def waiting_for_a_whole_answer(client: RudeClient, here: World, session_id: str) -> None:
    here.clear_journal()
    client.send_request(f"/chat/{session_id}", {"message": "half"})
    until(here.model_was_called, DEADLINE)


Stage = Callable[[RudeClient, World, str], None]
STAGES: list[Stage] = [
    in_the_head,
    in_the_body,
    at_once,
    before_the_first_event,
    in_the_stream,
    in_a_fast_stream,
    when_asked_for_approval,
    during_a_tool_call,
    waiting_for_a_whole_answer,
]


@pytest.mark.parametrize("resets", [False, True], ids=["closing", "resetting"])
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_disconnect_at_any_stage_leaves_nothing_behind(here: World, stage: Stage, resets: bool) -> None:
    sessions = [here.create_session() for _ in range(1 if here.in_thread else share(4))]
    for session_id in sessions:
        with RudeClient(here.address, resets=resets) as client:
            stage(client, here, session_id)
        assert here.is_healthy()
    for session_id in sessions:
        here.wait_until_ended(session_id)
    here.wait_until_idle()
    here.wait_for_connections_to_stub(here.idle_connections + 1)
    for session_id in sessions:
        assert here.api.send_message(session_id, "Go on", if_busy="wait")["message"]["content"]
        assert here.api.messages(session_id)[-2]["content"] == "Go on"
        assert here.api.ok(here.api.http.get(f"/chat/{session_id}/confirmations")) == {"confirmations": []}
