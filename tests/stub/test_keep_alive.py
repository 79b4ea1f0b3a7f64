"""Loaded models: their context and when they are unloaded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mochi_stub import Gate, Model, Reply, StubServer, Text
from mochi_stub.models import effective_context
from mochi_stub.models.scheduler import LoadRequest, Scheduler
from tests.stub.requests import open_stream, send_message, send_request
from tests.support.cases import cases

A, B = Model("a", context_length=8192), Model("b", parameters={"num_ctx": 2048})


class Times:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def use(
    scheduler: Scheduler, model: Model, keep_alive: float | None = None, **options: Any
) -> None:
    (
        await scheduler.acquire(LoadRequest(model, {**model.parameters, **options}, keep_alive))
    ).release()


def loaded_models(scheduler: Scheduler) -> list[tuple[str, int, float]]:
    now = scheduler.now()
    return [
        (lease.model.name, lease.settings.context, lease.expires_at(now) - now)
        for lease in scheduler.loaded_models()
    ]


async def test_model_stays_loaded_for_five_minutes() -> None:
    times = Times()
    scheduler = Scheduler(now=times)
    await use(scheduler, A)
    assert loaded_models(scheduler) == [("a", 4096, 300)]
    times.now += 299
    assert loaded_models(scheduler) == [("a", 4096, 1)]
    times.now += 1
    assert loaded_models(scheduler) == []


async def test_request_without_keep_alive_keeps_the_setting() -> None:
    scheduler = Scheduler(now=Times())
    await use(scheduler, A, 10)
    await use(scheduler, A)
    assert loaded_models(scheduler) == [("a", 4096, 10)]


async def test_reload_restores_the_default() -> None:
    scheduler = Scheduler(now=Times())
    await use(scheduler, A, 10)
    await use(scheduler, A, num_ctx=8192)
    assert loaded_models(scheduler) == [("a", 8192, 300)]


async def test_time_starts_at_the_end_of_the_last_request() -> None:
    times = Times()
    scheduler = Scheduler(now=times)
    running = await scheduler.acquire(LoadRequest(A, keep_alive=10))
    times.now += 60
    assert loaded_models(scheduler) == [("a", 4096, 10)]
    running.release()
    times.now += 4
    assert loaded_models(scheduler) == [("a", 4096, 6)]


async def test_unloading_waits_for_a_running_request() -> None:
    scheduler = Scheduler(now=Times())
    running = await scheduler.acquire(LoadRequest(A))
    scheduler.unload(A)
    assert [name for name, *_ in loaded_models(scheduler)] == ["a"]
    running.release()
    assert loaded_models(scheduler) == []


async def test_running_models_are_sorted_by_expiry() -> None:
    scheduler = Scheduler(now=Times())
    await use(scheduler, A, 60)
    await use(scheduler, B, math.inf)
    assert [name for name, *_ in loaded_models(scheduler)] == ["b", "a"]


@cases(
    ("model", "options", "context"),
    [
        (A, {}, 4096),
        (A, {"num_ctx": 99_999}, 8192),
        (A, {"num_ctx": 1}, 4),
        (Model("seeing", ("completion", "vision")), {"num_ctx": 1}, 2048),
        (B, B.parameters, 2048),
        (B, {**B.parameters, "num_ctx": 512}, 512),
    ],
)
def test_context_is_limited_to_that_of_the_model(
    model: Model, options: dict[str, Any], context: int
) -> None:
    assert effective_context(model, options) == context


@pytest.mark.parametrize("keep_alive", [60, "1m", "60s", "0.5m30s", 60.0])
def test_seconds_and_durations_are_parsed(private_stub: StubServer, keep_alive: Any) -> None:
    send_message(private_stub, "hello", keep_alive=keep_alive)
    send_message(private_stub, "hello", "mochi-chat", keep_alive=61)
    send_message(private_stub, "hello", "mochi-long", keep_alive=59)
    names = [model["name"] for model in send_request(private_stub, "GET", "/api/ps").json["models"]]
    assert names == ["mochi-chat:latest", "mochi:latest", "mochi-long:latest"]


@pytest.mark.parametrize("keep_alive", [-1, "-1s", 1e300, "2562047h47m"])
def test_longest_keep_alive_is_292_years(private_stub: StubServer, keep_alive: Any) -> None:
    send_message(private_stub, "hello", keep_alive=keep_alive)
    (running,) = send_request(private_stub, "GET", "/api/ps").json["models"]
    assert running["expires_at"] > "2300"


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
@pytest.mark.parametrize("stream", [True, False])
def test_empty_request_loads_or_unloads_the_model(
    private_stub: StubServer, path: str, stream: bool
) -> None:
    answer = send_request(private_stub, "POST", path, {"model": "mochi", "stream": stream})
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.json["done_reason"] == "load"
    assert len(send_request(private_stub, "GET", "/api/ps").json["models"]) == 1
    for _ in range(2):
        assert (
            send_request(private_stub, "POST", path, {"model": "mochi", "keep_alive": "0"}).json[
                "done_reason"
            ]
            == "unload"
        )
    assert send_request(private_stub, "GET", "/api/ps").json == {"models": []}


def test_model_is_running_until_its_client_disconnects() -> None:
    body = {"model": "mochi", "messages": [{"role": "user", "content": "hello"}], "keep_alive": 0}
    with StubServer(resolve=lambda _: Reply([Text(("one",)), Gate()]), speed=0) as stub:
        with open_stream(stub, "/api/chat", body) as response:
            assert response.readline()
            assert len(send_request(stub, "GET", "/api/ps").json["models"]) == 1
        stub.wait_for(lambda seen: seen[0].outcome == "cancelled")
        assert send_request(stub, "GET", "/api/ps").json == {"models": []}


def test_invalid_format_still_loads_the_model(private_stub: StubServer) -> None:
    assert send_message(private_stub, "hello", format="xml").status == 500
    assert len(send_request(private_stub, "GET", "/api/ps").json["models"]) == 1
    assert send_message(private_stub, "hello", "mochi-chat", think=True).status == 400
    assert len(send_request(private_stub, "GET", "/api/ps").json["models"]) == 1
