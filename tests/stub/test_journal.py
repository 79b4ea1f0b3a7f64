"""The stub's journal and state."""

from __future__ import annotations

from typing import Any

import pytest

from mochi_stub import Gate, Reply, StubServer, Text
from tests.stub.requests import open_stream, send_message, send_request

RELOADED = {"num_ctx": 2048}
_ABA = ("YQ==", "Yg==", "YQ==")


def rows(stub: StubServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = send_request(stub, "GET", "/stub/requests").json["requests"]
    return found


def state(stub: StubServer) -> dict[str, Any]:
    found: dict[str, Any] = send_request(stub, "GET", "/stub/state").json
    return found


def test_journal_has_requests_and_outcomes() -> None:
    with StubServer(speed=0) as truncating:
        send_message(truncating, "hello", stream=False)
        send_message(truncating, "x" * 30, options={"num_ctx": 20}, stream=False)
        send_message(truncating, "hello", "nope")
        first, second, third = rows(truncating)
    assert (first["path"], first["model"], first["status"], first["outcome"]) == (
        "/api/chat",
        "mochi",
        200,
        "finished",
    )
    assert (first["num_ctx"], first["reload"], first["truncated"], first["prompt_tokens"]) == (
        4096,
        False,
        False,
        5,
    )
    assert first["rule"]
    assert first["duration_ms"] > 0
    assert first["body"]["messages"] == [{"role": "user", "content": "hello"}]
    assert (second["num_ctx"], second["reload"], second["truncated"]) == (20, True, True)
    assert (third["status"], third["outcome"], third["num_ctx"]) == (404, "failed", None)


@pytest.mark.parametrize(
    ("model", "rule", "mode"),
    [
        ("embed-zero", "_default of embed-zero", "embedding"),
        ("mochi-embed", "built-in: embedding of the text", "embedding"),
        ("failing", "_default of failing", "error"),
    ],
)
def test_journal_names_the_rule_of_an_embedding(
    private_stub: StubServer, model: str, rule: str, mode: str
) -> None:
    content = {"content": {"parts": [{"text": "hello"}]}}
    ollama = {"model": model, "prompt": "hello"}
    openai = {"model": model, "input": ["hello", "there"]}
    send_request(private_stub, "POST", "/api/embed", openai)
    send_request(private_stub, "POST", "/api/embeddings", ollama)
    send_request(private_stub, "POST", "/v1/embeddings", openai)
    send_request(private_stub, "POST", f"/v1beta/models/{model}:embedContent", content)
    found = [(row["model"], row["rule"], row["mode"]) for row in rows(private_stub)]
    assert found == [(model, rule, mode)] * 4
    assert rows(private_stub)[0]["passed_over"]


def test_reading_the_journal_is_not_recorded(private_stub: StubServer) -> None:
    send_message(private_stub, "hello")
    assert len(rows(private_stub)) == len(rows(private_stub)) == 1
    assert send_request(private_stub, "DELETE", "/stub/requests").status == 204
    assert not rows(private_stub)
    assert not private_stub.exchanges()


def test_secrets_are_masked(private_stub: StubServer) -> None:
    secrets = {
        "Authorization": "Bearer s3cret",
        "x-api-key": "s3cret",
        "x-goog-api-key": "s3cret",
        "Cookie": "s3cret",
    }
    body: dict[str, Any] = {"model": "mochi", "messages": []}
    body |= {"api_key": "s3cret", "tools": [{"password": "s3cret"}], "user": "me"}
    body["metadata"] = {
        "token": "s3cret",
        "refreshToken": "s3cret",
        "client_secret": "s3cret",
        "tokens": "2",
    }
    send_request(
        private_stub, "POST", "/api/chat?key=s3cret&alt=sse", body, {**secrets, "X-Trace": "7"}
    )
    shown = send_request(private_stub, "GET", "/stub/requests").body
    assert b"s3cret" not in shown
    (row,) = rows(private_stub)
    assert (row["headers"]["authorization"], row["headers"]["x-trace"], row["query"]) == (
        "***",
        "7",
        "key=***&alt=sse",
    )
    assert (row["body"]["api_key"], row["body"]["user"]) == ("***", "me")
    assert "s3cret" not in repr(private_stub.exchanges())


def test_other_names_of_secrets_are_masked(private_stub: StubServer) -> None:
    headers = {"Ocp-Apim-Subscription-Key": "s3cret", "X-Auth": "s3cret", "Idempotency-Key": "mine"}
    body = b'{"api_k\\u0065y": "s3cret", "api_keys": ["s3cret"], "max_tokens": 5, "key": "word"}'
    send_request(private_stub, "POST", "/api/show?k%65y=s3cret&sig=s3cret&page=2", body, headers)
    assert b"s3cret" not in send_request(private_stub, "GET", "/stub/requests").body
    (row,) = rows(private_stub)
    assert (row["headers"]["idempotency-key"], row["query"]) == ("mine", "k%65y=***&sig=***&page=2")
    assert row["body"] == {"api_key": "***", "api_keys": ["***"], "max_tokens": 5, "key": "word"}


def test_schema_of_a_secret_argument_stays_readable(private_stub: StubServer) -> None:
    parameters = {"properties": {"password": {"type": "string", "description": "to sign in"}}}
    body = {"tools": [{"function": {"name": "sign_in", "parameters": parameters}}]}
    send_request(private_stub, "POST", "/api/show", body)
    (row,) = rows(private_stub)
    assert row["body"] == body


@pytest.mark.parametrize("depth", [500, 1020])
def test_deeply_nested_body_leaves_the_journal_readable(
    private_stub: StubServer, depth: int
) -> None:
    """Whether a body of this depth can be copied depends on the version of Python."""
    deep = b'{"model":"mochi","messages":[],"x":' + b"[" * depth + b"]" * depth + b"}"
    assert send_request(private_stub, "POST", "/api/chat", deep).status == 200
    (row,) = rows(private_stub)
    assert row["path"] == "/api/chat"


def test_state_has_loads_and_loaded_models(private_stub: StubServer) -> None:
    assert state(private_stub) == {
        "models": [],
        **dict.fromkeys(("loads", "reloads", "truncations", "queued", "waiting", "in_flight"), 0),
    }
    send_message(private_stub, "hello", keep_alive=-1)
    send_message(private_stub, "hello", options=RELOADED)
    seen = state(private_stub)
    assert (seen["loads"], seen["reloads"]) == (2, 1)
    assert seen["models"] == [
        {"name": "mochi", "context_length": 2048, "keep_alive": 300.0, "requests": 0}
    ]


def test_state_has_running_requests() -> None:
    gate = Gate()
    body = {"model": "mochi", "messages": [{"role": "user", "content": "hello"}], "keep_alive": -1}
    with StubServer(resolve=lambda _: Reply([Text(("one",)), gate]), speed=0) as stub:
        with open_stream(stub, "/api/chat", body) as response:
            assert response.readline()
            seen = state(stub)
            assert (
                seen["in_flight"],
                seen["models"][0]["requests"],
                seen["models"][0]["keep_alive"],
            ) == (1, 1, None)
            gate.open()
            assert response.read()
        assert state(stub)["in_flight"] == 0
