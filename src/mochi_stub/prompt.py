"""Prompts: requests to a model in a form that is independent of the provider."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from mochi_stub.json_encoding import dumps

Operation = Literal["chat", "generate", "embed"]

IMAGE_TOKENS = 768


@dataclass(frozen=True)
class ToolCall:
    """Tool call of a model. If `id` is None, the stub generates an ID for APIs that require one."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Message:
    """Message of a conversation. `images` is the number of attached images."""

    role: str
    content: str = ""
    thinking: str = ""
    images: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class Prompt:
    """Request to a model. For an embedding request, the only message is the text to embed.

    Attributes:
        required_tools: Tools of which the reply must call one. Empty if the request does not
            require a tool call.
        requested_thinking: Thinking that the request sets: false, true or a level. None if the
            request does not set it.
        includes_reasoning: Whether the reply includes reasoning. This depends on the request and
            the model.
        plain_text: Whether a text that `format` describes is sent without the quotes of JSON.
        options: Generation options: those of the request, and defaults of the model.
        allows_choices: Whether the API allows several choices in one reply.
        request: Body of the HTTP request, not parsed.
        index: Position among the prompts of the HTTP request. Only text completions and embeddings
            can have several prompts.
    """

    model: str
    operation: Operation = "chat"
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    required_tools: tuple[Mapping[str, Any], ...] = ()
    requested_thinking: bool | str | None = None
    includes_reasoning: bool = False
    format: Any = None
    plain_text: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    raw: bool = False
    stream: bool = True
    allows_choices: bool = False
    request: bytes = b""
    index: int = 0

    @cached_property
    def last_user_index(self) -> int:
        """Index of the latest user message in `messages`, or -1 if there are no user messages."""
        for index in reversed(range(len(self.messages))):
            if self.messages[index].role == "user":
                return index
        return -1

    @property
    def after_tools(self) -> bool:
        """Whether the last message is a tool result."""
        return bool(self.messages) and self.messages[-1].role == "tool"

    @cached_property
    def unanswered_results(self) -> tuple[Message, ...]:
        """Latest uninterrupted group of tool results, if the model has not replied to them.

        User and system messages can follow the group.
        """
        results = []
        for message in reversed(self.messages):
            if message.role == "tool":
                results.append(message)
            elif results or message.role not in ("user", "system"):
                break
        return tuple(reversed(results))

    @property
    def user_text(self) -> str:
        """Text of the latest user message, or "" if there are no user messages."""
        if self.last_user_index < 0:
            return ""
        return self.messages[self.last_user_index].content


def render(prompt: Prompt) -> str:
    """Return the prompt as text: the tools as JSON, then a line `role: content` for each
    message. A raw prompt is only its text.
    """
    if prompt.raw:
        return prompt.user_text
    lines = []
    tools = _encoded_tools(prompt)
    if tools:
        lines.append(f"tools: {tools}")
    for message in prompt.messages:
        line = render_message(message.role, message.content, message.tool_calls)
        lines.append(line)
    return "\n".join(lines)


def _encoded_tools(prompt: Prompt) -> str:
    if not prompt.tools:
        return ""
    return dumps(list(prompt.tools))


def render_message(role: str, content: str, tool_calls: Iterable[ToolCall]) -> str:
    """Return a message as text: `role: content`, with its tool calls on the same line."""
    parts = []
    if content:
        parts.append(content)
    for call in tool_calls:
        arguments = dumps(dict(call.arguments))
        parts.append(f"{call.name} {arguments}")
    text = " ".join(parts)
    return f"{role}: {text}"


def counted_text(prompt: Prompt) -> str:
    """Return the text whose characters count as prompt tokens: tools, contents and tool calls,
    without roles and reasoning.
    """
    if prompt.raw:
        return prompt.user_text
    texts = [_encoded_tools(prompt)]
    for message in prompt.messages:
        texts.append(counted_text_of_message(message))
    return "".join(texts)


def counted_text_of_message(message: Message) -> str:
    """Return the text of a message that counts as prompt tokens: its content, and its tool
    calls.
    """
    text = message.content
    for call in message.tool_calls:
        text += call.name
        text += dumps(dict(call.arguments))
    return text


def prompt_tokens(prompt: Prompt, chars_per_token: float) -> int:
    """Return the number of tokens in the prompt. Each image counts as 768 tokens."""
    text = counted_text(prompt)
    tokens = to_tokens(len(text), chars_per_token)
    for message in prompt.messages:
        tokens += IMAGE_TOKENS * message.images
    return tokens


def to_tokens(characters: int, chars_per_token: float) -> int:
    """Convert a number of characters to a number of tokens, rounded up."""
    return -int(-characters // chars_per_token)
