"""Messages API of Anthropic, with the official client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mochi_server.protocols.sent_files import HIDDEN_DOCUMENT, HIDDEN_IMAGE
from mochi_stub import StubServer
from tests.anthropic.conversation import LOOK, STREAMED, Conversation, call_of, client_of, text_of
from tests.openai.conversation import stored
from tests.support.cases import cases
from tests.support.images import PNG, base64_image, sha256_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

PIXEL = base64_image(PNG)
PDF: Any = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
}
PLAIN_IN_PROMPT = (
    f'[Begin of file "file" {sha256_of(b"Plain.")[:8]}]\nPlain.\n'
    f'[End of file "file" {sha256_of(b"Plain.")[:8]}]'
)
BILLING = "x-anthropic-billing-header: cc_version=2.1.0; cch=1a2b3;"
OTHER: Any = {
    "name": "other",
    "input_schema": {"type": "object"},
    "cache_control": {"type": "ephemeral"},
}


def image(data: str = PIXEL) -> Any:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def text(content: str) -> Any:
    return {"type": "text", "text": content}


USER: Any = {"role": "user", "content": "Hello!"}
SYSTEM: Any = {"role": "system", "content": [{"type": "text", "text": "Be."}]}
CALL: Any = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
}
RESULT: Any = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Sun."}],
}
ANSWER: Any = {"role": "assistant", "content": "Yes."}


def offered(body: Any) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", ())]


@STREAMED
def test_answer_is_a_message(conversation: Conversation) -> None:
    answer = conversation.send_message("Hello!")
    assert answer.id.startswith("msg_")
    assert (answer.model, answer.role, answer.stop_reason, answer.stop_sequence) == (
        "mochi",
        "assistant",
        "end_turn",
        None,
    )
    assert text_of(answer).endswith("Hello!")
    assert min(answer.usage.input_tokens, answer.usage.output_tokens) > 0
    assert (answer.usage.cache_read_input_tokens, answer.usage.cache_creation_input_tokens) == (
        None,
        0,
    )


def test_options_are_sent_to_ollama(conversation: Conversation) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    conversation.send_message(
        "Hello!",
        max_tokens=20,
        stop_sequences=["END"],
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "xhigh", "format": {"type": "json_schema", "schema": schema}},
        metadata={"user_id": "me"},
        service_tier="auto",
        extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 7, "unheard_of": 1},
        extra_headers={"anthropic-beta": "context-1m-2025-08-07"},
    )
    (body,) = conversation.sent
    assert body["options"].pop("num_ctx") >= 8192
    assert body["options"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "stop": ["END"],
        "num_predict": 20,
    }
    assert (body["think"], body["format"]) == ("max", schema)


@cases(
    ("asks", "think"),
    [
        ({}, False),
        ({"output_config": {"effort": "high"}}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low"),
    ],
)
def test_model_thinks_only_if_thinking_is_enabled(
    conversation: Conversation, asks: Any, think: object
) -> None:
    answer = conversation.send_message(instruct(words(2), reasoning=3), **asks)
    assert conversation.sent[-1]["think"] == think
    assert [block.type for block in answer.content] == (["thinking", "text"] if think else ["text"])


@STREAMED
def test_thinking_blocks_are_accepted_in_the_next_request(conversation: Conversation) -> None:
    answer = conversation.send_message(
        instruct(words(2), reasoning=3), thinking={"type": "adaptive"}
    )
    block: Any = answer.content[0]
    assert block.signature
    assert "lorem" in block.thinking
    conversation.messages[-1]["content"].append({"type": "redacted_thinking", "data": "eA=="})
    assert conversation.send_message("Go on.").stop_reason == "end_turn"


@STREAMED
def test_answer_at_limit_has_stop_reason_max_tokens(conversation: Conversation) -> None:
    assert conversation.send_message("Hello!", max_tokens=5).stop_reason == "max_tokens"


@STREAMED
def test_client_tools_are_called_by_client(conversation: Conversation) -> None:
    conversation.asks = {"tools": [LOOK, OTHER]}
    answer = conversation.send_message(instruct(words(2), calls("look", at="sky"), words(3)))
    assert [block.type for block in answer.content] == ["text", "tool_use"]
    call = call_of(answer)
    assert (call.name, call.input) == ("look", {"at": "sky"})

    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "blue"}],
    }
    assert conversation.send_message([result]).stop_reason == "end_turn"
    request, answered = conversation.sent[-1]["messages"][-2:]
    assert request["tool_calls"][0]["function"] == {
        "index": 0,
        "name": "look",
        "arguments": {"at": "sky"},
    }
    assert answered == {
        "role": "tool",
        "content": "blue",
        "tool_name": "look",
        "tool_call_id": call.id,
    }
    assert offered(conversation.sent[-1]) == ["look", "other"]


@cases(
    ("choice", "names"),
    [
        ({"type": "none"}, []),
        ({"type": "auto"}, ["look", "other"]),
        ({"type": "any"}, ["look", "other"]),
        ({"type": "tool", "name": "other"}, ["other"]),
    ],
)
def test_tools_are_offered_as_chosen(
    conversation: Conversation, choice: Any, names: list[str]
) -> None:
    text = instruct(calls("other"), words(1)) if names else "Hello!"
    answer = conversation.send_message(text, tools=[LOOK, OTHER], tool_choice=choice)
    assert [block.name for block in answer.content if block.type == "tool_use"] == ["other"][
        : len(names)
    ]
    assert offered(conversation.sent[-1]) == names


def test_parallel_tool_use_can_be_disabled(conversation: Conversation) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = conversation.send_message(
        instruct(calls("look", "other")), tools=[LOOK, OTHER], tool_choice=choice
    )
    assert call_of(answer).name == "look"


@STREAMED
def test_provider_tools_are_left_out_with_a_notice(conversation: Conversation) -> None:
    request: Any = {
        "model": "mochi",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hello!"}],
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "mcp_toolset", "mcp_server_name": "github"},
            {"type": "custom", **LOOK},
        ],
    }
    if conversation.stream:
        ends = [
            e
            for e in conversation.client.messages.create(stream=True, **request)
            if e.type == "message_delta"
        ]
    else:
        ends = [conversation.client.messages.create(**request)]
    ending: Any = ends[0]
    assert [notice["code"] for notice in ending.mochi["notices"]] == ["TOOL_LEFT_OUT"] * 2
    assert "'web_search'" in ending.mochi["notices"][0]["message"]
    assert "'mcp_toolset'" in ending.mochi["notices"][1]["message"]
    assert offered(conversation.sent[-1]) == ["look"]


@cases("choice", [{"type": "any"}, {"type": "tool", "name": "web_search"}])
def test_no_call_of_a_left_out_tool_is_required(conversation: Conversation, choice: Any) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    answer: Any = conversation.send_message("Hello!", tools=[search], tool_choice=choice)
    assert [block.type for block in answer.content] == ["text"]
    assert [notice["code"] for notice in answer.mochi["notices"]] == ["TOOL_LEFT_OUT"]


@STREAMED
def test_server_tools_run_on_server(conversation: Conversation) -> None:
    conversation.asks = {"extra_headers": {"X-Mochi-Tools": "add, note"}}
    answer = conversation.send_message(instruct(words(1), calls("add", a=1, b=2), words(2)))
    assert [block.type for block in answer.content] == ["text", "text"], (
        "one block for each answer of the model"
    )
    assert conversation.sent[-1]["messages"][-1]["content"] == "3.0"


@cases(("policy", "result"), [(None, "denied"), ("never_confirm", "Noted.")])
def test_call_that_needs_approval_is_denied(
    conversation: Conversation, policy: str | None, result: str
) -> None:
    headers = {"X-Mochi-Tools": "note"} | ({"X-Mochi-Tool-Policy": policy} if policy else {})
    conversation.send_message(instruct(calls("note", text="x"), words(2)), extra_headers=headers)
    assert result in conversation.sent[-1]["messages"][-1]["content"]


@STREAMED
def test_agent_thinks_and_answers(conversation: Conversation, data_dir: Path) -> None:
    before = stored(data_dir)
    answer = conversation.send_message(
        instruct(words(2), calls("look"), words(3), label="A"), model="agent:helper"
    )
    assert answer.model == "agent:helper"
    assert {block.type for block in answer.content} == {"thinking", "text"}
    assert "A lorem" in text_of(answer)
    assert stored(data_dir) == before


def test_consecutive_messages_of_a_role_are_merged(conversation: Conversation) -> None:
    conversation.messages = [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True}],
        },
        {
            "role": "user",
            "content": [{"type": "text", "text": "Three."}, {"type": "text", "text": "Four."}],
        },
    ]
    conversation.send_message(
        "Five.", system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Hm."}]
    )
    sent = [(message["role"], message["content"]) for message in conversation.sent[-1]["messages"]]
    assert sent == [
        ("system", "Be brief.\nHm."),
        ("user", "One."),
        ("assistant", "Two."),
        ("tool", ""),
        ("user", "Three.\nFour.\nFive."),
    ]


@cases(
    ("messages", "expected"),
    [
        ([USER, SYSTEM], [("user", "Hello!"), ("system", "Be.")]),
        ([SYSTEM, USER], [("system", "Be."), ("user", "Hello!")]),
        (
            [USER, SYSTEM, ANSWER, USER, {"role": "system", "content": "Be brief."}],
            [
                *[("user", "Hello!"), ("system", "Be."), ("assistant", "Yes.")],
                ("user", "Hello!"),
                ("system", "Be brief."),
            ],
        ),
        (
            [USER, SYSTEM, SYSTEM, USER],
            [("user", "Hello!"), ("system", "Be.\nBe."), ("user", "Hello!")],
        ),
        (
            [USER, {"role": "system", "content": [text("a"), text("b")]}],
            [("user", "Hello!"), ("system", "a\nb")],
        ),
        (
            [USER, CALL, SYSTEM, RESULT, USER],
            [
                ("user", "Hello!"),
                ("assistant", ""),
                ("system", "Be."),
                ("tool", "Sun."),
                ("user", "Hello!"),
            ],
        ),
    ],
)
def test_system_messages_keep_their_position(
    conversation: Conversation, messages: Any, expected: list[tuple[str, str]]
) -> None:
    answer = conversation.create(messages=messages)
    assert (answer.stop_reason, text_of(answer).endswith("Hello!")) == ("end_turn", True)
    sent = conversation.sent[-1]["messages"]
    assert [(message["role"], message["content"]) for message in sent] == expected


def test_agent_gets_the_user_message_before_instructions(conversation: Conversation) -> None:
    task = {"role": "user", "content": instruct(words(2), calls("look"), words(3), label="A")}
    assert "A lorem" in text_of(conversation.create(model="agent:helper", messages=[task, SYSTEM]))


@cases(
    ("system", "sent"),
    [
        ([text(BILLING), text("Be kind."), text("Be brief.")], ["Be kind.\nBe brief."]),
        ([text(f"{BILLING}\nBe kind."), text("Be brief.")], ["Be kind.\nBe brief."]),
        (f"{BILLING}\nBe kind.\nBe brief.", ["Be kind.\nBe brief."]),
        ([text(f"{BILLING}\n\nBe kind.")], ["Be kind."]),
        ([text(BILLING)], []),
        (BILLING, []),
        (f"{BILLING}\n", []),
        ([text("Be kind."), text(BILLING)], [f"Be kind.\n{BILLING}"]),
        (f"Be kind.\n{BILLING}", [f"Be kind.\n{BILLING}"]),
    ],
)
def test_billing_line_is_not_sent_to_the_model(
    conversation: Conversation, system: Any, sent: list[str]
) -> None:
    conversation.send_message("Hello!", system=system)
    messages = conversation.sent[-1]["messages"]
    assert [message["content"] for message in messages if message["role"] == "system"] == sent


def test_documents_of_the_past_become_notes(conversation: Conversation) -> None:
    plain = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Plain."},
    }
    conversation.messages = [
        {"role": "user", "content": [text("Read."), PDF]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [text("See."), PDF]}
            ],
        },
        {"role": "assistant", "content": "Yes."},
    ]
    answer: Any = conversation.send_message([text("And this?"), plain])
    asked, _, seen, _, last = conversation.sent[-1]["messages"]
    assert (asked["content"], seen["content"]) == (
        f"Read.\n{HIDDEN_DOCUMENT}",
        f"See.\n{HIDDEN_DOCUMENT}",
    )
    assert last["content"] == f"{PLAIN_IN_PROMPT}\n\nAnd this?"
    assert [notice["code"] for notice in answer.mochi["notices"]] == ["DOCUMENT_LEFT_OUT"]


@cases(
    "source",
    [
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "file", "file_id": "file_1"},
        {"type": "base64", "media_type": "image/png", "data": "*"},
    ],
    ids=lambda source: source["type"],
)
def test_unreadable_image_is_refused_only_in_the_newest_message(
    conversation: Conversation, source: Any
) -> None:
    unreadable: Any = {"type": "image", "source": source}
    question: Any = {"role": "user", "content": [text("What is this?"), unreadable]}
    assert conversation.rejected(messages=[question]).status_code == 400

    result: Any = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [text("Seen."), unreadable],
    }
    messages: Any = [question, CALL, {"role": "user", "content": [result, text("And now?")]}]
    answer: Any = conversation.create(messages=messages)

    asked, _, seen, _ = conversation.sent[-1]["messages"]
    assert asked["content"] == f"What is this?\n{HIDDEN_IMAGE}"
    assert seen["content"] == f"Seen.\n{HIDDEN_IMAGE}"
    assert [notice["code"] for notice in answer.mochi["notices"]] == ["CONTENT_LEFT_OUT"]
    counted = conversation.client.messages.count_tokens(model="mochi", messages=messages)
    assert counted.input_tokens > 0


def test_tool_reference_names_a_tool_that_was_found(conversation: Conversation) -> None:
    found = {"type": "tool_reference", "tool_name": "look"}
    conversation.messages = [
        {"role": "user", "content": "Search."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "other", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [found]}],
        },
    ]
    conversation.create(tools=[LOOK | {"defer_loading": True}, OTHER])
    assert conversation.sent[-1]["messages"][-1]["content"] == "The tool 'look' is available."
    assert offered(conversation.sent[-1]) == ["look", "other"]


def test_images_are_sent_to_the_model(conversation: Conversation) -> None:
    url = {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{PIXEL}"}}
    conversation.messages = [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}],
        },
    ]
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "Seen."}, image()],
    }
    conversation.send_message(
        [result, {"type": "text", "text": "What is this?"}, url], model="echo"
    )
    *_, seen, asked = conversation.sent[-1]["messages"]
    assert (seen["role"], seen["content"], seen["images"]) == ("tool", "Seen.", [PIXEL])
    assert (asked["role"], asked["content"], asked["images"]) == ("user", "What is this?", [PIXEL])


def test_events_of_a_stream_are_in_order(client: Any) -> None:
    text = instruct(words(2), calls("look", at="sky"), reasoning=2)
    request: Any = {
        "model": "mochi",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": text}],
    }
    response = client.messages.with_raw_response.create(
        stream=True, tools=[LOOK], thinking={"type": "adaptive"}, **request
    )
    lines = list(response.http_response.iter_lines())
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    events = [
        json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")
    ]
    assert names == [event["type"] for event in events]
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == (
        [],
        None,
        0,
    )
    blocks = [
        (event["index"], event["content_block"]["type"])
        for event in events
        if "content_block" in event
    ]
    assert blocks == [(0, "thinking"), (1, "text"), (2, "tool_use")]
    kinds = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(kinds)) == [
        "thinking_delta",
        "signature_delta",
        "text_delta",
        "input_json_delta",
    ]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["request-id"] == response.headers["x-request-id"]


def test_count_tokens_estimates_the_prompt(client: Any) -> None:
    def count(text: str, **asks: Any) -> int:
        messages: Any = [{"role": "user", "content": text}]
        tokens: int = client.messages.count_tokens(
            model="mochi", messages=messages, **asks
        ).input_tokens
        return tokens

    short, long = count("Hello!"), count("Hello! " * 1000)
    assert 0 < short < 100 < long
    assert count("Hello!", tools=[LOOK]) > short
    assert count("Hello!", system="Be brief." * 20) > short
    messages: Any = [USER, SYSTEM]
    assert client.messages.count_tokens(model="mochi", messages=messages).input_tokens > short
    instructions = "Be brief." * 20
    expected = count("Hello!", system=instructions)
    assert count("Hello!", system=f"{BILLING}\n{instructions}") == expected
    assert count("Hello!", system=[text(BILLING), text(instructions)]) == expected


def test_count_tokens_omits_the_reasoning_of_earlier_turns_after_a_tool_result(
    client: Any,
) -> None:
    """The prompt of the turn has none of it either."""

    def count(reasoning: str) -> int:
        thinking = {"type": "thinking", "thinking": reasoning, "signature": ""}
        use = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "A hill."}
        messages: Any = [
            USER,
            {"role": "assistant", "content": [thinking, text("Hello.")]},
            USER,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        tokens: int = client.messages.count_tokens(model="mochi", messages=messages).input_tokens
        return tokens

    assert count("Hm. " * 1000) == count("Hm.")


def test_count_tokens_counts_images_only_if_the_model_sees_them(client: Any) -> None:
    messages: Any = [{"role": "user", "content": [image()]}]
    blind, seeing = (
        client.messages.count_tokens(model=model, messages=messages) for model in ("mochi", "echo")
    )
    assert blind.input_tokens < 100 < seeing.input_tokens


def test_count_tokens_rejects_an_unknown_model(client: Any) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(
            model="nowhere", messages=[{"role": "user", "content": "Hello!"}]
        )


def test_both_key_headers_are_accepted(tmp_path: Path, stub: StubServer) -> None:
    import anthropic

    with RunningServer(tmp_path, stub.url, api_keys=("right",)) as server:
        request: Any = {
            "model": "mochi",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Hello!"}],
        }
        for credential in ("api_key", "auth_token"):  # headers `x-api-key` and `Authorization`
            with client_of(server, **{credential: "right"}) as client:
                assert client.messages.create(**request).content
        with (
            client_of(server, api_key="wrong") as client,
            pytest.raises(anthropic.AuthenticationError) as caught,
        ):
            client.messages.create(**request)
        assert caught.value.response.json()["error"]["type"] == "authentication_error"


THREAD_DETAILS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
CONTINUE = {"type": "continue", "previous_message_id": "msg_1"}


def test_tool_runner_sends_the_whole_conversation(server: RunningServer) -> None:
    from anthropic import beta_tool

    def look(at: str) -> str:
        """Look at something."""
        return f"The {at} is blue."

    with client_of(server) as client:
        runner = client.beta.messages.tool_runner(
            model="mochi",
            max_tokens=1000,
            tools=[beta_tool(look)],
            messages=[{"role": "user", "content": instruct(calls("look", at="sky"), words(3))}],
        )
        calling, answer = [message.content for message in runner]
    assert [block.type for block in calling] == ["tool_use"]
    assert [block.type for block in answer] == ["text"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_thread_is_refused_with_the_details_that_clients_know(
    server: RunningServer, path: str
) -> None:
    body = {"model": "mochi", "max_tokens": 9, "messages": [USER], "thread": CONTINUE}
    response = server.client.http.post(f"{server.url}{path}", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["details"] == THREAD_DETAILS
    assert error["message"].startswith("thread: must be left out")


def test_null_thread_counts_as_absent(conversation: Conversation) -> None:
    assert conversation.create(messages=[USER], extra_body={"thread": None}).content
