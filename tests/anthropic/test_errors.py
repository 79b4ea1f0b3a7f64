"""Errors of the Messages API, in Anthropic's format."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.anthropic.conversation import STREAMED, Conversation, client_of
from tests.anthropic.test_messages import PDF, image
from tests.support.cases import cases
from tests.support.raw_ollama import RawOllama, line, stream_head, whole
from tests.support.server import RunningServer

RESULT: Any = {"type": "tool_result", "tool_use_id": "t1", "content": "blue"}


def user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def with_system(content: Any) -> dict[str, Any]:
    """Return a request in which a system message with this content follows the user message."""
    return {
        "messages": [{"role": "user", "content": "Hi."}, {"role": "system", "content": content}]
    }


@cases(
    ("asks", "message"),
    [
        ({"messages": []}, "messages: List should have at least 1 item after validation, not 0"),
        (
            {"messages": [{"role": "developer", "content": "Be brief."}]},
            "messages.0: Input tag 'developer' found using 'role'",
        ),
        (user([]), "messages.0.content: List should have at least 1 item"),
        (user([RESULT]), "messages.0: no earlier message has a tool call with the ID 't1'"),
        (
            {"messages": [*user([RESULT])["messages"], {"role": "user", "content": "And this?"}]},
            "messages.0: no earlier message has a tool call with the ID 't1'",
        ),
        (
            user([{"type": "text", "text": "Hi."}, image("eA==")]),
            "messages.0.content.1.source: not an image",
        ),
        (
            user([image("*")]),
            "messages.0.content.0.source: not an image: invalid base64. Send the content of the file "
            "as base64",
        ),
        (
            user(
                [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]
            ),
            "messages.0.content.0.source: not an image, but a path or an address: "
            "'https://example.org/a.png'. Send the content of the file as base64",
        ),
        (
            user([{"type": "image", "source": {"type": "file", "file_id": "file_1"}}]),
            "messages.0.content.0.source: the request must contain the file itself; this server "
            "reads no files by ID or URL",
        ),
        (
            user([{"type": "video", "source": {}}]),
            "messages.0.content.0: Input tag 'video' found using 'type'",
        ),
        (
            user([PDF]),
            "messages.0.content.0: this server does not support PDF input like this: ",
        ),
        (with_system(None), "messages.1.content"),
        (with_system(5), "messages.1.content"),
        (with_system([{"type": "image"}]), "messages.1.content"),
        (
            user([{"type": "text", "text": "See."}, image()]),
            "messages: Could not process image: model 'mochi:latest' does not",
        ),
        ({"max_tokens": 0}, "max_tokens: must be at least 1, or -1 for no limit"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: Field required"),
        (
            {"tool_choice": {"type": "any"}},
            "tool_choice: the request has no tools; add one to `tools`",
        ),
        (
            {"thinking": {"type": "hard"}},
            "thinking.type: Input should be 'enabled', 'adaptive' or 'disabled'",
        ),
        (
            {
                "model": "agent:helper",
                "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            },
            "output_config.format: agents use their own tools and answer with plain text; leave "
            "out this field",
        ),
    ],
)
def test_error_names_the_field(conversation: Conversation, asks: Any, message: str) -> None:
    error: Any = conversation.rejected(**asks)
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert error.body["error"]["message"].startswith(message)


@STREAMED
def test_overflow_has_the_words_that_clients_look_for(conversation: Conversation) -> None:
    error: Any = conversation.rejected(messages=user("word " * 150_000)["messages"])
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert error.body["error"]["message"].startswith("prompt is too long: ")


@cases(
    ("body", "message"),
    [
        (
            {"model": "mochi", "messages": [{"role": "user", "content": "Hi."}]},
            "max_tokens: Field required",
        ),
        ([], "Input should be a JSON object"),
        (
            "{",
            "The body is not valid JSON: Expecting property name enclosed in double quotes at "
            "line 1, column 2.",
        ),
    ],
)
def test_invalid_bodies_are_rejected(server: RunningServer, body: Any, message: str) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    response = httpx.post(
        f"{server.url}/v1/messages", content=content, headers={"content-type": "application/json"}
    )
    request_id = response.headers["request-id"]
    error = {"type": "invalid_request_error", "message": message}
    assert (response.status_code, response.json()) == (
        400,
        {"type": "error", "error": error, "request_id": request_id},
    )


@STREAMED
def test_unknown_models_and_paths_are_404(
    conversation: Conversation, server: RunningServer
) -> None:
    for model in ("nowhere", "agent:nobody"):
        error = conversation.rejected(model=model)
        assert (error.status_code, error.type) == (404, "not_found_error")
    response = httpx.get(f"{server.url}/v1/messages/nowhere")
    assert response.json()["error"]["type"] == "not_found_error"


@pytest.fixture(scope="module")
def ollama() -> Iterator[RawOllama]:
    with RawOllama(lambda _: None) as ollama:
        yield ollama


@pytest.fixture(scope="module")
def raw_server(
    ollama: RawOllama, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with RunningServer(
        tmp_path_factory.mktemp("raw"), ollama.url, summarization_enabled=False
    ) as server:
        yield server


def sends(*data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"".join(data))


def busy(status: str) -> bytes:
    return whole(b'{"error":"server busy"}', status=f"{status}\r\nRetry-After: 17")


@cases("stream", [False, True], ids=["whole", "streamed"])
@cases(
    ("answer", "expected"),
    [
        (whole(b'{"error":"kaput"}', status="500 Oh"), (502, "api_error", None)),
        (busy("503 Service Unavailable"), (529, "overloaded_error", "17")),
        (busy("429 Too Many Requests"), (429, "rate_limit_error", "17")),
    ],
)
def test_error_before_the_first_token_has_a_status(
    raw_server: RunningServer,
    ollama: RawOllama,
    stream: bool,
    answer: bytes,
    expected: tuple[int, str, str | None],
) -> None:
    ollama.chat = sends(answer)
    body = {"model": "raw", "max_tokens": 9, "stream": stream, **user("Hello!")}
    response = httpx.post(f"{raw_server.url}/v1/messages", json=body)
    headers = response.headers
    assert (
        response.status_code,
        response.json()["error"]["type"],
        headers.get("retry-after"),
    ) == expected


def test_later_error_is_in_the_stream(raw_server: RunningServer, ollama: RawOllama) -> None:
    import anthropic

    ollama.chat = sends(stream_head(), line("Half"), b'{"error":"kaput"}\n')
    request: Any = {"model": "raw", "max_tokens": 9, **user("Hello!")}
    with client_of(raw_server) as client, client.messages.stream(**request) as events:
        assert next(events.text_stream) == "Half"
        with pytest.raises(anthropic.APIStatusError) as caught:
            events.until_done()
    error: Any = caught.value.body
    assert error["error"] == {"type": "api_error", "message": "Ollama failed: kaput"}
    assert error["request_id"] == caught.value.response.headers["request-id"]
