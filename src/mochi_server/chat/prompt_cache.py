"""Prompt cache: encoded messages of completed turns. Each block of a session history caches its own messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from mochi_server.chat.prompt_messages import to_ollama_messages
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import History
from mochi_server.sessions.images import images_in
from mochi_server.sessions.types import Message

_TEMPLATE_CHARS = 12
"""Estimated number of characters that the model's chat template adds to each message."""


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Size of a prompt in characters and images. The number of tokens depends on the model."""

    characters: int = 0
    images: int = 0

    def __add__(self, other: "PromptSize") -> "PromptSize":
        return PromptSize(self.characters + other.characters, self.images + other.images)

    @classmethod
    def of(cls, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()) -> "PromptSize":
        """Return the size of messages and tool definitions. Tool calls and definitions are measured as JSON text."""
        characters, images = len(orjson.dumps(tools)) if tools else 0, 0
        for message in messages:
            images += len(message.get("images") or ())
            characters += len(message.get("content") or "") + len(message.get("thinking") or "") + _TEMPLATE_CHARS
            if calls := message.get("tool_calls"):
                characters += len(orjson.dumps(calls))
        return cls(characters, images)


class EncodedMessages(NamedTuple):
    """Messages encoded as JSON for Ollama, and their size. Images are represented by their SHA-256 names."""

    encoded: Encoded
    size: PromptSize


def encode_messages(messages: Sequence[Message]) -> EncodedMessages:
    """Encode the messages of completed turns as JSON for Ollama. The thinking of the model is omitted."""
    converted = to_ollama_messages(messages, len(messages))
    return EncodedMessages(Encoded(b",".join(map(orjson.dumps, converted))), PromptSize.of(converted))


def shows_images(history: History) -> bool:
    return any(block.cached(encode_messages).size.images for block in history.blocks) or bool(images_in(history.tail))
