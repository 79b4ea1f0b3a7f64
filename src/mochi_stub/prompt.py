"""Prompt of a request to a model, independent of the provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from mochi_stub.wire.json_encoding import dumps

Operation = Literal["chat", "generate", "embed"]

IMAGE_TOKENS = 768


@dataclass(frozen=True)
class ToolCall:
    """Call of a tool. If `id` is None, APIs with call IDs get a generated one."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Message:
    """Message of a conversation. `images` is the number of its images."""

    role: str
    content: str = ""
    thinking: str = ""
    images: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class Prompt:
    """Request for one reply. An embedding request has its text as the only message.

    Attributes:
        think: The `think` field of the request, None if it was not sent.
        thinks: Whether the reply has reasoning, which also depends on the model.
        options: Generation options of the request and the model.
        choices: Whether the API allows several choices in one reply.
        request: Request body as sent.
    """

    model: str
    operation: Operation = "chat"
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    think: bool | str | None = None
    thinks: bool = False
    format: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    raw: bool = False
    stream: bool = True
    choices: bool = False
    request: bytes = b""

    @cached_property
    def last_user(self) -> int:
        """Index of the latest user message, -1 if there is none."""
        return max((index for index, message in enumerate(self.messages) if message.role == "user"), default=-1)

    @property
    def after_tools(self) -> bool:
        """Whether the last message is a tool result."""
        return bool(self.messages) and self.messages[-1].role == "tool"

    @property
    def user_text(self) -> str:
        """Text of the latest user message, "" if there is none."""
        return self.messages[self.last_user].content if self.last_user >= 0 else ""


def render(prompt: Prompt) -> str:
    """Return the prompt as text: the tools as JSON, then a line `role: content` for each message."""
    if prompt.raw:
        return prompt.user_text
    lines = [f"tools: {dumps(list(prompt.tools))}"] if prompt.tools else []
    return "\n".join([*lines, *map(render_message, prompt.messages)])


def render_message(message: Message) -> str:
    """Return one message as a `role: content` line."""
    calls = [f"{call.name} {dumps(dict(call.arguments))}" for call in message.tool_calls]
    return f"{message.role}: " + " ".join(filter(None, [message.content, *calls]))


def counted_text(prompt: Prompt) -> str:
    """Return the text whose tokens count as prompt: tools, contents and tool calls, without roles and reasoning."""
    if prompt.raw:
        return prompt.user_text
    tools = dumps(list(prompt.tools)) if prompt.tools else ""
    return tools + "".join(map(counted_text_of, prompt.messages))


def counted_text_of(message: Message) -> str:
    """Return the text of a message whose tokens count: its content, and the names and arguments of its calls."""
    return message.content + "".join(f"{call.name}{dumps(dict(call.arguments))}" for call in message.tool_calls)


def prompt_tokens(prompt: Prompt, chars_per_token: float) -> int:
    """Return the number of tokens of the prompt. An image counts as 768 tokens."""
    images = sum(message.images for message in prompt.messages)
    return count_tokens(len(counted_text(prompt)), chars_per_token) + IMAGE_TOKENS * images


def count_tokens(characters: int, chars_per_token: float) -> int:
    """Return the number of tokens for a number of characters, rounded up."""
    return characters if chars_per_token == 1 else -int(-characters // chars_per_token)
