"""Prompts and replies that exceed the context. In these models a character is a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mochi_stub import Machine, Model, Prompt, Reply, StubServer
from tests.stub.requests import RawResponse, send_request
from tests.support.cases import cases

MODELS = [
    Model("go", ("completion", "tools", "vision")),
    Model("plain", ("completion", "tools")),
    Model("native", template_style="native"),
    Model("counted", chars_per_token=4),
    Model("set", parameters={"num_ctx": 50}),
]
TEN = [
    {"role": "user" if index % 2 == 0 else "assistant", "content": f"message {index}"}
    for index in range(9)
]
SYSTEM = {"role": "system", "content": "be good"}
TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings, or use a model with a longer context length"
)


def total_length(messages: list[dict[str, Any]]) -> int:
    return len("".join(message["content"] for message in messages))


class RecordedPrompts:
    """Script that records the prompts that reach the model."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> Reply:
        self.prompts.append(prompt)
        return Reply.of("0123456789" * 20)

    @property
    def contents(self) -> list[str]:
        return [message.content for message in self.prompts[-1].messages]


@pytest.fixture
def recorded() -> RecordedPrompts:
    return RecordedPrompts()


@pytest.fixture
def context_stub(recorded: RecordedPrompts) -> Iterator[StubServer]:
    """A stub that records its prompts in `seen`."""
    with StubServer(models=MODELS, resolve=recorded, speed=0) as server:
        yield server


def send_messages(
    stub: StubServer,
    messages: list[dict[str, Any]],
    num_ctx: int,
    model: str = "plain",
    **more: Any,
) -> RawResponse:
    body = {
        "model": model,
        "messages": messages,
        "options": {"num_ctx": num_ctx},
        "stream": False,
        **more,
    }
    return send_request(stub, "POST", "/api/chat", body)


