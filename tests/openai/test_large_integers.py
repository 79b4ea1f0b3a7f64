"""Integers that exceed 64 bits. They are refused only where something is stored."""

from __future__ import annotations

from typing import Any

import httpx

from mochi_stub import StubServer
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import chats

LARGE = 2**70
SCHEMA: Any = {"type": "object", "properties": {"n": {"type": "integer", "enum": [LARGE]}}}
HELLO: Any = {"model": "mochi", "messages": [{"role": "user", "content": "Hello!"}]}
CALLED: Any = [
    *HELLO["messages"],
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {"n": LARGE}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "blue"}]},
]


def post(server: RunningServer, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=10)


@cases(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",
            HELLO
            | {"tools": [{"type": "function", "function": {"name": "x", "parameters": SCHEMA}}]},
        ),
        (
            "/v1/chat/completions",
            HELLO | {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        ),
        (
            "/v1/responses",
            {
                "model": "mochi",
                "input": "Hello!",
                "tools": [{"type": "function", "name": "x", "parameters": SCHEMA}],
            },
        ),
        (
            "/v1/messages",
            HELLO | {"max_tokens": 9, "tools": [{"name": "x", "input_schema": SCHEMA}]},
        ),
    ],
)
def test_schema_reaches_the_model(
    server: RunningServer, stub: StubServer, path: str, body: Any
) -> None:
    answer = post(server, path, body)
    assert answer.status_code == 200, answer.text
    sent = chats(stub)[-1].body
    schema = sent["tools"][0]["function"]["parameters"] if "tools" in sent else sent["format"]
    assert schema["properties"]["n"]["enum"] == [LARGE]


@cases(
    ("path", "body"),
    [
        ("/v1/chat/completions", HELLO | {"unknown": LARGE, "metadata": {"number": LARGE}}),
        ("/v1/messages", {"model": "mochi", "max_tokens": 9, "messages": CALLED}),
        ("/v1/embeddings", {"model": "mochi-embed", "input": "Hello!", "unknown": LARGE}),
    ],
)
def test_other_fields_may_be_large(server: RunningServer, path: str, body: Any) -> None:
    answer = post(server, path, body)
    assert answer.status_code == 200, answer.text


USER: Any = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello!"}]}
SHOWN: Any = {"type": "data-chart", "data": {"total": LARGE}}
ASSISTANT: Any = {"id": "2", "role": "assistant", "parts": [SHOWN]}
AG_UI: Any = {"threadId": "t", "runId": "r", "messages": [{"id": "1", **HELLO["messages"][0]}]}


@cases(
    ("protocol", "body"),
    [
        ("ai-sdk", {"messages": [USER, ASSISTANT, {**USER, "id": "3"}]}),
        ("ai-sdk", {"messages": [USER], "format": SCHEMA}),
        ("ag-ui", AG_UI | {"state": {"total": LARGE}}),
        ("ag-ui", AG_UI | {"forwardedProps": {"unknown": LARGE}}),
        ("ag-ui", AG_UI | {"tools": [{"name": "x", "description": "X.", "parameters": SCHEMA}]}),
    ],
)
def test_chats_of_frontends_may_contain_large_integers(
    server: RunningServer, protocol: str, body: Any
) -> None:
    session_id = server.client.create_session("mochi")["session_id"]
    answer = post(server, f"/api/v1/chat/{session_id}/{protocol}", body)
    assert answer.status_code == 200, answer.text
    assert server.client.messages(session_id)[-1]["role"] == "assistant"


def test_options_and_deep_bodies_are_still_checked(server: RunningServer) -> None:
    deep: Any = LARGE
    for _ in range(400):
        deep = [deep]
    for field in ({"seed": LARGE}, {"top_k": LARGE}, {"unknown": deep}):
        answer = post(server, "/v1/chat/completions", HELLO | field)
        assert answer.status_code == 400, (field, answer.text)


def test_stored_format_is_refused(server: RunningServer) -> None:
    answer = post(server, "/api/v1/sessions", {"model": "mochi", "format": SCHEMA})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "VALIDATION_ERROR")
    assert "64-bit" in answer.text
