"""Prompt cache of the stub: it evaluates only what no slot of the model has."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mochi_stub import Machine, StubServer
from mochi_stub.reply import Reply, Usage

LONG = "word " * 200


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0, machine=Machine(parallel=1)) as stub:
        yield stub


def chat(
    stub: StubServer, *messages: dict[str, Any], fields: dict[str, Any] | None = None
) -> dict[str, Any]:
    body = {"model": "mochi", "messages": list(messages), "stream": False, **(fields or {})}
    response = httpx.post(f"{stub.url}/api/chat", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def evaluated(stub: StubServer) -> list[tuple[int | None, int | None]]:
    return [
        (e.prompt_tokens, e.evaluated_tokens) for e in stub.exchanges() if e.path == "/api/chat"
    ]


def test_first_prompt_is_evaluated_whole(stub: StubServer) -> None:
    answer = chat(stub, user(LONG))
    ((tokens, new),) = evaluated(stub)
    assert tokens == new == answer["prompt_eval_count"]


def test_growing_conversation_evaluates_its_end(stub: StubServer) -> None:
    first = chat(stub, user(LONG))["message"]
    answer = chat(stub, user(LONG), first, user("And then?"))
    tokens, new = evaluated(stub)[-1]
    assert tokens == answer["prompt_eval_count"]
    assert tokens is not None
    assert new is not None
    assert new < tokens / 10


def test_repeated_request_evaluates_one_token(stub: StubServer) -> None:
    for _ in range(3):
        chat(stub, user(LONG))
    assert [new for _, new in evaluated(stub)][1:] == [1, 1]


def test_other_prompt_takes_the_only_slot(stub: StubServer) -> None:
    for prompt in (LONG, "Something else entirely, and quite long. " * 20, LONG):
        chat(stub, user(prompt))
    assert all(tokens == new for tokens, new in evaluated(stub))


def test_two_slots_keep_two_conversations() -> None:
    with StubServer(speed=0, machine=Machine(parallel=2)) as stub:
        other = "Something else entirely, and quite long. " * 20
        for prompt in (LONG, other, LONG, other):
            chat(stub, user(prompt))
        assert [new for _, new in evaluated(stub)][2:] == [1, 1]


@pytest.mark.parametrize(
    ("first", "second"), [({}, {"options": {"num_ctx": 8192}}), ({"keep_alive": 0}, {})]
)
def test_reload_empties_the_cache(
    stub: StubServer, first: dict[str, Any], second: dict[str, Any]
) -> None:
    chat(stub, user(LONG), fields=first)
    chat(stub, user(LONG), fields=second)
    tokens, new = evaluated(stub)[-1]
    assert tokens == new


def test_prompt_speed_sets_the_duration_of_the_new_part() -> None:
    with StubServer(speed=0, machine=Machine(parallel=1, prompt_speed=1000)) as stub:
        durations = [chat(stub, user(LONG))["prompt_eval_duration"] for _ in range(2)]
        (tokens, _), _ = evaluated(stub)
    assert tokens is not None
    assert durations == [tokens * 1_000_000, 1_000_000]


def test_default_duration_does_not_depend_on_the_cache(stub: StubServer) -> None:
    answers = [chat(stub, user(LONG)) for _ in range(2)]
    assert answers[0]["prompt_eval_duration"] == answers[1]["prompt_eval_duration"]


def test_slots_report_the_number_of_cached_tokens(stub: StubServer) -> None:
    answers = [chat(stub, user(LONG)) for _ in range(2)]
    assert [answer["prompt_eval_cached_count"] for answer in answers] == [
        0,
        answers[0]["prompt_eval_count"] - 1,
    ]
    names = list(answers[0])
    assert names.index("prompt_eval_cached_count") == names.index("prompt_eval_count") + 1


def test_empty_prompt_has_no_cached_tokens(stub: StubServer) -> None:
    answers = [chat(stub, user("")) for _ in range(2)]
    assert [answer["prompt_eval_cached_count"] for answer in answers] == [0, 0]


def test_without_slots_only_replies_set_the_number_of_cached_tokens() -> None:
    with StubServer(speed=0) as stub:
        assert "prompt_eval_cached_count" not in chat(stub, user(LONG))
    with StubServer(speed=0, resolve=lambda _: Reply.of("Hi!", usage=Usage(cache_read=10))) as stub:
        assert chat(stub, user(LONG))["prompt_eval_cached_count"] == 10
