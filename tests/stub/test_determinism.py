"""Determinism: servers with the same seed send the same bytes for the same request."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from mochi_stub import StubServer
from tests.stub.requests import send_request

PLAN = '<|instruction_start|>{"messages":[{"tool_call":[{"name":"now","args":{}}]}]}<|instruction_end|>'
REQUESTS = [
    ("GET", "/api/tags", None),
    ("POST", "/api/show", {"model": "mochi"}),
    (
        "POST",
        "/api/chat",
        {"model": "mochi", "messages": [{"role": "user", "content": "hello\nReason: x"}]},
    ),
    ("POST", "/api/chat", {"model": "mochi", "messages": [{"role": "user", "content": PLAN}]}),
    ("POST", "/api/chat", {"model": "mochi", "messages": [], "keep_alive": 0}),
    (
        "POST",
        "/api/generate",
        {"model": "mochi-native:4b", "prompt": "hello\nReason: x", "stream": False},
    ),
    ("POST", "/api/embed", {"model": "mochi-embed", "input": ["a", "b"]}),
]


def bodies(seed: int, speed: float, *, backwards: bool = False) -> list[bytes]:
    with StubServer(seed=seed, speed=speed) as stub:
        order = REQUESTS[::-1] if backwards else REQUESTS
        found = [send_request(stub, *request).body for request in order]
    return found[::-1] if backwards else found


def test_answers_do_not_depend_on_order_or_speed() -> None:
    first = bodies(0, 0)
    assert bodies(0, 0, backwards=True) == first
    assert bodies(0, 10_000) == first


def test_seed_changes_ids_and_times_but_not_the_text() -> None:
    changed = [before != after for before, after in zip(bodies(0, 0), bodies(1, 0), strict=True)]
    assert changed == [False, False, True, True, True, True, False]


def send_times(seed: int) -> list[datetime]:
    """Return the planned time of each line of a reply with jitter."""
    body = {
        "model": "token-stream",
        "messages": [{"role": "user", "content": "one two three four five"}],
    }
    with StubServer(seed=seed, speed=0) as stub:
        lines = send_request(stub, "POST", "/api/chat", body).lines
    return [datetime.fromisoformat(line["created_at"][:26]) for line in lines]


def test_seed_changes_the_jitter() -> None:
    intervals = []
    for seed in (0, 0, 1):
        times = send_times(seed)
        intervals.append([later - earlier for earlier, later in pairwise(times)])
    first, same, other = intervals
    assert same == first
    assert other != first
    assert len(other) == len(first)


@pytest.mark.parametrize("prefix", ["", "/ollama"])
def test_answers_do_not_depend_on_the_path_prefix(private_stub: StubServer, prefix: str) -> None:
    method, path, body = REQUESTS[2]
    assert (
        send_request(private_stub, method, prefix + path, body).body
        == send_request(private_stub, method, path, body).body
    )
