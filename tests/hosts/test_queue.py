"""Requests that wait in the server for a slot of an Ollama host."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from mochi_server.config import read_hosts
from mochi_server.errors import OllamaUnreachable
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.waiting import FairQueue, RequestTracker
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_stub import Failure, Gate, Prompt, Reply, StubServer
from tests.hosts.conftest import Start
from tests.support.agents import write_agent
from tests.support.api import Api, error_of
from tests.support.holding import GatedStub
from tests.support.waiting import until


async def test_requests_enter_in_turn_by_session() -> None:
    queue, order, go = FairQueue(1), list[str](), asyncio.Event()

    async def request(session_id: str) -> None:
        async with queue.slot(session_id):
            order.append(session_id)
            await go.wait()

    first = asyncio.ensure_future(request("a"))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(request(each)) for each in ("a", "a", "a", "b", "c")]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *others)
    assert order == ["a", "a", "b", "c", "a", "a"]
    assert (queue.running, queue.waiting) == (0, 0)


async def test_requests_without_a_session_do_not_wait_for_each_other() -> None:
    queue, order, go = FairQueue(1), list[str](), asyncio.Event()

    async def request(session_id: str, name: str) -> None:
        async with queue.slot(session_id):
            order.append(name)
            await go.wait()

    first = asyncio.ensure_future(request("a", "a"))
    await asyncio.sleep(0)
    sent = [("", "embeddings"), ("", "comparison"), ("b", "b")]
    others = [asyncio.ensure_future(request(*each)) for each in sent]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *others)
    assert order == ["a", "embeddings", "comparison", "b"]


async def test_cancelled_request_leaves_the_queue() -> None:
    queue = FairQueue(1)
    async with queue.slot("a"):
        waiting = asyncio.ensure_future(queue.slot("b").__aenter__())
        await asyncio.sleep(0)
        assert queue.position("b") == 1
        waiting.cancel()
        await asyncio.sleep(0)
        assert queue.waiting == 0
        granted = asyncio.ensure_future(queue.slot("c").__aenter__())
        await asyncio.sleep(0)
    granted.cancel()  # after its slot was granted
    await asyncio.wait([granted])
    assert (queue.running, queue.waiting) == (0, 0)


async def test_aborted_requests_raise_the_error() -> None:
    queue = FairQueue(1)
    async with queue.slot("a"):
        waiting = asyncio.ensure_future(queue.slot("b").__aenter__())
        await asyncio.sleep(0)
        queue.abort(ValueError("gone"))
        with pytest.raises(ValueError, match="gone"):
            await waiting
        assert (queue.running, queue.waiting) == (1, 0)


async def test_error_of_a_request_that_waits_for_a_removed_host_names_the_list(
    tmp_path: Path,
) -> None:
    file = tmp_path / "hosts"
    file.write_text("a=http://127.0.0.1:1")
    fleet = ModelGateway(
        partial(AsyncOllamaClient, setting="MOCHI_OLLAMA_HOSTS"),
        hosts=lambda: read_hosts([f"@{file}"], str(tmp_path)),
        hosts_file=file,
        slots=1,
    ).fleet
    (host,) = fleet.active
    async with host.queue.slot("a"):
        waiting = asyncio.ensure_future(host.queue.slot("b").__aenter__())
        await asyncio.sleep(0)
        file.write_text("b=http://127.0.0.1:1/b")
        await fleet.refresh()
        with pytest.raises(OllamaUnreachable, match=r"removed .* or correct MOCHI_OLLAMA_HOSTS"):
            await waiting
    await fleet.aclose()


def test_host_with_a_turn_is_not_idle() -> None:
    tracker = RequestTracker(lambda *_: None)
    until(lambda: tracker.seconds_without_turn() > 0.05)
    with tracker.request("mochi"):
        assert tracker.seconds_without_turn() > 0
        with tracker.request("mochi", is_turn=True):
            assert tracker.seconds_without_turn() == 0
            latest = time.monotonic()
        assert tracker.seconds_without_turn() <= time.monotonic() - latest


@pytest.fixture
def api(start: Start, holding: GatedStub) -> Api:
    return start(ollama_hosts=(), ollama_host=holding.stub.url, ollama_slots=1, max_queue=2).api()


@pytest.fixture
def hold(api: Api) -> Iterator[str]:
    """Occupy the only slot. Return the ID of the session."""
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "hold") as events:
        next(event for event in events if event.type == "content_delta")
        yield str(session_id)


def queued(api: Api) -> int:
    return count(api, "queued")


def count(api: Api, state: str) -> int:
    """Return the number of requests in a state, of all hosts."""
    return sum(int(host[state]) for host in api.ok(api.http.get("/hosts"))["hosts"])


@pytest.mark.slow
def test_waiting_turns_report_their_position(api: Api, hold: str, holding: GatedStub) -> None:
    del hold
    with ExitStack() as stack:
        waiting = []
        for number in (1, 2):
            session_id = api.create_session("mochi")["session_id"]
            waiting.append(stack.enter_context(api.open_stream(session_id, "Hello!")))
            until(lambda number=number: queued(api) == number)  # type: ignore[misc]
        for position, events in enumerate(waiting, 1):
            status = next(event for event in events if event.type == "status")
            assert (status.data["state"], status.data["position"]) == ("queued", position)
        holding.gate.open()
        for events in waiting:
            assert "message_complete" in [event.type for event in events]


def test_full_queue_refuses_turns_before_anything_is_stored(
    api: Api, hold: str, holding: GatedStub
) -> None:
    del hold
    sessions = [api.create_session("mochi")["session_id"] for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        sent = [
            pool.submit(api.http.post, f"/chat/{id}", json={"message": "Hello!"}) for id in sessions
        ]
        until(lambda: sum(each.done() for each in sent) == 4)
        until(lambda: queued(api) == 2)
        assert "mochi_ollama_host_queued_requests{" in api.http.get("/metrics").text
        holding.gate.open()
        responses = [each.result() for each in sent]
    assert sorted(response.status_code for response in responses) == [200, 200, 503, 503, 503, 503]
    for session_id, response in zip(sessions, responses, strict=True):
        if response.status_code == 503:
            assert response.json()["error"]["code"] == "OLLAMA_BUSY"
            assert int(response.headers["Retry-After"]) >= 1
            assert api.messages(session_id) == []


def test_full_queue_refuses_a_summary_before_its_model_is_stored(
    api: Api, holding: GatedStub
) -> None:
    summarized, *sessions = [api.create_session("mochi")["session_id"] for _ in range(4)]
    api.send_message(summarized, "Hello!")
    with ThreadPoolExecutor(2) as pool, api.open_stream(sessions.pop(), "hold") as events:
        next(event for event in events if event.type == "content_delta")
        for session_id in sessions:
            pool.submit(api.http.post, f"/chat/{session_id}", json={"message": "Hello!"})
        until(lambda: queued(api) == 2)
        body = {"model": "mochi"}
        response = api.http.post(f"/sessions/{summarized}/summarize", json=body)
        holding.gate.open()
    assert error_of(response) == (503, "OLLAMA_BUSY")
    assert int(response.headers["Retry-After"]) >= 1
    assert api.session(summarized)["summary_model"] is None


OTHER_REQUESTS = {
    "embeddings": ("/v1/embeddings", {"model": "mochi-embed", "input": "Hello"}),
    "comparison": ("/api/v1/models/test", {"modelIds": ["mochi"], "message": "Hello"}),
    "agent": (
        "/v1/chat/completions",
        {"model": "agent:helper", "messages": [{"role": "user", "content": "Hello"}]},
    ),
}


@pytest.mark.parametrize("kind", OTHER_REQUESTS)
def test_full_queue_refuses_a_burst_of_other_requests(
    start: Start, holding: GatedStub, tmp_path: Path, kind: str
) -> None:
    write_agent(tmp_path)
    host = {"ollama_hosts": (), "ollama_host": holding.stub.url}
    server = start(**host, data_dir=tmp_path, ollama_slots=1, max_queue=2)
    api = server.api()
    path, body = OTHER_REQUESTS[kind]
    with (
        api.open_stream(api.create_session("mochi")["session_id"], "hold") as events,
        ThreadPoolExecutor(6) as pool,
    ):
        next(event for event in events if event.type == "content_delta")
        sent = [pool.submit(api.http.post, f"{server.url}{path}", json=body) for _ in range(6)]
        until(lambda: sum(each.done() for each in sent) == 4)
        holding.gate.open()
        assert sorted(each.result().status_code for each in sent) == [200, 200, 503, 503, 503, 503]


def test_queued_turn_whose_client_leaves_sends_nothing(
    api: Api, hold: str, holding: GatedStub
) -> None:
    del hold
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(session_id, "Goodbye!"):
        until(lambda: queued(api) == 1)
    until(lambda: queued(api) == 0)
    holding.gate.open()
    assert len(holding.chats("finished")) == 1
    assert len([each for each in holding.stub.exchanges() if each.path == "/api/chat"]) == 1


FOREIGN = "error rendering prompt: iban NO93 1234"
"""Error that Ollama reports about one request, with text of its conversation."""


def fail(gate: Gate) -> Reply:
    return Reply([gate, Failure(FOREIGN)])


def stall(_: Gate) -> Reply:
    return Reply([Gate()])


@pytest.mark.parametrize("failing", [fail, stall])
def test_waiting_turns_do_not_fail_with_the_error_of_another_turn(
    start: Start, failing: Callable[[Gate], Reply]
) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply:
        if prompt.user_text == "poison":
            return failing(gate)
        return Reply.of("Fine.")

    with StubServer(speed=0, resolve=resolve) as one, StubServer(speed=0, resolve=resolve) as two:
        api = start(one, two, ollama_slots=1, ollama_stall_timeout_seconds=2).api()
        poisons = [api.create_session("mochi")["session_id"] for _ in range(2)]
        sessions = [api.create_session("mochi")["session_id"] for _ in range(6)]
        with ThreadPoolExecutor(8) as pool:
            for number, session_id in enumerate(poisons, 1):
                pool.submit(api.http.post, f"/chat/{session_id}", json={"message": "poison"})
                until(lambda number=number: count(api, "running") == number)  # type: ignore[misc]
            sent = [
                pool.submit(api.http.post, f"/chat/{id}", json={"message": "Hi"}) for id in sessions
            ]
            until(lambda: queued(api) == 6)
            gate.open()
            responses = [each.result() for each in sent]
    assert [response.status_code for response in responses] == [200] * 6
    assert not any("iban" in response.text for response in responses)
