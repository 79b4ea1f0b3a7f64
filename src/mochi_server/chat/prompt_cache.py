"""Encoded messages of the older part of a conversation, cached with the history. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from mochi_server.chat.prompt_messages import to_ollama_messages
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import History
from mochi_server.sessions.images import images_in
from mochi_server.sessions.types import Message

_PER_MESSAGE_CHARS = 12
"""What a template adds to each message, roughly."""


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Size of a prompt, as far as it can be counted without its model."""

    characters: int = 0
    images: int = 0

    def __add__(self, other: "PromptSize") -> "PromptSize":
        return PromptSize(self.characters + other.characters, self.images + other.images)

    @classmethod
    def of(cls, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()) -> "PromptSize":
        """Count the characters of messages and tools, calls included, and the images."""
        characters, images = len(orjson.dumps(tools)) if tools else 0, 0
        for message in messages:
            images += len(message.get("images") or ())
            characters += len(message.get("content") or "") + len(message.get("thinking") or "") + _PER_MESSAGE_CHARS
            if calls := message.get("tool_calls"):
                characters += len(orjson.dumps(calls))
        return cls(characters, images)


class EncodedMessages(NamedTuple):
    """Messages as Ollama takes them. Images are named; their data is added when the request is sent."""

    encoded: Encoded
    size: PromptSize


def encode_messages(messages: Sequence[Message]) -> EncodedMessages:
    """Encode whole turns, all of which have been answered, for the model."""
    sent = to_ollama_messages(messages, len(messages))
    return EncodedMessages(Encoded(b",".join(map(orjson.dumps, sent))), PromptSize.of(sent))


def shows_images(history: History) -> bool:
    """Return whether any message names an image."""
    return any(block.cached(encode_messages).size.images for block in history.blocks) or bool(images_in(history.tail))
