"""Messages API of Anthropic, with the official client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.anthropic.conversation import LOOK, Conversation, call_of, client_of, text_of
from tests.openai.conversation import stored
from tests.support.images import PNG
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer


def image(data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_answer_is_a_message(conversation: Conversation) -> None:
    answer = conversation.send_message("Hello!", system="Be kind.")
    assert answer.id.startswith("msg_")
    assert (answer.model, answer.role, answer.stop_reason, answer.stop_sequence) == ("mochi", "assistant", "end_turn", None)
    assert text_of(answer).endswith("Hello!")
    (sent,) = conversation.sent
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0
    assert answer.usage.cache_read_input_tokens == 0
