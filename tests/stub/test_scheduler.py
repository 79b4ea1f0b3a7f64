"""Ollama's scheduler as clients observe it: reloads, waiting, queues and memory."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from mochi_stub import Gate, Machine, Model, Prompt, Reply, StubServer, Text
from mochi_stub.models.scheduler import LoadRequest, Scheduler
from tests.stub.requests import send_message, send_request

BUSY = {"error": "server busy, please try again.  maximum pending requests exceeded"}
A, B, C = Model("a"), Model("b"), Model("c")


def state(stub: StubServer) -> dict[str, Any]:
    found: dict[str, Any] = send_request(stub, "GET", "/stub/state").json
    return found


def loaded(stub: StubServer) -> dict[str, int]:
    models = send_request(stub, "GET", "/api/ps").json["models"]
    return {model["model"].removesuffix(":latest"): model["context_length"] for model in models}


def reloads(stub: StubServer, **fields: Any) -> int:
    """Send one more chat and return the number of reloads so far."""
    assert send_message(stub, "hello", **fields).status == 200
    return int(state(stub)["reloads"])


class GatedReplies:
    """Script whose reply to `hold` sends one word and then waits for `gate`."""

    def __init__(self) -> None:
        self.gate = Gate()

    def __call__(self, prompt: Prompt) -> Reply:
        return Reply(
            [Text(("one",)), self.gate] if prompt.user_text == "hold" else [Text(("now",))]
        )


@contextmanager
def open_request(
    stub: StubServer, text: str, model: str = "a", **fields: Any
) -> Iterator[HTTPConnection]:
    """Send a chat and yield its connection when the stub has read the request."""
    before = len(stub.exchanges())
    body = {"model": model, "messages": [{"role": "user", "content": text}], **fields}
    with closing(HTTPConnection(stub.host, stub.port, timeout=10)) as connection:
        connection.request("POST", "/api/chat", json.dumps(body))
        stub.wait_for(lambda seen: len(seen) > before)
        yield connection


def answer(connection: HTTPConnection) -> tuple[int, Any]:
    with closing(connection.getresponse()) as response:
        lines = response.read().split(b"\n")
        return response.status, json.loads(lines[0])


# Reloads


def test_changed_num_ctx_reloads_the_model(private_stub: StubServer) -> None:
    asked_for = [
        {},
        {"num_ctx": 8192},
        {"num_ctx": 8192},
        {"num_ctx": 2048},
        {},
        {},
        {"num_ctx": 4096},
    ]
    assert [reloads(private_stub, options=options) for options in asked_for] == [
        0,
        1,
        1,
        2,
        3,
        3,
        3,
    ]
    rows = [
        (row.num_ctx, row.reload) for row in private_stub.exchanges() if row.path == "/api/chat"
    ]
    assert rows == [
        *((4096, False), (8192, True), (8192, False), (2048, True)),
        *((4096, True), (4096, False), (4096, False)),
    ]


def test_num_ctx_above_the_trained_length_does_not_reload(private_stub: StubServer) -> None:
    fields = [{"num_ctx": 99_999}, {"num_ctx": 8192}]
    assert [reloads(private_stub, model="mochi-chat", options=options) for options in fields] == [
        0,
        0,
    ]
    assert loaded(private_stub) == {"mochi-chat": 8192}


@pytest.mark.parametrize(
    ("before", "after", "reloaded"),
    [
        ({"temperature": 0}, {"temperature": 1, "seed": 5, "stop": ["x"], "num_keep": 9}, 0),
        ({}, {"num_batch": 512, "num_thread": 0, "draft_num_predict": 4}, 0),
        ({}, {"num_batch": 256}, 1),
        ({"num_thread": 4}, {}, 1),
        ({"use_mmap": False}, {"use_mmap": True}, 1),
        ({"main_gpu": 1}, {}, 1),
        ({"num_gpu": 20}, {}, 0),
        ({"num_gpu": 20}, {"num_gpu": 30}, 1),
    ],
)
def test_only_load_time_options_reload_the_model(
    private_stub: StubServer, before: dict[str, Any], after: dict[str, Any], reloaded: int
) -> None:
    assert [reloads(private_stub, options=before), reloads(private_stub, options=after)] == [
        0,
        reloaded,
    ]


def test_shift_reloads_the_model(private_stub: StubServer) -> None:
    assert [
        reloads(private_stub),
        reloads(private_stub, shift=False),
        reloads(private_stub, shift=False),
        reloads(private_stub),
    ] == [0, 1, 1, 2]


def test_first_load_is_not_a_reload(private_stub: StubServer) -> None:
    assert [
        reloads(private_stub, options={"num_ctx": 2048}, keep_alive=0),
        reloads(private_stub),
    ] == [0, 0]
    assert state(private_stub)["loads"] == 2


def test_two_names_of_one_model_share_one_load(private_stub: StubServer) -> None:
    send_request(private_stub, "POST", "/api/copy", {"source": "mochi", "destination": "other"})
    assert [
        reloads(private_stub),
        reloads(private_stub, model="other"),
        reloads(private_stub, model="other", options={"num_ctx": 99}),
    ] == [*(0, 0, 1)]
    assert state(private_stub)["loads"] == 2


def test_load_duration_is_in_the_reply_that_waited() -> None:
    with StubServer(models=[Model("a", load_time=2.5)], speed=0) as stub:
        durations = [
            send_message(stub, "hello", "a", stream=False, options=options).json["load_duration"]
            for options in ({}, {}, {"num_ctx": 8192}, {"num_ctx": 8192}, {})
        ]
    usual = durations[1]
    assert durations == [
        usual + 2_500_000_000,
        usual,
        usual + 2_500_000_000,
        usual,
        usual + 2_500_000_000,
    ]


def test_reload_without_load_time_is_in_the_reply() -> None:
    with StubServer(models=[Model("a"), Model("b")], speed=0) as stub:
        finals = [
            send_message(stub, "hello", name, stream=False, options=options).json
            for name, options in (
                ("a", {}),
                ("a", {"num_ctx": 8192}),
                ("a", {"num_ctx": 8192}),
                ("a", {}),
                ("b", {}),
            )
        ]
    usual = finals[0]["load_duration"]
    more = [final["load_duration"] - usual for final in finals]
    assert more == [0, 100_000_000, 0, 100_000_000, 0]
    assert [final["total_duration"] - finals[0]["total_duration"] for final in finals] == more


def test_reload_waits_only_for_requests_of_its_model() -> None:
    held = GatedReplies()
    with (
        StubServer(models=[A, B], resolve=held, speed=0) as stub,
        open_request(stub, "hold") as first,
    ):
        assert first.getresponse().status == 200
        with open_request(stub, "now", options={"num_ctx": 8192}) as second:
            assert state(stub)["in_flight"] == 2
            assert loaded(stub) == {"a": 4096}
            assert send_message(stub, "now", "a").status == 200  # finds its model loaded
            held.gate.open()
            assert answer(second)[0] == 200
        assert loaded(stub) == {"a": 8192}


# Waiting


def test_held_request_blocks_nothing_by_default() -> None:
    with (
        StubServer(models=[A], resolve=GatedReplies(), speed=0) as stub,
        open_request(stub, "hold"),
    ):
        assert send_message(stub, "now", "a").status == 200


def test_one_slot_serializes_requests_of_a_model() -> None:
    held = GatedReplies()
    with (
        StubServer(models=[A, B], resolve=held, speed=0, machine=Machine(parallel=1)) as stub,
        open_request(stub, "hold") as first,
        open_request(stub, "now") as second,
        open_request(stub, "now") as third,
    ):
        assert send_message(stub, "now", "b").status == 200
        assert state(stub)["waiting"] == 2
        statuses = [exchange.status for exchange in stub.exchanges() if exchange.model == "a"]
        assert statuses == [200, 0, 0]  # headers are withheld until the first token
        held.gate.open()
        assert [answer(one)[0] for one in (first, second, third)] == [200] * 3
        assert state(stub)["waiting"] == 0


async def test_embedding_models_have_one_slot() -> None:
    scheduler = Scheduler(Machine(parallel=2))
    embedder = LoadRequest(Model("e", ("embedding",)))
    leases = [
        asyncio.ensure_future(scheduler.acquire(request))
        for request in (*[LoadRequest(A)] * 3, *[embedder] * 2)
    ]
    await checkpoint()
    assert [lease.done() for lease in leases] == [True, True, False, True, False]
    for lease in leases:
        lease.cancel()


@pytest.mark.parametrize("parallel", [1, 2])
def test_disconnect_leaves_the_slot_queue_at_once(parallel: int) -> None:
    held = GatedReplies()
    machine = Machine(parallel=parallel)
    with (
        StubServer(models=[A], resolve=held, speed=0, machine=machine) as stub,
        ExitStack() as running,
    ):
        for _ in range(parallel):
            running.enter_context(open_request(stub, "hold"))
        with open_request(stub, "now"):
            assert state(stub)["waiting"] == 1
        stub.wait_for(lambda seen: seen[-1].outcome == "cancelled")
        assert state(stub)["waiting"] == 0
        held.gate.open()
        assert send_message(stub, "now", "a").status == 200


async def test_place_given_to_a_cancelled_request_goes_to_the_next_one() -> None:
    scheduler = Scheduler(Machine(parallel=1))
    running = await scheduler.acquire(LoadRequest(A))
    first, second = (asyncio.ensure_future(scheduler.acquire(LoadRequest(A))) for _ in range(2))
    await checkpoint()
    assert scheduler.waiting == 2
    running.release()
    first.cancel()
    (await second).release()
    (await scheduler.acquire(LoadRequest(A))).release()


@pytest.mark.parametrize("stream", [True, False])
def test_full_queue_is_503(stream: bool) -> None:
    held = GatedReplies()
    with (
        StubServer(models=[A, B], resolve=held, speed=0, machine=Machine(max_queue=1)) as stub,
        open_request(stub, "hold"),
        open_request(stub, "now", options={"num_ctx": 8192}) as reloading,
        open_request(stub, "now", "b") as queued,
    ):
        assert state(stub)["queued"] == 1
        refused = send_message(stub, "now", "b", stream=stream)
        assert (refused.status, refused.json) == (503, BUSY)
        assert refused.headers["content-type"] == "application/json; charset=utf-8"
        held.gate.open()
        assert [answer(one)[0] for one in (reloading, queued)] == [200, 200]
        assert state(stub)["queued"] == 0


def test_disconnect_frees_a_place_in_the_load_queue() -> None:
    held = GatedReplies()
    with (
        StubServer(models=[A, B], resolve=held, speed=0, machine=Machine(max_queue=1)) as stub,
        open_request(stub, "hold"),
    ):
        with open_request(stub, "now", options={"num_ctx": 8192}), open_request(stub, "now", "b"):
            assert send_message(stub, "now", "b").status == 503
        stub.wait_for(lambda seen: [one.outcome for one in seen].count("cancelled") == 2)
        assert send_message(stub, "now", "b").status == 200
        held.gate.open()


# Memory


def test_context_that_does_not_fit_is_a_load_error() -> None:
    with StubServer(models=[Model("a", out_of_memory_above=8000)], speed=0) as stub:
        refused = send_message(stub, "hello", "a", options={"num_ctx": 8192})
        assert refused.status == 500
        assert refused.json == {
            "error": "llama-server process has terminated: cudaMalloc failed: out of memory"
        }
        assert loaded(stub) == {}
        assert send_message(stub, "hello", "a", options={"num_ctx": 8000}).status == 200
        assert send_message(stub, "hello", "a", options={"num_ctx": 8001}).status == 500
        assert loaded(stub) == {}  # the models that were loaded before must be unloaded first


def test_default_context_is_lowered_until_it_fits() -> None:
    roomy = Model("a", context_length=40_000, out_of_memory_above=10_000)
    with StubServer(models=[roomy], speed=0) as stub:
        assert send_message(stub, "hello", "a").status == 200
        assert loaded(stub) == {"a": 4096}
    with StubServer(models=[Model("a", out_of_memory_above=100)], speed=0) as stub:
        assert send_message(stub, "hello", "a").status == 500


def test_idle_model_that_expires_first_is_unloaded() -> None:
    held = GatedReplies()
    machine = Machine(max_loaded_models=2)
    with StubServer(models=[A, B, C], resolve=held, speed=0, machine=machine) as stub:
        send_message(stub, "now", "a", keep_alive=100)
        send_message(stub, "now", "b", keep_alive=50)
        send_message(stub, "now", "c")
        assert set(loaded(stub)) == {"a", "c"}
        with (
            open_request(stub, "hold", "a"),
            open_request(stub, "hold", "c"),
            open_request(stub, "now", "b") as third,
        ):
            assert set(loaded(stub)) == {"a", "c"}
            held.gate.open()
            assert answer(third)[0] == 200
        assert "b" in loaded(stub)


def test_machine_sets_default_context_and_keep_alive() -> None:
    machine = Machine(context_length=2048, keep_alive=math.inf)
    with StubServer(speed=0, machine=machine) as stub:
        assert send_message(stub, "hello").status == 200
        (running,) = send_request(stub, "GET", "/api/ps").json["models"]
        assert running["context_length"] == 2048
        assert running["expires_at"] > "2300"


def test_disconnect_during_a_load_stops_it() -> None:
    with StubServer(models=[Model("a", load_time=1000)]) as stub:
        with open_request(stub, "now"):
            assert loaded(stub) == {"a": 4096}
        stub.wait_for(lambda seen: seen[0].outcome == "cancelled")
        assert loaded(stub) == {}
