"""Response cache: repeated requests get the same bytes until the cache is invalidated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import Exchange, StubServer
from mochi_stub.http.messages import HttpResponse, Request
from mochi_stub.response_cache import (
    MAX_BYTES,
    MAX_BYTES_IN_ALL,
    MAX_SEEN,
    CachedReply,
    RequestEntries,
    ResponseCache,
)

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATHS = ("/v1/chat/completions", "/api/chat")


def write_config(folder: Path, default: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(f"models: {{m: [{{_default: {default}}}]}}", encoding="utf-8")
    return path


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_repeated_request_gets_the_same_answer(path: str, stream: bool) -> None:
    with StubServer(speed=0) as stub, httpx.Client(base_url=stub.url) as client:
        body = {**ASKED, "model": "mochi", "stream": stream}
        replies = [client.post(path, json=body) for _ in range(3)]
        rows = stub.exchanges()
    assert replies[0].content == replies[1].content == replies[2].content
    assert replies[0].headers["content-type"] == replies[2].headers["content-type"]
    assert rows[1] == rows[2]
    assert replace(rows[0], evaluated_tokens=rows[1].evaluated_tokens) == rows[1]
    assert rows[0].rule
    assert bool(rows[0].chunks) == stream


@pytest.mark.parametrize("path", PATHS)
def test_new_config_is_used_at_once(tmp_path: Path, path: str) -> None:
    with (
        StubServer(speed=0, config=write_config(tmp_path, "before")) as stub,
        httpx.Client(base_url=stub.url) as client,
    ):
        before = [client.post(path, json=ASKED).text for _ in range(2)]
        write_config(tmp_path, "afterwards")
        after = client.post(path, json=ASKED).text
    assert "before" in before[1]
    assert "afterwards" in after


def test_recorded_file_is_read_for_each_request(tmp_path: Path) -> None:
    def record(content: str) -> None:
        recorded = {"status": 200, "body": {"message": {"role": "assistant", "content": content}, "done": True}}
        exchange = {"request": {"method": "POST", "url": "http://h/api/chat", "body": {}}, "response": recorded}
        (tmp_path / "one.json").write_text(httpx.Response(200, json=exchange).text, encoding="utf-8")

    record("before")
    config = write_config(tmp_path, "{type: file, path: one.json}")
    with StubServer(speed=0, config=config) as stub, httpx.Client(base_url=stub.url) as client:
        first = client.post("/v1/chat/completions", json=ASKED).text
        record("afterwards")
        second = client.post("/v1/chat/completions", json=ASKED).text
    assert "before" in first
    assert "afterwards" in second


def test_script_is_called_for_each_request(mochi_stub: Any) -> None:
    mochi_stub.script("one", "two")
    body = {**ASKED, "model": "mochi"}
    replies = [httpx.post(f"{mochi_stub.url}/api/chat", json={**body, "stream": False}).json() for _ in range(2)]
    assert [reply["message"]["content"] for reply in replies] == ["one", "two"]


def test_reload_and_truncation_are_reported_each_time() -> None:
    def send_message(client: httpx.Client, context: int) -> None:
        body = {**ASKED, "model": "mochi", "stream": False, "options": {"num_ctx": context}}
        client.post("/api/chat", json={**body, "messages": [*ASKED["messages"], *ASKED["messages"]]})

    def load_events(rows: list[Exchange]) -> list[tuple[int | None, bool, bool]]:
        return [(row.num_ctx, row.reload, row.truncated) for row in rows]

    with StubServer(speed=0) as stub, httpx.Client(base_url=stub.url) as client:
        for context in (8192, 4096, 8192, 8, 8):
            send_message(client, context)
        rows, state = stub.exchanges(), client.get("/stub/state").json()
    assert load_events(rows) == [
        (8192, False, False),
        (4096, True, False),
        (8192, True, False),
        (8, True, True),
        (8, False, True),
    ]
    assert state["truncations"] == 2


def cached_responses() -> tuple[ResponseCache, Callable[[int], Request]]:
    return ResponseCache(lambda: ("models", 1)), lambda number: Request("POST", "/", b"%d" % number)


def entries_of_repeated(cache: ResponseCache, request: Request) -> RequestEntries:
    cache.entries_of(request)
    entries = cache.entries_of(request)
    assert entries is not None
    return entries


def test_requests_are_cached_from_their_second_occurrence() -> None:
    cache, request = cached_responses()
    assert [cache.entries_of(request(number)) is None for number in (1, 2, 1, 2, 3)] == [True, True, False, False, True]


def test_memory_for_requests_that_are_not_repeated_is_limited() -> None:
    cache, request = cached_responses()
    for number in range(MAX_SEEN + 1):
        assert cache.entries_of(request(number)) is None
    assert cache.entries_of(request(0)) is None  # forgotten
    assert cache.entries_of(request(MAX_SEEN)) is not None


def test_long_answers_are_not_cached() -> None:
    cache, request = cached_responses()
    memory = entries_of_repeated(cache, request(1))
    memory.add(CachedReply(HttpResponse(200, b" " * MAX_BYTES), {}))
    assert memory.get() is None
    long = replace(request(1), body=b" " * (MAX_BYTES + 1))
    assert [cache.entries_of(long) for _ in range(2)] == [None, None]


def test_cache_has_a_limit() -> None:
    cache, request = cached_responses()
    half = b" " * (MAX_BYTES // 2)
    for number in range(2 * MAX_BYTES_IN_ALL // len(half)):
        memory = entries_of_repeated(cache, request(number))
        memory.add(CachedReply(HttpResponse(200, half), {}))
    again = cache.entries_of(request(number))
    assert again is not None
    assert again.get() is not None
    assert len(cache.entries) <= MAX_BYTES_IN_ALL // len(half)


def test_cache_is_cleared_when_the_config_changes() -> None:
    changes = 1
    cache = ResponseCache(lambda: ("models", changes))
    request = Request("POST", "/", b"")
    slow = entries_of_repeated(cache, request)
    changes = 2
    now = cache.entries_of(request)
    assert now is not None
    slow.add(CachedReply(HttpResponse(200, b"old"), {}))
    assert now.get() is None
