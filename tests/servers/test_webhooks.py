"""Webhooks and stored runs of several servers with one database."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from mochi_stub import Gate, Prompt, Reply, StubServer, Text
from tests.servers.conftest import Start
from tests.support.agents import new_agent_chat, write_agent
from tests.support.api import Api, read_events
from tests.support.holding import GatedStub
from tests.support.waiting import until
from tests.support.webhooks import Receiver

pytestmark = pytest.mark.slow


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


ENDS = {"continue_background_turns": False}
"""Settings of servers that end the background turns of a killed one."""


def test_each_webhook_is_sent_by_one_server(
    start: Start, receiver: Receiver, database: str
) -> None:
    servers = [start(**receiver.settings) for _ in range(2)]
    with Api(servers[0].url) as a, Api(servers[1].url) as b:
        ids = [a.create_session("mochi")["session_id"] for _ in range(10)]
        for index, session_id in enumerate(ids):
            (a, b)[index % 2].send_message(session_id, "Hi")
        events = receiver.wait(10)
        with psycopg.connect(
            database, autocommit=True
        ) as connection:  # until the servers have the responses
            until(lambda: connection.execute("SELECT count(*) FROM webhooks").fetchone() == (0,))
        servers[0].stop()
        servers[1].stop()
    assert sorted(event["data"]["session_id"] for event in events) == sorted(ids)
    assert len(receiver.received) == 10


def test_each_server_counts_the_webhooks_that_wait(start: Start, receiver: Receiver) -> None:
    receiver.answering.clear()
    servers = [start(**receiver.settings) for _ in range(2)]
    with Api(servers[0].url) as a, Api(servers[1].url) as b:
        a.send_message(a.create_session("mochi")["session_id"], "Hi")
        until(lambda: receiver.received)
        for api in (a, b):
            assert "mochi_undelivered_webhooks 1.0" in api.http.get("/metrics").text
        receiver.answering.set()
        until(lambda: "mochi_undelivered_webhooks 0.0" in b.http.get("/metrics").text)


def test_other_server_sends_the_webhooks_of_a_killed_one(start: Start, receiver: Receiver) -> None:
    receiver.statuses = [500]
    first = start(**receiver.settings, **ENDS)
    with Api(first.url) as api:
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hi")
        (unaccepted,) = receiver.wait(1)
        held = api.create_session("mochi")["session_id"]
        run = api.ok(
            api.http.post(f"/chat/{held}", json={"message": "hold", "background": True}), 202
        )
        until(lambda: len(api.messages(held)) > 0)
        first.kill()
    start(**receiver.settings, **ENDS)
    sent = receiver.wait(3, seconds=45)  # the killed server may have claimed the webhook for 30 s
    assert unaccepted in sent[1:]
    assert [each["data"]["run_id"] for each in sent if each["type"] == "run.failed"] == [
        run["run_id"]
    ]


def test_run_of_a_killed_server_has_failed_at_another_one(start: Start, holding: GatedStub) -> None:
    first, second = start(**ENDS), start(**ENDS)
    with Api(first.url) as a, Api(second.url) as b:
        session_id = a.create_session("mochi")["session_id"]
        run = a.ok(
            a.http.post(f"/chat/{session_id}", json={"message": "hold", "background": True}), 202
        )
        assert b.ok(b.http.get(f"/chat/{session_id}/run")) == run
        holding.stub.wait_for(
            lambda all_: any(e.path == "/api/chat" and e.chunks >= 3 for e in all_)
        )
        first.kill()
        expected = {"run_id": run["run_id"], "state": "failed", "answer_id": None}
        until(lambda: b.http.get(f"/chat/{session_id}/run").json() == expected)


def test_background_response_is_controlled_from_another_server(
    start: Start, holding: GatedStub
) -> None:
    first, second = start(**ENDS), start(**ENDS)
    with Api(first.url) as a:
        session_id = a.create_session("mochi")["session_id"]
    headers = {"X-Mochi-Session": session_id}

    def begin() -> str:
        body = {"model": "mochi", "input": "hold", "background": True}
        response = httpx.post(f"{first.url}/v1/responses", json=body, headers=headers)
        assert response.json()["status"] == "in_progress"
        return f"{second.url}/v1/responses/{response.json()['id']}"

    url = begin()
    assert httpx.get(url).json()["status"] == "in_progress"
    with Api(second.url) as b, b.http.stream("GET", f"/chat/{session_id}/stream") as response:
        events = read_events(response)
        assert [next(events).type for _ in range(3)] == [
            "content_delta"
        ] * 3  # the server has the text
    cancelled = httpx.post(f"{url}/cancel", json={}).json()
    assert (cancelled["status"], cancelled["output"][0]["content"][0]["text"]) == (
        "cancelled",
        "one two three ",
    )
    url = begin()
    first.kill()
    until(lambda: httpx.get(url).json()["status"] == "failed")


def test_background_response_of_an_agent_is_controlled_from_another_server(
    start: Start, tmp_path: Path
) -> None:
    def work(prompt: Prompt) -> Reply | None:
        is_asked = any(message.content == "Work." for message in prompt.messages)
        return Reply([Text(["one "]), Gate()]) if is_asked else None

    write_agent(tmp_path)
    agents_dir = str(tmp_path / "agents")
    with StubServer(speed=0, resolve=work) as stub:
        first, second = (start(stub.url, agents_dir=agents_dir) for _ in range(2))
        with Api(first.url) as a:
            headers = {"X-Mochi-Session": new_agent_chat(a)}
        body = {"model": "agent:helper", "input": "Work.", "background": True}
        response = httpx.post(f"{first.url}/v1/responses", json=body, headers=headers)
        url = f"{second.url}/v1/responses/{response.json()['id']}"
        assert httpx.get(url).json()["status"] == "in_progress"
        assert httpx.post(f"{url}/cancel", json={}).json()["status"] == "cancelled"
        assert httpx.get(url).json()["status"] == "cancelled"
