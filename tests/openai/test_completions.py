"""Completions without a session: requests to the model and responses to the client."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mochi_server.chat.prompt import HEADING
from mochi_stub import Cut, Model, Reply, StubServer, Text
from mochi_stub.journal import Exchange
from tests.openai.conversation import LOOK, Conversation, call_of, client_of, message_of, stored
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.raw_http import connect
from tests.support.server import RunningServer

if TYPE_CHECKING:
    import openai

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def test_models_and_agents_are_listed(client: openai.OpenAI) -> None:
    import openai

    names = [model.id for model in client.models.list()]
    assert {"mochi:latest", "agent:helper"} <= set(names)
    assert client.models.retrieve("agent:helper").object == "model"
    assert client.models.retrieve("mochi").id == "mochi"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("agent:nobody")
    assert caught.value.code == "model_not_found"


def test_embedding_models_are_listed_after_chat_models(client: openai.OpenAI) -> None:
    import openai

    names = [model.id for model in client.models.list()]
    assert (
        names.index("mochi:latest")
        < names.index("mochi-embed:latest")
        < names.index("agent:helper")
    )
    assert client.models.retrieve("mochi-embed").id == "mochi-embed"
    with pytest.raises(
        openai.NotFoundError, match="'mochi-embed' is an embedding model and cannot chat"
    ):
        client.chat.completions.create(
            model="mochi-embed", messages=[{"role": "user", "content": "Hello!"}]
        )


@STREAMED
def test_answer_has_text_and_token_counts_of_ollama(
    conversation: Conversation, stream: bool
) -> None:
    conversation.stream = stream
    answer = conversation.send_message("Hello!")
    assert message_of(answer).content
    assert message_of(answer).content.endswith("Hello!")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    (body,) = conversation.sent
    assert body["messages"] == [{"role": "user", "content": "Hello!"}]
    assert body["options"]["num_ctx"] >= 8192


def test_without_a_session_nothing_is_stored(conversation: Conversation, data_dir: Path) -> None:
    before = stored(data_dir)
    for stream in (False, True):
        conversation.stream = stream
        conversation.send_message(
            instruct(calls("add", a=1, b=2), words(3)), extra_headers={"X-Mochi-Tools": "add"}
        )
    conversation.messages.clear()
    conversation.send_message("Hello!", model="agent:helper")
    assert stored(data_dir) == before


def test_options_are_sent_to_ollama(conversation: Conversation) -> None:
    conversation.send_message(
        "Hello!",
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop="END",
        presence_penalty=0.1,
        frequency_penalty=0.2,
        max_tokens=30,
        max_completion_tokens=20,
        reasoning_effort="high",
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object"}},
        },
        extra_body={"unheard_of": 1, "user": "me", "parallel_tool_calls": False},
    )
    (body,) = conversation.sent
    assert body["options"].pop("num_ctx") >= 8192
    options = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"], "num_predict": 20}
    assert body["options"] == options | {"presence_penalty": 0.1, "frequency_penalty": 0.2}
    assert (body["think"], body["format"]) == ("high", {"type": "object"})
    conversation.send_message(
        "Again.", response_format={"type": "json_object"}, reasoning_effort="none"
    )
    assert (conversation.sent[-1]["think"], conversation.sent[-1]["format"]) == (False, "json")


def test_answer_at_limit_has_finish_reason_length(conversation: Conversation) -> None:
    assert conversation.send_message("Hello!", max_tokens=5).choices[0].finish_reason == "length"


@STREAMED
def test_reasoning_is_sent_under_both_names(
    conversation: Conversation, client: openai.OpenAI, stream: bool
) -> None:
    request: Any = {
        "model": "mochi",
        "messages": [{"role": "user", "content": instruct(words(2), reasoning=3)}],
        "reasoning_effort": "low",
    }
    if stream:
        deltas: list[Any] = [
            c.choices[0].delta for c in client.chat.completions.create(stream=True, **request)
        ]
        thought = [
            "".join(getattr(d, n, None) or "" for d in deltas)
            for n in ("reasoning", "reasoning_content")
        ]
    else:
        message: Any = message_of(client.chat.completions.create(**request))
        thought = [message.reasoning, message.reasoning_content]
    assert thought[0] == thought[1] != ""


@STREAMED
def test_client_tools_are_called_by_client(conversation: Conversation, stream: bool) -> None:
    conversation.stream, conversation.asks = stream, {"tools": [LOOK]}
    answer = conversation.send_message(instruct(calls("look", at="sky"), words(3)))
    assert answer.choices[0].finish_reason == "tool_calls"
    call = call_of(answer)
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"at": "sky"})

    answer = conversation.send_messages(
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "blue"}]}
    )
    assert answer.choices[0].finish_reason == "stop"
    first, second = conversation.sent
    assert [tool["function"]["name"] for tool in first["tools"]] == ["look"]
    request, result = second["messages"][-2:]
    assert request["tool_calls"][0]["function"] == {
        "index": 0,
        "name": "look",
        "arguments": {"at": "sky"},
    }
    assert result == {
        "role": "tool",
        "content": "blue",
        "tool_name": "look",
        "tool_call_id": call.id,
    }


def test_tools_are_offered_as_chosen(conversation: Conversation) -> None:
    other = {"type": "function", "function": {"name": "other"}}
    for choice in ("none", "auto", "required", {"type": "function", "function": {"name": "other"}}):
        text = "Hello!" if choice == "none" else instruct(calls("other"), words(1))
        conversation.send_message(text, tools=[LOOK, other], tool_choice=choice)
        conversation.messages.clear()
    offered = [
        [tool["function"]["name"] for tool in body.get("tools", ())] for body in conversation.sent
    ]
    assert offered == [[], ["look", "other"], ["look", "other"], ["other"]]


def test_call_despite_tool_choice_none_is_dropped(conversation: Conversation) -> None:
    answer = conversation.send_message(
        instruct(calls("look"), words(3)), tools=[LOOK], tool_choice="none"
    )
    assert (message_of(answer).tool_calls, answer.choices[0].finish_reason) == (None, "stop")


@STREAMED
def test_server_tools_run_on_server(conversation: Conversation, stream: bool) -> None:
    conversation.stream, conversation.asks = (
        stream,
        {"extra_headers": {"X-Mochi-Tools": "add, note"}},
    )
    answer = conversation.send_message(instruct(words(1), calls("add", a=1, b=2), words(2)))
    assert message_of(answer).content
    assert "\n\n" in message_of(answer).content, "the texts of two rounds run into each other"
    assert conversation.sent[-1]["messages"][-1]["content"] == "3.0"


@cases(("names", "stream"), [(("add", "look"), False), (("look", "add"), True)])
def test_server_and_client_tools_are_called_together(
    conversation: Conversation, names: tuple[str, str], stream: bool
) -> None:
    conversation.stream = stream
    answer = conversation.send_message(
        instruct(calls(*names, a=1, b=2), words(3)),
        tools=[LOOK],
        extra_headers={"X-Mochi-Tools": "add"},
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call_of(answer).function.name == "look"


@cases(
    ("policy", "result"),
    [(None, "denied"), ("never_confirm", "Noted."), ("always_confirm", "denied")],
)
def test_call_that_needs_approval_is_denied(
    conversation: Conversation, policy: str | None, result: str
) -> None:
    headers = {"X-Mochi-Tools": "note"} | ({"X-Mochi-Tool-Policy": policy} if policy else {})
    answer: Any = conversation.send_message(
        instruct(calls("note", text="x"), words(2)), extra_headers=headers
    )
    assert result in conversation.sent[-1]["messages"][-1]["content"]
    (call,) = answer.mochi["tool_calls_executed"]
    assert call["error_code"] == ("TOOL_EXECUTION_DENIED" if result == "denied" else None)
    assert call["arguments"] == {"text": "x"}
    assert call["execution_time"] >= 0


def test_instructions_and_thinking_are_forwarded(conversation: Conversation) -> None:
    conversation.messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting."},
    ]
    conversation.send_message("Bye.")
    assert [message["content"] for message in conversation.sent[-1]["messages"]] == [
        "Be brief.",
        "Hi.",
        "Hello.",
        "Bye.",
    ]
    assert conversation.sent[-1]["messages"][0]["role"] == "system"


def test_images_are_sent_to_vision_models(tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    models = [Model("seeing", capabilities=("completion", "vision")), Model("blind")]
    with (
        StubServer(models=models, speed=0) as stub,
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
    ):
        conversation = Conversation(client, stub)
        conversation.send_message(content, model="seeing")
        assert conversation.sent[-1]["messages"] == [
            {"role": "user", "content": "What is this?", "images": [PIXEL]}
        ]
        refusal = conversation.refused(messages=conversation.messages[:1], model="blind")
        assert (refusal.status_code, refusal.param) == (400, "messages")
        assert conversation.refused(model="blind", tools=[LOOK]).param == "tools"
        conversation.send_message("And now?", model="seeing")
        assert [message.get("images") for message in conversation.sent[-1]["messages"]] == [
            [PIXEL],
            None,
            None,
        ]
        in_session(conversation, server.api())


def test_conversation_can_have_more_images_than_a_message(conversation: Conversation) -> None:
    def message(number: int) -> Any:
        url = f"data:image/png;base64,{PIXEL}"
        return {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": url}}] * number,
        }

    conversation.messages = [message(9), {"role": "assistant", "content": "Seen."}]
    conversation.send_messages(message(9), model="echo")
    assert [len(sent.get("images", [])) for sent in conversation.sent[-1]["messages"]] == [9, 0, 9]
    conversation.send_messages(message(16), model="echo")
    refusal = conversation.refused(messages=[*conversation.messages, message(17)], model="echo")
    assert (refusal.status_code, refusal.param) == (400, "messages[6].content")


def in_session(conversation: Conversation, api: Api) -> None:
    """Send the first message again with a session, which stores its image and sends it to the
    model.
    """
    session = api.create_session("seeing")["session_id"]
    asks: Any = {"model": "seeing", "extra_headers": {"X-Mochi-Session": session}}
    said_before = conversation.messages[0]
    conversation.messages.clear()
    conversation.send_messages(said_before, **asks)
    assert conversation.sent[-1]["messages"][0]["images"] == [PIXEL]
    assert (
        conversation.refused(**asks | {"messages": [said_before], "model": "blind"}).param
        == "messages"
    )
    assert api.session(session)["model"] == "seeing"
    (image,) = api.messages(session)[0]["images"]
    assert api.http.get(f"/sessions/{session}/blobs/{image['sha256']}").content == base64.b64decode(
        PIXEL
    )


@cases(
    ("asks", "status", "param", "code"),
    [
        ({"n": 2}, 400, "n", "invalid_value"),
        ({"functions": [{"name": "f"}]}, 400, "functions", "invalid_value"),
        ({"messages": []}, 400, "messages", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            400,
            "messages[0].content",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "user"}]},
            400,
            "messages[0].content",
            "missing_required_parameter",
        ),
        ({"messages": [{"role": "nobody", "content": ""}]}, 400, "messages[0]", "invalid_value"),
        ({"temperature": 3}, 400, "temperature", "invalid_value"),
        ({"stop": 5}, 400, "stop", "invalid_value"),
        ({"stop": {"str": "END"}}, 400, "stop", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": {"text": "Hi"}}]},
            400,
            "messages[0].content",
            "invalid_value",
        ),
        (
            {"tool_choice": {"type": "allowed_tools"}},
            400,
            "tool_choice.allowed_tools",
            "missing_required_parameter",
        ),
        ({"response_format": {"type": "xml"}}, 400, "response_format", "invalid_value"),
        ({"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        ({"tools": [{"type": "custom", "custom": {}}]}, 400, "tools[0].type", "invalid_value"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "x"}}},
            400,
            "tool_choice",
            "invalid_value",
        ),
        ({"model": "nowhere"}, 404, "model", "model_not_found"),
        ({"model": " mochi "}, 404, "model", "model_not_found"),
        ({"model": "agent:nobody"}, 404, "model", "model_not_found"),
        ({"extra_headers": {"X-Mochi-Tools": "add,dance"}}, 404, None, "tool_not_found"),
        (
            {"extra_headers": {"X-Mochi-Tool-Policy": "ask"}},
            400,
            "X-Mochi-Tool-Policy",
            "invalid_value",
        ),
        ({"extra_headers": {"X-Mochi-Session": "0123456789"}}, 404, None, "session_not_found"),
        ({"extra_headers": {"X-Mochi-Session": "../canary"}}, 404, None, "session_not_found"),
        ({"extra_headers": {"X-Mochi-Session": ""}}, 404, None, "session_not_found"),
        ({"metadata": {"session_id": "0123456789"}}, 404, None, "session_not_found"),
        ({"model": "agent:helper", "tools": [LOOK]}, 400, "tools", "invalid_value"),
    ],
    ids=str,
)
def test_unsupported_requests_are_refused(
    conversation: Conversation, asks: Any, status: int, param: str | None, code: str
) -> None:
    refusal = conversation.refused(**asks)
    assert (refusal.status_code, refusal.param, refusal.code) == (status, param, code)
    assert refusal.type == "invalid_request_error"


@cases(
    "url",
    [
        "https://example.org/cat.png",
        "data:image/png;base64,*",
        "data:image/png;base64,eA==",
        "file:///etc/passwd",
        "data:text/html;base64,eA==",
    ],
)
def test_image_urls_are_not_fetched(conversation: Conversation, url: str) -> None:
    refusal = conversation.refused(
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    )
    assert refusal.status_code == 400
    assert str(refusal.param).startswith("messages")


def test_results_follow_the_nearest_call_with_their_id(conversation: Conversation) -> None:
    """Some models give all calls of a conversation the same ID."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    other = {**asked, "tool_calls": [{**call, "id": "b"}]}
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("a", "b")]
    conversation.send_messages(asked, asked, other, *results, {"role": "user", "content": "Hi"})
    shown = [(sent["role"], sent["content"]) for sent in conversation.sent[-1]["messages"]]
    assert shown == [
        ("assistant", ""),
        ("tool", "The call was interrupted and has no result."),
        ("assistant", ""),
        ("tool", "a"),
        ("assistant", ""),
        ("tool", "b"),
        ("user", "Hi"),
    ]


