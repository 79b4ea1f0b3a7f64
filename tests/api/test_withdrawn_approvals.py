"""Settings that change during a turn apply to its next tool call."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.support import postgres
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api, Event, types_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

pytestmark = pytest.mark.two_servers

TOOLS = '''
    import time
    from pathlib import Path

    def pause() -> str:
        """Wait for a file."""
        while not (Path(__file__).parent / "go").exists():
            time.sleep(0.005)
        return "paused"

    def first() -> str:
        """Do the first thing."""
        return "first"

    def second() -> str:
        """Do the second thing."""
        return "second"

    __all__ = ["first", "second", "pause"]
'''
TOOL_NAMES = ["first", "second", "pause"]
ASKED = "tool_call_confirmation_required"


@pytest.fixture(scope="module", params=["files", pytest.param("postgres", marks=pytest.mark.slow)])
def shared_server(
    request: pytest.FixtureRequest,
    shared_stub: StubServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningServer]:
    data_dir, settings = tmp_path_factory.mktemp("withdrawn"), {}
    write_tools(data_dir, TOOLS)
    write_agent(data_dir)
    with ExitStack() as stack:
        if request.param == "postgres":
            settings["store_url"] = stack.enter_context(
                postgres.fresh_schema(postgres.shared_instance().url())
            )
        yield stack.enter_context(
            RunningServer(data_dir, shared_stub.url, summarization_enabled=False, **settings)
        )


class Turn:
    """Stream of a turn and the decisions about its calls."""

    def __init__(self, api: Api, session_id: str, events: Iterator[Event]) -> None:
        self._api, self._session_id, self._events = api, session_id, events
        self.tool_names: list[str] = []

    def wait_for_approval_request(self) -> str:
        event = next(event for event in self._events if event.type == ASKED)
        self.tool_names.append(event.data["tool_name"])
        return str(event.data["confirmation_id"])

    def approve(self, confirmation_id: str, **decision: Any) -> None:
        body = {"confirmation_id": confirmation_id, "approved": True, **decision}
        self._api.ok(self._api.http.post(f"/chat/{self._session_id}/confirm-tool", json=body))

    def patch(self, **settings: Any) -> None:
        body = {"tool_settings": {"tools": TOOL_NAMES, **settings}}
        self._api.ok(self._api.http.patch(f"/sessions/{self._session_id}", json=body))

    def remaining_events(self) -> list[Event]:
        return list(self._events)


def run_turn(
    api: Api, *plan: dict[str, Any], check: Callable[[Turn], None], policy: str = "always_confirm"
) -> str:
    """Run a turn with these calls and return its session id."""
    settings = {"tools": TOOL_NAMES, "execution_policy": policy}
    session_id: str = api.create_session("mochi", tool_settings=settings)["session_id"]
    with api.open_stream(session_id, instruct(*plan)) as events:
        check(Turn(api, session_id, events))
    return session_id


def approved_tools(api: Api, session_id: str) -> list[str]:
    names: list[str] = api.session(session_id)["tool_settings"].get("approved_tools", [])
    return names


def test_withdrawn_approval_is_not_used_again(api: Api) -> None:
    def check(turn: Turn) -> None:
        turn.approve(turn.wait_for_approval_request(), remember="session")
        waiting = turn.wait_for_approval_request()
        turn.patch()
        turn.approve(waiting, remember="session")
        turn.approve(turn.wait_for_approval_request())
        assert turn.tool_names == ["first", "second", "first"]
        assert ASKED not in types_of(turn.remaining_events())

    session_id = run_turn(api, calls("first"), calls("second"), calls("first"), check=check)

    assert approved_tools(api, session_id) == ["second"]
    with api.open_stream(session_id, instruct(calls("first"))) as events:
        assert Turn(api, session_id, events).wait_for_approval_request()


def test_changed_policy_applies_to_the_next_call(api: Api, server: RunningServer) -> None:
    settings = {"tools": TOOL_NAMES, "execution_policy": "never_confirm"}
    session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
    with api.open_stream(
        session_id, instruct(calls("pause"), calls("first"), calls("second"))
    ) as events:
        turn = Turn(api, session_id, events)
        assert (
            next(event for event in events if event.type == "tool_call").data["tool_name"]
            == "pause"
        )
        turn.patch(execution_policy="always_confirm")
        (Path(server.settings.data_dir) / "tools" / "go").touch()
        waiting = turn.wait_for_approval_request()
        turn.patch(execution_policy="never_confirm")
        turn.approve(waiting)
        assert [
            event.data["tool_name"]
            for event in turn.remaining_events()
            if event.type == "tool_call"
        ] == ["second"]
    assert turn.tool_names == ["first"]


def test_removed_tool_is_refused_in_the_same_turn(api: Api) -> None:
    results: list[dict[str, Any]] = []

    def check(turn: Turn) -> None:
        waiting = turn.wait_for_approval_request()
        turn.patch(tools=["first"])
        turn.approve(waiting)
        results.extend(
            event.data for event in turn.remaining_events() if event.type == "tool_result"
        )

    run_turn(api, calls("first"), calls("second"), check=check)

    assert [(result["tool_name"], result["error_code"]) for result in results] == [
        ("first", None),
        ("second", "TOOL_NOT_FOUND"),
    ]


def test_tool_removed_while_its_call_waits_does_not_run(api: Api) -> None:
    results: list[dict[str, Any]] = []

    def check(turn: Turn) -> None:
        waiting = turn.wait_for_approval_request()
        turn.patch(tools=["second"])
        turn.approve(waiting, remember="session")
        results.extend(
            event.data for event in turn.remaining_events() if event.type == "tool_result"
        )

    session_id = run_turn(api, calls("first"), check=check)

    assert [result["error_code"] for result in results] == ["TOOL_NOT_FOUND"]
    assert approved_tools(api, session_id) == []


def test_tools_of_agents_follow_the_calling_sessions_settings(api: Api) -> None:
    settings = {"enabled_agents": ["helper"]}
    session_id = api.create_session("mochi", agent_settings=settings)["session_id"]
    plan = delegate(words(2), calls("look"), calls("note", text="x"), calls("look"), words(2))
    with api.open_stream(session_id, nested(plan)) as events:
        turn = Turn(api, session_id, events)
        turn.approve(turn.wait_for_approval_request(), remember="session")
        waiting = turn.wait_for_approval_request()
        turn.patch()
        turn.approve(waiting, remember="session")
        turn.approve(turn.wait_for_approval_request())
        assert turn.tool_names == ["look", "note", "look"]
        turn.remaining_events()
    assert approved_tools(api, session_id) == ["helper/note"]


def test_agent_disabled_during_a_turn_does_not_run(api: Api) -> None:
    session_id = api.create_session(
        "mochi", agent_settings={"enabled_agents": ["helper"]}, tool_settings={"tools": TOOL_NAMES}
    )["session_id"]
    with api.open_stream(session_id, nested(calls("first"), delegate(calls("look")))) as events:
        turn = Turn(api, session_id, events)
        waiting = turn.wait_for_approval_request()
        api.ok(
            api.http.patch(
                f"/sessions/{session_id}", json={"agent_settings": {"enabled_agents": []}}
            )
        )
        turn.approve(waiting)
        ended = [event.data for event in turn.remaining_events() if event.type == "agent_complete"]
    assert [(data["success"], data["error_code"], data["agent_session_id"]) for data in ended] == [
        (False, "AGENT_NOT_FOUND", None)
    ]
