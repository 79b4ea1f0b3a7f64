"""Conversation with the official client, streamed or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import StubServer
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:  # only the worker that runs these tests imports the client
    import openai
    from openai.types.chat import ChatCompletion, ChatCompletionMessage

LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@dataclass
class Conversation:
    """Conversation that sends completion requests; `asks` has the fields of each request."""

    client: openai.OpenAI
    stub: StubServer
    stream: bool = False
    asks: dict[str, Any] = field(default_factory=dict)
    messages: list[Any] = field(default_factory=list)
    """The messages so far."""

    def __post_init__(self) -> None:
        self._before = len(self._chats())

    @property
    def sent(self) -> list[Any]:
        """Return the chat requests that this conversation caused at Ollama."""
        return self._chats()[self._before :]

    def send_message(self, text: Any, **asks: Any) -> ChatCompletion:
        """Send one more user message and return the answer."""
        return self.send_messages({"role": "user", "content": text}, **asks)

    def send_messages(self, *message_of: Any, **asks: Any) -> ChatCompletion:
        """Send several more messages and return the answer."""
        self.messages.extend(message_of)
        completion = self._complete(
            {"model": "mochi", "messages": self.messages, **self.asks, **asks}
        )
        self.messages.append(completion.choices[0].message.model_dump(exclude_none=True))
        return completion

    def refused(self, **asks: Any) -> openai.APIStatusError:
        """Return the error of a request, by default with the message "Hello!"."""
        import openai

        request = {
            "model": "mochi",
            "messages": [{"role": "user", "content": "Hello!"}],
            **self.asks,
            **asks,
        }
        with pytest.raises(openai.APIStatusError) as caught:
            self._complete(request)
        body = caught.value.response.json()
        assert set(body) == {"error"}, body
        assert set(body["error"]) == {"message", "type", "param", "code"}, body
        return caught.value

    def _chats(self) -> list[Any]:
        return [exchange.body for exchange in chats(self.stub)]

    def _complete(self, request: dict[str, Any]) -> ChatCompletion:
        if not self.stream:
            completion: ChatCompletion = self.client.chat.completions.create(**request)
            return completion
        request["stream_options"] = {"include_usage": True}
        with self.client.chat.completions.stream(**request) as events:
            return events.get_final_completion()


def message_of(completion: ChatCompletion) -> ChatCompletionMessage:
    return completion.choices[0].message


def call_of(completion: ChatCompletion) -> Any:
    """Return the only tool call of an answer."""
    assert completion.choices[0].finish_reason == "tool_calls"
    calls = message_of(completion).tool_calls or []
    assert len(calls) == 1
    return calls[0]


def client_of(server: RunningServer, key: str = "any") -> openai.OpenAI:
    """Return the official client, without retries."""
    import openai

    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def stored(data_dir: Path) -> list[str]:
    """Return the names of the session files."""
    folders = [data_dir / "chat_sessions", *data_dir.glob("agents/agent_chats")]
    return sorted(str(path) for folder in folders for path in folder.glob("*.json*"))