def test_error_for_an_invalid_image_names_its_field(conversation: Conversation) -> None:
    content = [
        {"type": "text", "text": "Hi"},
        {"type": "image_url", "image_url": "data:image/png;base64,eA=="},
    ]
    refusal = conversation.refused(messages=[{"role": "user", "content": content}])
    assert refusal.param == "messages[0].content[1]"
    assert "messages[0].content[1]: not an image" in refusal.message


def test_errors_before_routing_have_the_openai_format(server: RunningServer) -> None:
    url = f"{server.url}/v1/chat/completions"
    for response, status, code in (
        (httpx.get(f"{server.url}/v1/nothing"), 404, "not_found"),
        (httpx.get(url), 405, "method_not_allowed"),
        (httpx.post(url, content="{}"), 400, "invalid_request"),
        (
            httpx.post(url, content="{", headers={"Content-Type": "application/json"}),
            400,
            "invalid_json",
        ),
        (
            httpx.post(url, json={}, headers={"Origin": "https://evil.example"}),
            403,
            "origin_forbidden",
        ),
        (httpx.get(url, headers={"X-Long": "x" * 70_000}), 431, "headers_too_large"),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(httpx.get(f"{server.url}/api/v1/nothing").json()["error"]) == {
        "code",
        "message",
        "details",
    }


def test_api_key_is_a_bearer_token(tmp_path: Path, stub: StubServer) -> None:
    import openai

    with RunningServer(tmp_path, stub.url, api_keys=("right",)) as server:
        for key, answers in (("right", True), ("wrong", False)):
            with client_of(server, key) as client:
                if answers:
                    assert client.models.list().data
                else:
                    with pytest.raises(openai.AuthenticationError) as caught:
                        client.models.list()
                    assert caught.value.code == "invalid_api_key"


def test_manual_window_of_session_is_not_shared(
    conversation: Conversation, server: RunningServer
) -> None:
    api = server.api()
    session = api.create_session("mochi-long")["session_id"]
    wide = {"context_window": {"current_window": 24_576}}
    api.ok(api.http.patch(f"/sessions/{session}", json=wide))
    answer: Any = conversation.send_message("Hello!", model="mochi-long")
    assert answer.mochi["context_window"]["current_window"] == 8192


@STREAMED
def test_unreachable_ollama_is_502(tmp_path: Path, stream: bool) -> None:
    with (
        StubServer() as stub,
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
    ):
        stub.stop()
        refusal = Conversation(client, stub, stream=stream).refused()
    assert (refusal.status_code, refusal.code, refusal.type) == (
        502,
        "ollama_unreachable",
        "server_error",
    )


@pytest.fixture
def long_conversation(tmp_path: Path) -> Iterator[Conversation]:
    """A conversation that is too long for the window of its model, and is sent as a whole."""
    models = [Model("small", capabilities=("completion",), context_length=8192)]
    turn = (
        {"role": "user", "content": "word " * 200},
        {"role": "assistant", "content": "yes " * 200},
    )
    with (
        StubServer(models=models, speed=0) as stub,
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
    ):
        yield Conversation(client, stub, asks={"model": "small"}, messages=[*turn] * 20)


def test_long_conversation_is_compacted(long_conversation: Conversation) -> None:
    """The ratio of characters to tokens is unknown before the first count."""
    answer: Any = long_conversation.send_message("Hi.")
    (notice,) = answer.mochi["notices"]
    assert (notice["type"], notice["summary_used"]) == ("context_compacted", True)
    assert (
        long_conversation.refused(messages=[{"role": "user", "content": "x" * 20_000}]).code
        == "context_length_exceeded"
    )


def test_growing_conversation_is_summarized_once(long_conversation: Conversation) -> None:
    """A coding agent sends its whole conversation again with each request."""
    long_conversation.send_message("First.")
    first_requests = len(long_conversation.sent)
    assert first_requests > 1
    answer: Any = long_conversation.send_message("Second.")
    (request,) = long_conversation.sent[first_requests:]
    summary, *_, question = request["messages"]
    assert summary["content"].startswith(HEADING)
    assert question["content"] == "Second."
    (notice,) = answer.mochi["notices"]
    assert (notice["type"], notice["summary_used"]) == ("context_compacted", True)

    long_conversation.messages[2] = {"role": "user", "content": "Something else."}
    long_conversation.send_message("Third.")
    assert len(long_conversation.sent) > first_requests + 2  # the summary does not fit this history


def test_broken_answer_ends_stream_with_error(tmp_path: Path) -> None:
    import openai

    with (
        StubServer(resolve=lambda _: Reply([Text(["one ", "two "]), Cut()]), speed=0) as stub,
        RunningServer(tmp_path, stub.url) as server,
        client_of(server) as client,
    ):
        received = ""
        chunks = client.chat.completions.create(
            model="mochi", messages=[{"role": "user", "content": "Hello!"}], stream=True
        )
        with pytest.raises(openai.APIError) as caught:  # noqa: PT012 - the loop raises
            for chunk in chunks:
                received += chunk.choices[0].delta.content or ""
        assert (received, caught.value.code) == ("one two ", "ollama_error")


def test_shutdown_ends_an_answer_with_an_error(holding: GatedStub, tmp_path: Path) -> None:
    body = {"model": "mochi", "messages": [{"role": "user", "content": "hold"}], "stream": True}
    with (
        RunningServer(tmp_path, holding.stub.url, shutdown_grace_seconds=0) as server,
        httpx.stream(
            "POST", f"{server.url}/v1/chat/completions", json=body, timeout=10
        ) as response,
    ):
        received = response.iter_text()
        assert any("three" in text for text in received)
        server.stop()
        *_, error, done, rest = "".join(received).split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert (done, rest) == ("data: [DONE]", "")


@STREAMED
def test_disconnect_stops_the_model(holding: GatedStub, tmp_path: Path, stream: bool) -> None:
    body = {"model": "mochi", "messages": [{"role": "user", "content": "hold"}], "stream": stream}
    content = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\n"
    )
    request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    with RunningServer(tmp_path, holding.stub.url) as server:
        with connect(server.url) as connection:
            connection.sendall(request)
            holding.stub.wait_for(has_sent_a_chunk, 60)
            if stream:
                received = connection.makefile("rb")
                assert any(b"three" in line for line in received)
                received.close()
        assert len(holding.chats("cancelled", 60)) == 1
    assert stored(tmp_path) == []


def has_sent_a_chunk(exchanges: list[Exchange]) -> bool:
    return any(exchange.path == "/api/chat" and exchange.chunks for exchange in exchanges)
