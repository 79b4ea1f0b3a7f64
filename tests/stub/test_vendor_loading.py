"""Loading of models for requests of OpenAI's, Anthropic's and Gemini's APIs, through the scheduler
of Ollama's API.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any

import pytest

from mochi_stub import Gate, Machine, Model, Prompt, Reply, StubServer, Text
from mochi_stub.models.scheduler import BUSY, OUT_OF_MEMORY
from tests.stub.requests import RawResponse, send_message, send_request
from tests.support.cases import cases

HELLO = [{"role": "user", "content": "hello"}]
CONTENT: dict[str, Any] = {"role": "user", "parts": [{"text": "hello"}]}
GENERATING: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9999},
    "/v1beta/models/mochi:generateContent": {"contents": [CONTENT]},
    "/v1beta/models/mochi:streamGenerateContent": {"contents": [CONTENT]},
}
EMBEDDING: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "hello"},
    "/v1beta/models/mochi:embedContent": {"content": CONTENT},
    "/v1beta/models/mochi:batchEmbedContents": {"requests": [{"content": CONTENT}]},
}
OTHERS = {
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1beta/models/mochi:countTokens": {"contents": [CONTENT]},
}
PATHS = {**GENERATING, **EMBEDDING}


def post(stub: StubServer, path: str, **fields: Any) -> RawResponse:
    return send_request(stub, "POST", path, {"model": "mochi", **PATHS[path], **fields})


def loaded(stub: StubServer) -> list[tuple[str, int]]:
    models = send_request(stub, "GET", "/api/ps").json["models"]
    return [(model["name"], model["context_length"]) for model in models]


@pytest.mark.parametrize("path", PATHS)
def test_request_loads_its_model(private_stub: StubServer, path: str) -> None:
    assert loaded(private_stub) == []
    assert post(private_stub, path).status == 200
    assert loaded(private_stub) == [("mochi:latest", 4096)]


def test_lists_and_token_counts_load_nothing(private_stub: StubServer) -> None:
    for path, body in OTHERS.items():
        assert send_request(private_stub, "POST", path, {"model": "mochi", **body}).status == 200
    assert send_request(private_stub, "GET", "/v1/models").status == 200
    assert loaded(private_stub) == []


@pytest.mark.parametrize("path", PATHS)
def test_request_reloads_a_model_with_another_window(private_stub: StubServer, path: str) -> None:
    for _ in range(2):  # the second time, the reply is in the response cache
        send_message(private_stub, "hello", options={"num_ctx": 2048})
        assert loaded(private_stub) == [("mochi:latest", 2048)]
        assert post(private_stub, path).status == 200
        assert loaded(private_stub) == [("mochi:latest", 4096)]
    rows = [(row.num_ctx, row.reload) for row in private_stub.exchanges() if row.path == path]
    assert rows == [(4096, True), (4096, True)]


def test_request_keeps_the_keep_alive_of_the_model(private_stub: StubServer) -> None:
    send_message(private_stub, "hello", keep_alive=-1)
    post(private_stub, "/v1/chat/completions")
    (running,) = send_request(private_stub, "GET", "/api/ps").json["models"]
    assert running["expires_at"] > "2300"


def test_window_of_the_model_file_applies() -> None:
    with StubServer(models=[Model("mochi", parameters={"num_ctx": 64})], speed=0) as stub:
        long = [{"role": "user", "content": "a" * 50}, {"role": "user", "content": "b" * 50}]
        answer = post(stub, "/v1/chat/completions", messages=long)
        assert loaded(stub) == [("mochi:latest", 64)]
        assert answer.json["usage"]["prompt_tokens"] == 50
        assert (stub.exchanges()[0].truncated, stub.exchanges()[0].dropped_messages) == (True, 1)


class HeldReply:
    """Script whose reply to `hold` waits for `gate`."""

    def __init__(self) -> None:
        self.gate = Gate()

    def __call__(self, prompt: Prompt) -> Reply:
        return Reply(
            [Text(("one",)), self.gate] if prompt.user_text == "hold" else [Text(("now",))]
        )


def open_post(stub: StubServer, path: str, body: dict[str, Any]) -> HTTPConnection:
    """Send a request and return its connection when the stub has read the request."""
    before = len(stub.exchanges())
    connection = HTTPConnection(stub.host, stub.port, timeout=10)
    connection.request("POST", path, json.dumps({"model": "mochi", **body}))
    stub.wait_for(lambda seen: len(seen) > before)
    return connection


def status(connection: HTTPConnection) -> int:
    with closing(connection.getresponse()) as response:
        response.read()
        return response.status


@cases("path", GENERATING)
def test_slots_are_shared_with_requests_of_the_other_apis(path: str) -> None:
    held = HeldReply()
    with (
        StubServer(resolve=held, speed=0, machine=Machine(parallel=1)) as stub,
        ExitStack() as stack,
    ):
        hold = {"messages": [{"role": "user", "content": "hold"}]}
        first = stack.enter_context(closing(open_post(stub, "/api/chat", hold)))
        second = stack.enter_context(closing(open_post(stub, path, GENERATING[path])))
        assert send_request(stub, "GET", "/stub/state").json["waiting"] == 1
        held.gate.open()
        assert [status(first), status(second)] == [200, 200]


@cases("path", PATHS)
def test_full_queue_is_an_error_of_the_provider(path: str) -> None:
    held = HeldReply()
    machine = Machine(max_queue=1)
    with StubServer(resolve=held, speed=0, machine=machine) as stub, ExitStack() as stack:
        hold = {"messages": [{"role": "user", "content": "hold"}]}
        waiting = [
            stack.enter_context(
                closing(open_post(stub, "/api/chat", {**hold, "options": {"num_ctx": context}}))
            )
            for context in (2048, 1024, 512)
        ]
        refused = post(stub, path)
        error = refused.json[0]["error"] if "stream" in path else refused.json["error"]
        assert (refused.status, error["message"]) == (503, BUSY)
        held.gate.open()
        assert [status(one) for one in waiting] == [200] * 3


def test_model_that_does_not_fit_is_an_error_of_the_provider() -> None:
    with StubServer(models=[Model("mochi", out_of_memory_above=1)], speed=0) as stub:
        refused = post(stub, "/v1/messages")
    assert (refused.status, refused.json["error"]) == (
        500,
        {"type": "api_error", "message": OUT_OF_MEMORY},
    )


def test_prompt_cache_is_shared_with_requests_of_the_other_apis(private_stub: StubServer) -> None:
    text = "the same question " * 20
    question = {"messages": [{"role": "user", "content": text}]}
    send_request(private_stub, "POST", "/api/chat", {"model": "mochi", **question})
    for _ in range(2):
        post(private_stub, "/v1/chat/completions", **question)
    assert [row.evaluated_tokens for row in private_stub.exchanges()] == [len(text), 1, 1]
