"""Background turns of a killed server continue at another server of the same database."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.servers.conftest import Start
from tests.support.api import Api, read_events
from tests.support.holding import GatedStub
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def follow(url: str, session_id: str, last_id: str) -> str:
    """Follow the stream of a turn, at each end again, until it is complete.

    Return the type of the last event.
    """
    with Api(url) as api:
        while True:
            headers = {"Last-Event-ID": last_id}
            with api.http.stream("GET", f"/chat/{session_id}/stream", headers=headers) as response:
                if response.status_code == 204:
                    return "204"
                assert response.status_code == httpx.codes.OK, response.read()
                for event in read_events(response):
                    last_id = event.id or last_id
                    if event.type == "done":
                        return "done"


def test_clients_of_all_servers_follow_a_turn_that_one_of_them_continues(
    start: Start, holding: GatedStub
) -> None:
    first, *others = (start() for _ in range(3))
    with Api(first.url) as api:
        session_id = api.create_session("mochi")["session_id"]
        run = api.ok(
            api.http.post(f"/chat/{session_id}", json={"message": "hold", "background": True}), 202
        )
        holding.stub.wait_for(
            lambda all_: any(e.path == "/api/chat" and e.chunks >= 3 for e in all_)
        )
        first.kill()
    with ThreadPoolExecutor(2) as pool:
        following = [
            pool.submit(follow, other.url, session_id, f"{run['run_id']}:1") for other in others
        ]
        with Api(others[0].url) as api:
            path = f"/chat/{session_id}/run"
            until(lambda: api.ok(api.http.get(path)).get("continues") == run["run_id"])
            holding.gate.open()
            until(lambda: api.ok(api.http.get(path))["state"] == "completed")
        assert [each.result(60) for each in following] == ["done", "done"]
        with Api(others[1].url) as api:
            assert [message["content"] for message in api.messages(session_id)] == [
                "hold",
                "one two three four",
            ]
