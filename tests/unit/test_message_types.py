"""Keys of stored messages by role, which mypy checks: it reports an ignored error that is gone."""

import pytest
from typing_extensions import assert_type

from mochi_server.sessions.session import user_message
from mochi_server.sessions.types import AssistantMessage, Message, SystemMessage, ToolMessage


def test_keys_of_an_answer_are_no_keys_of_a_user_message() -> None:
    message = user_message("Hello!")
    with pytest.raises(KeyError):
        message["thinking"]  # type: ignore[typeddict-item]
    assert not message.get("thinking")  # type: ignore[typeddict-item]
    message["tool_calls"] = []  # type: ignore[typeddict-unknown-key]
    message.setdefault("model", "mochi")  # type: ignore[typeddict-item]


@pytest.mark.parametrize("message", [user_message("Hello!")])
def test_keys_of_one_role_need_a_check_of_the_role(message: Message) -> None:
    assert not message.get("eval_count")  # type: ignore[typeddict-item]
    if message["role"] == "assistant":
        assert_type(message, AssistantMessage)
        assert message.get("eval_count") is None
    elif message["role"] == "tool":
        assert_type(message, ToolMessage)
    elif message["role"] == "system":
        assert_type(message, SystemMessage)
    assert_type(message["content"], str)
    assert_type(message["message_id"], str)


def test_messages_have_an_id_and_a_time() -> None:
    message: ToolMessage = {"role": "tool", "content": "5"}  # type: ignore[typeddict-item]
    assert "message_id" not in message
