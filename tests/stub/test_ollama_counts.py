"""Token counts of Ollama's API for empty, short and overlong input."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest

from mochi_stub import Machine, Model, Reasoning, Reply, StubServer, Text
from tests.stub.requests import send_message, send_request
from tests.support.cases import cases

TOO_LONG = {"error": "the input length exceeds the context length"}


@pytest.mark.parametrize("content", ["", None])
def test_empty_content_has_a_prompt_count(stub: StubServer, content: str | None) -> None:
    body = {
        "model": "mochi-chat",
        "messages": [{"role": "user", "content": content}],
        "stream": False,
    }
    assert send_request(stub, "POST", "/api/chat", body).json["prompt_eval_count"] == 1


def test_empty_text_to_embed_has_a_prompt_count(stub: StubServer) -> None:
    body = {"model": "mochi-embed", "input": ["", "abc"]}
    assert send_request(stub, "POST", "/api/embed", body).json["prompt_eval_count"] == 4


def test_num_ctx_of_0_is_the_smallest_context() -> None:
    with StubServer(speed=0) as stub:
        send_message(stub, "hello", "mochi-chat", options={"num_ctx": 0})
        assert send_request(stub, "GET", "/api/ps").json["models"][0]["context_length"] == 4


@cases(("num_ctx", "num_keep", "kept"), [(100, 4, 52), (101, 4, 53), (100, 0, 50), (200, 100, 150)])
@cases("length", [150, 500, 1234])
def test_overlong_message_leaves_half_of_the_context(
    num_ctx: int, num_keep: int, kept: int, length: int
) -> None:
    options = {"num_ctx": num_ctx, "num_keep": num_keep}
    with StubServer(speed=0, machine=Machine(context_length=4096)) as stub:
        answer = send_message(
            stub, "x" * max(length, num_ctx + 1), "mochi-chat", options=options, stream=False
        ).json
    assert answer["prompt_eval_count"] == kept


@cases(
    ("model", "options", "context"),
    [("mochi-embed", {}, 2048), ("embed", {}, 4096), ("embed", {"num_ctx": 9}, 9)],
)
def test_overlong_input_to_embed_is_cut_off(
    model: str, options: dict[str, Any], context: int
) -> None:
    fitting = {"model": model, "options": options, "input": "x" * context}
    longer = {**fitting, "input": "x" * context + " and more"}
    with StubServer(speed=0) as stub:
        whole, shortened = (
            send_request(stub, "POST", "/api/embed", body).json for body in (fitting, longer)
        )
        accepted, refused = (
            send_request(stub, "POST", "/api/embed", {**body, "truncate": False})
            for body in (fitting, longer)
        )
    assert (shortened["embeddings"], shortened["prompt_eval_count"]) == (
        whole["embeddings"],
        context,
    )
    assert (accepted.status, refused.status, refused.json) == (200, 400, TOO_LONG)


def test_overlong_embedding_is_refused(stub: StubServer) -> None:
    body = {"model": "mochi-embed", "prompt": "x" * 2049}
    refused = send_request(stub, "POST", "/api/embeddings", body)
    assert (refused.status, refused.json) == (500, TOO_LONG)
    assert (
        send_request(stub, "POST", "/api/embeddings", {**body, "prompt": "x" * 2048}).status == 200
    )


@cases("text", ["", "a", "hello", "the quick brown fox", "é" * 50])
@cases("dimensions", [1, 2, 7, 8, 64, 767, 768])
def test_shortened_embedding_is_dense_and_of_unit_length(
    stub: StubServer, text: str, dimensions: int
) -> None:
    body = {"model": "mochi-embed", "input": [text], "dimensions": dimensions}
    (vector,) = send_request(stub, "POST", "/api/embed", body).json["embeddings"]
    assert len(vector) == dimensions
    assert all(vector)
    assert sqrt(sum(value * value for value in vector)) == pytest.approx(1, abs=1e-6)


@cases(
    ("template_style", "stream", "content_type"),
    [
        ("builtin", True, "application/json"),
        ("native", True, "application/json"),
        ("template", False, "application/json; charset=utf-8"),
    ],
)
def test_wrong_format_is_refused(template_style: Any, stream: bool, content_type: str) -> None:
    model = Model("thinker", ("completion", "thinking"), template_style=template_style)
    reply = Reply([Reasoning(("hm",)), Text(("yes",))])
    with StubServer(models=[model], resolve=lambda _: reply, speed=0) as stub:
        answer = send_message(stub, "hello", "thinker", format="xml", stream=stream)
    assert (answer.status, answer.headers["content-type"]) == (500, content_type)
    assert ("content-length" in answer.headers) is not stream
    assert answer.json == {
        "error": 'invalid format: "\\"xml\\""; expected "json" or a valid JSON Schema object',
    }
