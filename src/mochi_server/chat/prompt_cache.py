"""Prompt cache: encoded messages of completed turns. Each block of a session history caches its own messages."""

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from mochi_server.chat.prompt_messages import to_ollama_messages
from mochi_server.inference.estimate import PromptSize
from mochi_server.ollama.types import Encoded
from mochi_server.sessions.history import History
from mochi_server.sessions.images import images_in
from mochi_server.sessions.types import Message


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
