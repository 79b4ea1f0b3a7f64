"""Prompt of a request on any wire."""

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
    """A call of one function; `id` is made up where it is None and the wire wants one."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Message:
    """One message of the conversation; `images` counts them, their bytes are of no use to a stub."""

    role: str
    content: str = ""
    thinking: str = ""
    images: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class Prompt:
    """A request for one reply.

    `model` is the name as the client typed it. `think` is the wish as sent (None: not sent), `thinks` what comes of
    it on this model. `options` are the sampling options in effect. An embedding request carries its one text as the
    only message. `choices`: the wire has room for several messages in one reply. `request` is the body as it came.
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
        """The index of the latest user message, -1 where there is none."""
        return max((index for index, message in enumerate(self.messages) if message.role == "user"), default=-1)

    @property
    def after_tools(self) -> bool:
        """Whether the last message is the result of a tool."""
        return bool(self.messages) and self.messages[-1].role == "tool"

    @property
    def user_text(self) -> str:
        """The text of the latest user message, "" where there is none."""
        return self.messages[self.last_user].content if self.last_user >= 0 else ""


def render(prompt: Prompt) -> str:
    """Return the prompt as one text: tools as JSON, then `role: content` lines, without earlier thinking."""
    if prompt.raw:
        return prompt.user_text
    lines = [f"tools: {dumps(list(prompt.tools))}"] if prompt.tools else []
    return "\n".join([*lines, *map(render_message, prompt.messages)])


def render_message(message: Message) -> str:
    """Return one message as a `role: content` line."""
    calls = [f"{call.name} {dumps(dict(call.arguments))}" for call in message.tool_calls]
    return f"{message.role}: " + " ".join(filter(None, [message.content, *calls]))


def counted_text(prompt: Prompt) -> str:
    """Return all that counts as prompt: tools as JSON, contents and calls, without roles and earlier thinking."""
    if prompt.raw:
        return prompt.user_text
    tools = dumps(list(prompt.tools)) if prompt.tools else ""
    return tools + "".join(map(counted_text_of, prompt.messages))


def counted_text_of(message: Message) -> str:
    """Return what counts of one message: its content, and its calls as name and JSON."""
    return message.content + "".join(f"{call.name}{dumps(dict(call.arguments))}" for call in message.tool_calls)


def prompt_tokens(prompt: Prompt, chars_per_token: float) -> int:
    """Return the number of tokens of the prompt; an image counts as 768."""
    images = sum(message.images for message in prompt.messages)
    return count_tokens(len(counted_text(prompt)), chars_per_token) + IMAGE_TOKENS * images


def count_tokens(characters: int, chars_per_token: float) -> int:
    """Return the number of tokens of that many characters, rounded up."""
    return characters if chars_per_token == 1 else -int(-characters // chars_per_token)
