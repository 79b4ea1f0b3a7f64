"""Cached prompt tokens, as Ollama reports them: the same on each protocol, and never an
estimate.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mochi_stub import Machine, StubServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import chats

TURNS = {True: 6, False: 2}
"""Number of turns with slots, more than the five of which a share is shown, and without slots."""
ROUNDS = 2
"""Number of requests of each other protocol."""
_Messages = list[dict[str, str]]


@pytest.fixture(scope="module", params=[True, False], ids=["slots", "no slots"])
def has_slots(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def shared_stub(has_slots: bool) -> Iterator[StubServer]:
    machine = Machine(parallel=1 if has_slots else None)
    with StubServer(speed=0, machine=machine, resolve=lambda _: "A short answer.") as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with RunningServer(
        tmp_path_factory.mktemp("cached"), shared_stub.url, summarization_enabled=False
    ) as server:
        yield server


def post(api: Api, path: str, body: dict[str, Any]) -> Any:
    url = api.http.base_url.copy_with(path=path)
    return api.ok(api.http.post(url, json={"model": "mochi", "max_tokens": 50, **body}))


def chat_completion(api: Api, messages: _Messages) -> tuple[str, Any]:
    answer = post(api, "/v1/chat/completions", {"messages": messages})
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"][
        "cached_tokens"
    ]


def response(api: Api, messages: _Messages) -> tuple[str, Any]:
    answer = post(api, "/v1/responses", {"input": messages, "max_tokens": None})
    return answer["output"][-1]["content"][0]["text"], answer["usage"]["input_tokens_details"][
        "cached_tokens"
    ]


def message(api: Api, messages: _Messages) -> tuple[str, Any]:
    answer = post(api, "/v1/messages", {"messages": messages})
    return answer["content"][-1]["text"], answer["usage"]["cache_read_input_tokens"]


@cases(("send", "missing"), [(chat_completion, None), (response, 0), (message, None)])
def test_cached_tokens_are_those_of_ollama(
    api: Api,
    stub: StubServer,
    has_slots: bool,
    send: Callable[..., tuple[str, Any]],
    missing: int | None,
) -> None:
    messages: _Messages = []
    counts = []
    for turn in range(ROUNDS):
        messages.append({"role": "user", "content": f"Turn {turn} has some words. " * 5})
        text, cached = send(api, messages)
        messages.append({"role": "assistant", "content": text})
        counts.append(cached)
    assert counts == (expected(stub) if has_slots else [missing] * ROUNDS)


def test_native_api_shows_cached_tokens_and_their_share(
    api: Api, stub: StubServer, has_slots: bool
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    completed = [
        api.stream_message(session_id, f"Turn {turn} has some words. " * 5)[-2]
        for turn in range(TURNS[has_slots])
    ]
    counts = [event.data["prompt_eval_cached_count"] for event in completed]
    stored = [
        each.get("prompt_eval_cached_count")
        for each in api.messages(session_id)
        if each["role"] == "assistant"
    ]
    assert counts == stored == (expected(stub) if has_slots else [None] * TURNS[has_slots])
    share = api.ok(api.http.get(f"/sessions/{session_id}/status"))["prompt_evaluation"][
        "cached_share"
    ]
    prompts = sum(each.prompt_tokens or 0 for each in chats(stub)[-5:])
    assert share == (round(sum(counts[-5:]) / prompts, 4) if has_slots else None)


def expected(stub: StubServer) -> list[int]:
    return [(each.prompt_tokens or 0) - (each.evaluated_tokens or 0) for each in chats(stub)]
