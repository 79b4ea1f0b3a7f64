"""Clients that reconnect to a run whose server was killed receive what was stored, an error and the
end.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.support.api import Api, Event, read_events
from tests.support.cluster import Member
from tests.support.instructions import calls, instruct, words
from tests.support.tools import write_tools

pytestmark = pytest.mark.slow

Start = Callable[[], Member]
TOOLS = '''
    import asyncio

    async def endless() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    __all__ = ["endless"]
'''


@pytest.fixture(params=["files", "postgres"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    settings: dict[str, Any] = {"summarization_enabled": False}
    if request.param == "postgres":
        settings["store_url"] = request.getfixturevalue("database")
    with ExitStack() as stack, StubServer(speed=1) as stub:

        def start_server() -> Member:
            member = Member(str(tmp_path), stub.url, **settings)
            stack.callback(member.kill)
            return member

        yield start_server


def kill_during(
    server: Member,
    api: Api,
    session_id: str,
    message: str | None,
    event_type: str = "content_delta",
) -> str:
    """Kill the server after the first text of an answer, or after the first event of another type.
    Return the ID of the last event.
    """
    last_id = ""
    with suppress(httpx.HTTPError), api.open_stream(session_id, message) as events:
        for event in events:
            last_id = event.id or last_id
            if event.type == event_type:
                server.kill()
    return last_id


def reconnect(api: Api, session_id: str, last_id: str) -> list[Event]:
    headers = {"Last-Event-ID": last_id}
    with api.http.stream("GET", f"/chat/{session_id}/stream", headers=headers) as response:
        assert response.status_code == 200
        return list(read_events(response))


def test_lost_run_has_a_snapshot_an_error_and_an_end(start: Start) -> None:
    server = start()
    with Api(server.url) as api:
        session_id = api.create_session("mochi")["session_id"]
        last_id = kill_during(server, api, session_id, instruct(words(200)))
    server = start()
    with Api(server.url) as api:
        events = reconnect(api, session_id, last_id)
        assert [event.type for event in events] == ["snapshot", "error", "done"]
        assert events[1].data["code"] == "SERVER_LOST"
        assert all(event.id.split(":")[0] == last_id.split(":")[0] for event in events)
        assert reconnect(api, session_id, last_id.split(":")[1]) == events
        status = api.ok(api.http.get(f"/chat/{session_id}/run"))
        assert (status["run_id"], status["state"]) == (last_id.split(":")[0], "failed")
        # An answer that replaces an older one is stored when it is complete.
        api.send_message(session_id, instruct(words(40)))
        last_id = kill_during(server, api, session_id, None)
    with Api(start().url) as api:
        events = reconnect(api, session_id, last_id)
        assert next((event.type, event.data.get("content")) for event in events) == ("snapshot", "")
        assert [event.type for event in events][1:] == ["error", "done"]
        unknown = {"Last-Event-ID": "0123456789:3"}
        assert api.http.get(f"/chat/{session_id}/stream", headers=unknown).status_code == 204
        assert (
            json.loads(api.http.get(f"/chat/{session_id}/run").content)["run_id"]
            == last_id.split(":")[0]
        )


def test_lost_run_has_the_events_of_its_calls(start: Start, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    settings = {"tools": ["endless"], "execution_policy": "never_confirm"}
    message = instruct(calls("endless"))
    server = start()
    with Api(server.url) as api:
        session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
        last_id = kill_during(server, api, session_id, message, "tool_call")
    with Api(start().url) as api:
        events = reconnect(api, session_id, last_id)
        assert [event.type for event in events] == [
            "snapshot",
            "tool_call",
            "tool_result",
            "error",
            "done",
        ]


def test_lost_run_lacks_the_stopped_answer_that_it_replaces(start: Start) -> None:
    server = start()
    with Api(server.url) as api:
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, instruct(words(200))) as events:
            for event in events:
                if event.type == "content_delta":
                    api.ok(api.http.post(f"/chat/{session_id}/stop"))
        assert api.messages(session_id)[-1]["interrupted"]
        last_id = kill_during(server, api, session_id, None)
    with Api(start().url) as api:
        assert api.messages(session_id)[-1]["interrupted"]
        snapshot, *_ = reconnect(api, session_id, last_id)
        assert (snapshot.type, snapshot.data["content"]) == ("snapshot", "")
