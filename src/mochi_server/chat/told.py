"""What a model is told of the older part of a conversation, encoded once and kept with it. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from mochi_server.chat.history import wire_messages
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import History
from mochi_server.sessions.images import images_in
from mochi_server.sessions.types import Message

_PER_MESSAGE_CHARS = 12
"""What a template adds to each message, roughly."""


class Size(NamedTuple):
    """How much a prompt is, in what can be counted without its model."""

    characters: int
    images: int

    def and_(self, other: "Size") -> "Size":
        """Both together."""
        return Size(self.characters + other.characters, self.images + other.images)


class Told(NamedTuple):
    """Messages as Ollama takes them. Images are named, and have to come in yet."""

    encoded: Encoded
    size: Size


def told(messages: Sequence[Message]) -> Told:
    """What a model is told of whole turns, all of which have been answered."""
    sent = wire_messages(messages, len(messages))
    return Told(Encoded(b",".join(map(orjson.dumps, sent))), size(sent, ()))


def shows_images(history: History) -> bool:
    """Whether any message names an image."""
    return any(block.keep(told).size.images for block in history.blocks) or bool(images_in(history.tail))


def size(messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> Size:
    """Characters of a prompt, tools and the calls in it included, and its images."""
    characters, images = len(orjson.dumps(tools)) if tools else 0, 0
    for message in messages:
        images += len(message.get("images") or ())
        characters += len(message.get("content") or "") + len(message.get("thinking") or "") + _PER_MESSAGE_CHARS
        if calls := message.get("tool_calls"):
            characters += len(orjson.dumps(calls))
    return Size(characters, images)
