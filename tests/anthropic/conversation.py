"""Conversation with the official client, streamed or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import StubServer
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:  # only the worker that runs these tests imports the client
    import anthropic
    from anthropic.types import Message

STREAMED = pytest.mark.parametrize(
    "conversation", [False, True], ids=["whole", "streamed"], indirect=True
)
"""Runs a test without and with streams: for tests of answers, not of what is sent to the model."""

LOOK: Any = {"name": "look", "input_schema": {"type": "object"}}


@dataclass
class Conversation:
    """Conversation that sends requests to the Messages API; `asks` has the fields of each
    request.
    """

    client: anthropic.Anthropic
    stub: StubServer
    stream: bool = False
    asks: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    """The messages so far."""

    def __post_init__(self) -> None:
        self._before = len(chats(self.stub))

    @property
    def sent(self) -> list[Any]:
        """Return the chat requests that this conversation caused at Ollama."""
        return [exchange.body for exchange in chats(self.stub)][self._before :]

    def send_message(self, content: Any, **asks: Any) -> Message:
        """Send one more user message and return the answer."""
        self.messages.append({"role": "user", "content": content})
        answer = self.create(**asks)
        self.messages.append({"role": "assistant", "content": answer.content})
        return answer

    def create(self, **asks: Any) -> Message:
        request = {
            "model": "mochi",
            "max_tokens": 1000,
            "messages": self.messages,
            **self.asks,
            **asks,
        }
        if not self.stream:
            message: Message = self.client.messages.create(**request)
            return message
        with self.client.messages.stream(**request) as events:
            return events.get_final_message()

    def rejected(self, **asks: Any) -> anthropic.APIStatusError:
        """Return the error of a request, by default with the message "Hello!"."""
        import anthropic

        with pytest.raises(anthropic.APIStatusError) as caught:
            self.create(**{"messages": [{"role": "user", "content": "Hello!"}], **asks})
        body = caught.value.response.json()
        assert set(body) == {"type", "error", "request_id"}, body
        assert set(body["error"]) == {"type", "message"}, body
        assert (
            body["request_id"]
            == caught.value.request_id
            == caught.value.response.headers["x-request-id"]
        )
        return caught.value


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def call_of(message: Message) -> Any:
    """Return the only tool call of an answer."""
    assert message.stop_reason == "tool_use"
    (call,) = [block for block in message.content if block.type == "tool_use"]
    return call


def client_of(server: RunningServer, **credential: Any) -> anthropic.Anthropic:
    """Return the official client, without retries.

    ``credential`` is an API key or another credential.
    """
    import anthropic

    return anthropic.Anthropic(
        base_url=server.url, max_retries=0, **(credential or {"api_key": "any"})
    )
