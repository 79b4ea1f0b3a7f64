"""Messages API with sessions."""

from __future__ import annotations

from typing import Any

import pytest

from mochi_server.chat.prompt import HIDDEN_IMAGES
from tests.anthropic.conversation import LOOK, STREAMED, Conversation, call_of, text_of
from tests.anthropic.test_messages import image
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


@pytest.fixture
def session(api: Api, conversation: Conversation) -> str:
    """A new session, which is the session of the conversation."""
    session: str = api.create_session("mochi")["session_id"]
    conversation.asks = {"extra_headers": {"X-Mochi-Session": session}}
    return session


def contents(api: Api, session: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in api.messages(session)]


@STREAMED
def test_session_has_the_conversation(conversation: Conversation, api: Api, session: str) -> None:
    conversation.asks["tools"] = [LOOK]
    first = conversation.send_message("One.")
    call = call_of(conversation.send_message(instruct(calls("look", at="sky"), words(2))))
    last = conversation.send_message(
        [{"type": "tool_result", "tool_use_id": call.id, "content": "blue"}]
    )
    stored = contents(api, session)
    assert [role for role, _ in stored] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [stored[1][1], stored[4][1], stored[5][1]] == [text_of(first), "blue", text_of(last)]


def test_client_can_send_only_what_is_new(
    conversation: Conversation, api: Api, session: str
) -> None:
    conversation.asks["tools"] = [LOOK]
    conversation.send_message("One.")
    conversation.messages.clear()
    call = call_of(conversation.send_message(instruct(calls("look"), words(2)), system="Be brief."))
    conversation.messages.clear()
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "blue"}
    conversation.send_message([result, {"type": "text", "text": "And now?"}])
    assert [role for role, _ in contents(api, session)][-3:] == ["tool", "user", "assistant"]
    assert len(conversation.sent[-1]["messages"]) == 6, "the instructions are not stored"


@cases(
    ("stored", "effort", "think"),
    [
        (None, "low", False),
        (False, "low", False),
        (True, None, True),
        (True, "low", "low"),
        ("high", "low", "low"),
        (True, "none", False),
    ],
)
def test_effort_sets_the_level_if_the_session_thinks(
    conversation: Conversation, api: Api, stored: Any, effort: Any, think: Any
) -> None:
    session = api.create_session("mochi", think=stored)["session_id"]
    headers = {"X-Mochi-Session": session}
    conversation.send_message("Hello!", output_config={"effort": effort}, extra_headers=headers)
    assert conversation.sent[-1]["think"] == think
    conversation.send_message(
        "Well?",
        output_config={"effort": effort},
        thinking={"type": "disabled"},
        extra_headers=headers,
    )
    assert conversation.sent[-1]["think"] is False


def test_system_message_counts_for_one_request(
    conversation: Conversation, api: Api, session: str
) -> None:
    system: Any = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    conversation.create(messages=[{"role": "user", "content": "One."}, system])
    assert [m["role"] for m in conversation.sent[-1]["messages"]] == ["system", "user"]
    conversation.create(messages=[{"role": "user", "content": "Two."}])
    assert [m["role"] for m in conversation.sent[-1]["messages"]] == ["user", "assistant", "user"]
    assert [role for role, _ in contents(api, session)] == ["user", "assistant"] * 2


def test_system_message_follows_the_prompt_of_the_session(
    conversation: Conversation, api: Api
) -> None:
    session = api.create_session("mochi", system_prompt="Be kind.")["session_id"]
    brief = {"role": "system", "content": "Be brief."}
    messages = [{"role": "user", "content": "Hello!"}, brief]
    conversation.create(messages=messages, extra_headers={"X-Mochi-Session": session})
    sent = conversation.sent[-1]["messages"]
    assert [message["content"] for message in sent] == ["Be kind.\n\nBe brief.", "Hello!"]
    assert contents(api, session)[:2] == [("system", "Be kind."), ("user", "Hello!")]


def test_tool_result_before_a_system_message_continues(
    conversation: Conversation, api: Api, session: str
) -> None:
    conversation.asks["tools"] = [LOOK]
    call = call_of(conversation.send_message(instruct(calls("look"), words(2))))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "blue"}
    later = [{"role": "user", "content": [result]}, {"role": "system", "content": "s"}]
    conversation.create(messages=[*conversation.messages, *later])
    assert [role for role, _ in contents(api, session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_image_of_a_tool_result_is_stored(
    conversation: Conversation, api: Api, session: str
) -> None:
    conversation.asks["tools"] = [LOOK]
    call = call_of(conversation.send_message(instruct(calls("look"), words(2))))
    conversation.send_message(
        [{"type": "tool_result", "tool_use_id": call.id, "content": [image()]}]
    )
    conversation.send_message("And now?")
    (result,) = [message for message in api.messages(session) if message["role"] == "tool"]
    assert (result["content"], len(result["images"])) == ("", 1)
    (sent,) = [
        message for message in conversation.sent[-1]["messages"] if message["role"] == "tool"
    ]
    assert (sent["content"], sent.get("images")) == (HIDDEN_IMAGES, None)


@STREAMED
def test_repeated_key_returns_the_stored_answer(
    conversation: Conversation, api: Api, session: str
) -> None:
    headers = {"X-Mochi-Session": session, "Idempotency-Key": "k1"}
    conversation.messages = [{"role": "user", "content": "Hello!"}]
    first, second = (conversation.create(extra_headers=headers) for _ in range(2))
    assert first.content == second.content
    assert len(api.messages(session)) == 2
    error = conversation.rejected(
        extra_headers=headers, messages=[{"role": "user", "content": "Other."}]
    )
    assert (error.status_code, error.type) == (400, "invalid_request_error")


@cases(
    ("messages", "message"),
    [
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "blue"}],
                }
            ],
            "messages.0: the session has no tool call with the ID 't1'",
        ),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            "messages.1: the last message must be a user message or the result of a pending tool "
            "call",
        ),
        ([{"role": "user", "content": " "}], "messages.0: the user's message must not be blank"),
    ],
)
def test_messages_without_news_are_rejected(
    conversation: Conversation, session: str, messages: Any, message: str
) -> None:
    error: Any = conversation.rejected(
        messages=messages, extra_headers={"X-Mochi-Session": session}
    )
    assert (error.status_code, error.body["error"]["message"]) == (400, message)


@STREAMED
@cases("unknown", ["", "0123456789"])
def test_unknown_session_is_404(conversation: Conversation, unknown: str) -> None:
    error = conversation.rejected(extra_headers={"X-Mochi-Session": unknown})
    assert (error.status_code, error.type) == (404, "not_found_error")