def user_message(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_oldest_messages_are_truncated_first(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    kept = [SYSTEM, *TEN[-4:]]
    answer = send_messages(context_stub, [SYSTEM, *TEN], total_length(kept) + 1).json
    assert recorded.contents == [message["content"] for message in kept]
    assert answer["prompt_eval_count"] == total_length(kept)
    (row,) = context_stub.exchanges()
    assert (row.truncated, row.dropped_messages, row.prompt_tokens) == (True, 5, total_length(kept))
    assert send_request(context_stub, "GET", "/stub/state").json["truncations"] == 1


def test_one_token_less_drops_one_more_message(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    send_messages(context_stub, [SYSTEM, *TEN], total_length([SYSTEM, *TEN[-4:]]) - 1)
    assert recorded.contents == [
        "be good",
        "message 6",
        "message 7",
        "message 8",
    ]  # starts with a user message by coincidence


def test_prompt_with_space_for_a_token_is_not_truncated(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    send_messages(context_stub, TEN, total_length(TEN) + 1)
    assert len(recorded.contents) == 9
    assert not context_stub.exchanges()[0].truncated


def test_prompt_that_fills_the_context_loses_its_middle(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    assert (
        send_messages(context_stub, user_message("x" * 256), 256).json["prompt_eval_count"] == 130
    )
    body = {"model": "plain", "prompt": "x" * 256, "options": {"num_ctx": 256}, "stream": False}
    assert (
        send_request(context_stub, "POST", "/api/generate", body).json["prompt_eval_count"] == 130
    )
    answer = send_messages(context_stub, [SYSTEM, *TEN], total_length([SYSTEM, *TEN])).json
    assert (
        "".join(recorded.contents) == "be g" + "".join(message["content"] for message in TEN)[-42:]
    )
    assert answer["prompt_eval_count"] == 46
    assert [row.truncated for row in context_stub.exchanges()] == [True] * 3
    assert send_messages(context_stub, TEN, total_length(TEN), truncate=False).status == 400
    assert send_messages(context_stub, TEN, total_length(TEN), "native").status == 400


def test_system_messages_are_never_dropped(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    send_messages(context_stub, [*TEN[:4], SYSTEM, *TEN[4:]], 50)
    assert recorded.contents[0] == "be good"
    assert recorded.contents[-1] == "message 8"


def test_tool_result_can_lose_its_call(context_stub: StubServer, recorded: RecordedPrompts) -> None:
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "f" * 40, "arguments": {}}}],
    }
    send_messages(
        context_stub, [*user_message("go"), call, {"role": "tool", "content": "result"}], 40
    )
    assert [message.role for message in recorded.prompts[0].messages] == ["tool"]


def test_tools_and_images_count_as_context(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    tool = {
        "type": "function",
        "function": {"name": "f", "description": "d" * 100, "parameters": {}},
    }
    send_messages(context_stub, TEN, total_length(TEN) + 50, tools=[tool])
    assert len(recorded.contents) < 9
    pictured: list[dict[str, Any]] = [{"role": "user", "content": "see", "images": ["aGk="]}, *TEN]
    send_messages(context_stub, pictured, 2048, "go")
    assert len(recorded.contents) == 10
    send_messages(context_stub, [{**pictured[0], "images": ["aGk="] * 3}, *TEN], 2048, "go")
    assert len(recorded.contents) == 9


def test_long_tools_without_messages_are_a_prompt() -> None:
    tool = {"type": "function", "name": "f", "description": "d" * 100, "parameters": {}}
    models = [Model("small", ("completion", "tools"), parameters={"num_ctx": 50})]
    with StubServer(models=models, speed=0) as stub:
        body = {"model": "small", "input": [], "tools": [tool]}
        assert send_request(stub, "POST", "/v1/responses", body).status == 200


def test_tokens_are_counted_per_model(context_stub: StubServer, recorded: RecordedPrompts) -> None:
    answer = send_messages(context_stub, TEN, -(-total_length(TEN) // 4) + 1, "counted").json
    assert len(recorded.contents) == 9
    assert answer["prompt_eval_count"] == -(-total_length(TEN) // 4)


@cases("model", ["plain", "native"])
@cases("stream", [True, False])
def test_long_prompt_is_refused_without_truncation(
    context_stub: StubServer, model: str, stream: bool
) -> None:
    refused = send_messages(context_stub, TEN, 80, model, truncate=False, stream=stream)
    assert refused.status == 400
    assert refused.headers["content-type"] == (
        "application/json" if stream else "application/json; charset=utf-8"
    )
    assert ("content-length" in refused.headers) is not stream
    error = json.loads(refused.json["error"])["error"]
    assert (error["code"], error["type"]) == (400, "exceed_context_size_error")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (total_length(TEN), 80)
    assert "exceeds the available context size" in error["message"]


def test_native_model_refuses_one_long_message(context_stub: StubServer) -> None:
    assert send_messages(context_stub, user_message("x" * 200), 100, "native").status == 400
    assert (
        send_messages(context_stub, user_message("x" * 200), 100, "native", shift=False).status
        == 400
    )


def test_one_long_message_loses_its_middle(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    answer = send_messages(context_stub, user_message("begin" + "." * 500 + "the end"), 100).json
    (content,) = recorded.contents
    assert content.startswith("begi")
    assert content.endswith("the end")
    assert answer["prompt_eval_count"] == len(content) <= 100
    refused = send_messages(context_stub, user_message("x" * 500), 100, shift=False)
    assert (refused.status, refused.json) == (400, {"error": TOO_LONG})


def test_generate_truncates_the_prompt_of_every_model(
    context_stub: StubServer, recorded: RecordedPrompts
) -> None:
    body = {"model": "native", "prompt": "x" * 500, "options": {"num_ctx": 100}, "stream": False}
    answer = send_request(context_stub, "POST", "/api/generate", body).json
    assert answer["prompt_eval_count"] <= 100
    assert (
        send_request(context_stub, "POST", "/api/generate", {**body, "truncate": False}).status
        == 400
    )
    assert send_request(context_stub, "POST", "/api/generate", {**body, "shift": False}).json == {
        "error": TOO_LONG
    }


def test_system_message_larger_than_the_context_fills_it(context_stub: StubServer) -> None:
    answer = send_messages(
        context_stub, [{"role": "system", "content": "s" * 500}, *user_message("hi")], 100
    )
    assert answer.status == 200
    assert answer.json["prompt_eval_count"] <= 100


def test_reply_can_exceed_the_context_unless_shift_is_off(context_stub: StubServer) -> None:
    shifting = send_messages(context_stub, user_message("hi"), 100).json
    assert (shifting["done_reason"], shifting["eval_count"]) == ("stop", 200)
    ended = send_messages(context_stub, user_message("hi"), 100, shift=False).json
    assert (ended["done_reason"], ended["eval_count"]) == (
        "length",
        100 - ended["prompt_eval_count"],
    )
    shorter = send_messages(
        context_stub,
        user_message("hi"),
        100,
        shift=False,
        options={"num_ctx": 100, "num_predict": 5},
    ).json
    assert shorter["eval_count"] == 5


def test_prompts_are_truncated_only_to_a_set_context(context_stub: StubServer) -> None:
    long = user_message("x" * 5000)
    for model, counted in (("plain", 5000), ("set", 50)):
        answer = send_request(
            context_stub, "POST", "/api/chat", {"model": model, "messages": long, "stream": False}
        ).json
        assert (
            min(answer["prompt_eval_count"], counted) == answer["prompt_eval_count"] > counted // 3
        )
    with StubServer(models=MODELS, speed=0, machine=Machine(context_length=4096)) as server:
        answer = send_request(
            server, "POST", "/api/chat", {"model": "plain", "messages": long, "stream": False}
        ).json
        assert answer["prompt_eval_count"] <= 4096
