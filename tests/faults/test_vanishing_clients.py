"""Clients that disconnect at any stage of a request: nothing continues to run, and the session can
be used.
"""

import sys
from collections.abc import Callable, Iterator

import pytest

from tests.faults.raw_client import RawClient
from tests.faults.rounds import share
from tests.faults.world import World, world
from tests.sessions.processes import DEADLINE
from tests.support.instructions import calls, instruct
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")


@pytest.fixture(scope="module", params=["thread", pytest.param("process", marks=pytest.mark.slow)])
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("data"), in_thread=request.param == "thread") as environment:
        yield environment


def during_head(client: RawClient, environment: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "Hello!"}, share=0.4)


def during_body(client: RawClient, environment: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "Hello!"}, share=0.95)


def before_first_event(client: RawClient, environment: World, session_id: str) -> None:
    environment.clear_journal()
    client.send_request(f"/chat/{session_id}/stream", {"message": "wait"})
    until(environment.model_was_called, DEADLINE)


def immediately(client: RawClient, environment: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "wait"})


def during_stream(client: RawClient, environment: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "half"})
    client.read_until(b"event: content_delta")


def during_fast_stream(client: RawClient, environment: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": "long"})
    client.read_until(b"event: content_delta")


def during_approval(client: RawClient, environment: World, session_id: str) -> None:
    client.send_request(f"/chat/{session_id}/stream", {"message": instruct(calls("hang"))})
    client.read_until(b"event: tool_call_confirmation_required")


def during_tool_call(client: RawClient, environment: World, session_id: str) -> None:
    settings = {"tools": ["hang"], "execution_policy": "never_confirm"}
    environment.api.ok(
        environment.api.http.patch(f"/sessions/{session_id}", json={"tool_settings": settings})
    )
    client.send_request(f"/chat/{session_id}/stream", {"message": instruct(calls("hang"))})
    client.read_until(b"event: tool_call")


def during_collected_answer(client: RawClient, environment: World, session_id: str) -> None:
    environment.clear_journal()
    client.send_request(f"/chat/{session_id}", {"message": "half"})
    until(environment.model_was_called, DEADLINE)


def during_summary(client: RawClient, environment: World, session_id: str) -> None:
    environment.api.send_message(session_id, "Hello!")
    environment.clear_journal()
    client.send_request(f"/sessions/{session_id}/summarize", {})
    until(environment.model_was_called, DEADLINE)


Stage = Callable[[RawClient, World, str], None]
STAGES: list[Stage] = [
    during_head,
    during_body,
    immediately,
    before_first_event,
    during_stream,
    during_fast_stream,
    during_approval,
    during_tool_call,
    during_collected_answer,
    during_summary,
]


@pytest.mark.parametrize(
    "resets",
    [pytest.param(False, id="closing"), pytest.param(True, id="resetting", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_disconnect_at_any_stage_leaves_nothing_behind(
    environment: World, stage: Stage, resets: bool
) -> None:
    sessions = [
        environment.create_session() for _ in range(1 if environment.in_thread else share(4))
    ]
    for session_id in sessions:
        with RawClient(environment.address, resets=resets) as client:
            stage(client, environment, session_id)
        assert environment.is_healthy()
    for session_id in sessions:
        environment.wait_until_ended(session_id)
    environment.wait_until_idle()
    environment.wait_for_connections_to_stub(environment.idle_connections + 1)
    for session_id in sessions:
        answer = environment.api.send_message(
            session_id, "Go on", if_busy="wait", if_waiting="deny"
        )
        assert answer["message"]["content"]
        assert environment.api.messages(session_id)[-2]["content"] == "Go on"
        assert environment.api.ok(
            environment.api.http.get(f"/chat/{session_id}/confirmations")
        ) == {"confirmations": []}
