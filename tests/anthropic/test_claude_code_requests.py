"""Requests in the form in which Claude Code sends them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.anthropic.conversation import LOOK, Conversation, call_of, text_of
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

BILLING = "x-anthropic-billing-header: cc_version=2.1.197; cch=00f1a;"
USER: dict[str, Any] = {"role": "user", "content": "Hello!"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "Yes."}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def sent_texts(conversation: Conversation) -> list[tuple[str, str]]:
    messages = conversation.sent[-1]["messages"]
    return [(message["role"], message["content"]) for message in messages]


@cases(
    ("messages", "expected"),
    [
        ([USER, system("s")], [("user", "Hello!"), ("system", "s")]),
        ([system("s"), USER], [("system", "s"), ("user", "Hello!")]),
        (
            [USER, ASSISTANT, system("s"), USER],
            [("user", "Hello!"), ("assistant", "Yes."), ("system", "s"), ("user", "Hello!")],
        ),
        ([USER, {"role": "system", "content": [block("a"), block("b")]}], [("user", "Hello!"), ("system", "a\nb")]),
    ],
)
def test_system_messages_keep_their_position(
    conversation: Conversation, messages: list[Any], expected: list[tuple[str, str]]
) -> None:
    answer = conversation.create(messages=messages)
    assert text_of(answer).endswith("Hello!")
    assert sent_texts(conversation) == expected


def test_count_tokens_accepts_system_messages(conversation: Conversation) -> None:
    messages: Any = [USER, system("s" * 1000)]
    counted = conversation.client.messages.count_tokens(model="mochi", messages=messages)
    assert counted.input_tokens > 200


@cases("content", [None, 5, [{"type": "image"}]])
def test_invalid_system_message_names_its_field(conversation: Conversation, content: Any) -> None:
    error = conversation.rejected(messages=[USER, {"role": "system", "content": content}])
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert "messages.1.content" in str(error)


def test_system_message_in_a_session_is_not_stored(conversation: Conversation, server: RunningServer) -> None:
    api: Api = server.client
    session = api.create_session("mochi", system_prompt="Be kind.")["session_id"]
    headers = {"X-Mochi-Session": session}
    conversation.create(messages=[USER, system("Be brief.")], extra_headers=headers)
    assert sent_texts(conversation) == [("system", "Be kind.\n\nBe brief."), ("user", "Hello!")]
    stored = [(message["role"], message["content"]) for message in api.messages(session)[:2]]
    assert stored == [("system", "Be kind."), ("user", "Hello!")]


def test_tool_result_before_a_system_message_continues(conversation: Conversation, server: RunningServer) -> None:
    session = server.client.create_session("mochi")["session_id"]
    asks: dict[str, Any] = {"tools": [LOOK], "extra_headers": {"X-Mochi-Session": session}}
    question = {"role": "user", "content": instruct(calls("look"), words(2))}
    call = call_of(conversation.create(messages=[question], **asks))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "blue"}
    messages = [question, {"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    conversation.create(messages=[*messages, system("s")], **asks)
    roles = [message["role"] for message in server.client.messages(session)]
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_agent_gets_the_task_before_a_system_message(conversation: Conversation) -> None:
    answer = conversation.create(model="agent:helper", messages=[USER, system("s")])
    assert text_of(answer)


@pytest.fixture(params=["a string", "blocks", "one block"])
def prompt(request: pytest.FixtureRequest) -> Any:
    """A system prompt with a billing header, in each form."""
    forms: dict[str, Any] = {
        "a string": f"{BILLING}\nBe brief.",
        "blocks": [block(BILLING), block("Be brief.")],
        "one block": [block(f"{BILLING}\n\nBe brief.")],
    }
    return forms[request.param]


def test_billing_header_is_not_sent_to_the_model(conversation: Conversation, prompt: Any) -> None:
    conversation.create(system=prompt, messages=[USER])
    assert sent_texts(conversation) == [("system", "Be brief."), ("user", "Hello!")]


def test_count_tokens_omits_the_billing_header(conversation: Conversation, prompt: Any) -> None:
    def count(text: Any) -> int:
        messages: Any = [USER]
        return conversation.client.messages.count_tokens(model="mochi", messages=messages, system=text).input_tokens

    assert count(prompt) == count("Be brief.")


def test_billing_header_alone_leaves_no_system_prompt(conversation: Conversation) -> None:
    conversation.create(system=BILLING, messages=[USER])
    assert sent_texts(conversation) == [("user", "Hello!")]


def test_only_the_first_block_can_be_a_billing_header(conversation: Conversation) -> None:
    conversation.create(system=[block("Be brief."), block(BILLING)], messages=[USER])
    assert sent_texts(conversation)[0] == ("system", f"Be brief.\n{BILLING}")
