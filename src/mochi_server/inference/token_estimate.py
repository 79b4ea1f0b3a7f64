"""Estimates of the tokens of prompts, calibrated with Ollama's token counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.attachments import size_in_prompt

_TOKENS_PER_CHAR = 1 / 3.5  # of prose, slightly too high, until the model's ratio is known
_MIN_CALIBRATION_CHARS = 400  # in shorter prompts, the chat template distorts the ratio
_MIN_TOKENS_PER_CHAR = 1 / 8  # old versions of Ollama do not count cached tokens
_MAX_TOKENS_PER_CHAR = 2
_MAX_ESTIMATE_ERROR = 0.05  # share of its estimate by which a prompt may exceed the estimate
_TEMPLATE_TOKENS = 16  # reserve for a chat template that is longer than estimated
_TEMPLATE_CHARS = 12  # added to each message by the model's chat template
IMAGE_TOKENS = 768  # as in Ollama; models use from 256 to several thousand tokens for an image


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Size of a prompt in characters and images. The number of tokens depends on the model."""

    characters: int = 0
    images: int = 0

    def __add__(self, other: "PromptSize") -> "PromptSize":
        return PromptSize(self.characters + other.characters, self.images + other.images)

    @classmethod
    def of(
        cls, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()
    ) -> "PromptSize":
        """Return the size of messages and tool definitions.

        Tool calls and definitions are measured as JSON text.
        """
        characters = len(orjson.dumps(tools)) if tools else 0
        images = 0
        for message in messages:
            images += len(message.get("images") or ())
            characters += _TEMPLATE_CHARS
            characters += len(message.get("content") or "")
            characters += len(message.get("thinking") or "")
            characters += size_in_prompt(message.get("attachments") or ())
            calls = message.get("tool_calls")
            if calls:
                characters += len(orjson.dumps(calls))
        return cls(characters, images)


def with_margin(tokens: int) -> int:
    """Return the largest number of tokens of a prompt whose estimate is ``tokens``."""
    return int(tokens * (1 + _MAX_ESTIMATE_ERROR)) + _TEMPLATE_TOKENS


@dataclass(eq=False, slots=True)
class TokenEstimate:
    """Estimate for the prompts of one model, calibrated with Ollama's token counts."""

    tokens_per_char: float | None = None

    def tokens(self, size: PromptSize) -> int:
        """Return the estimated number of tokens of a prompt, at least 1."""
        tokens_per_char = self.tokens_per_char or _TOKENS_PER_CHAR
        text_tokens = int(size.characters * tokens_per_char)
        image_tokens = IMAGE_TOKENS * size.images
        return text_tokens + image_tokens + 1

    def most_tokens(self, size: PromptSize) -> int:
        """Return a cautious upper limit: a token for each character, or the estimate if that is
        larger.
        """
        image_tokens = IMAGE_TOKENS * size.images
        one_for_each_character = size.characters + image_tokens
        return max(self.tokens(size), one_for_each_character)

    def room(
        self, size: PromptSize, window: int, *, counted: int = 0, answer_tokens: int = 0
    ) -> int:
        """Return a cautious estimate of the tokens that a prompt leaves free. It can be negative.

        Until the model's ratio is known, a prompt may have ``most_tokens``, but is assumed to leave
        about a quarter of the window and ``answer_tokens`` free. This does not apply if its
        estimate or ``counted``, Ollama's latest count, is larger. Once the ratio is known, only the
        estimate counts.
        """
        tokens = self.tokens(size)
        if self.tokens_per_char is None:
            most = self.most_tokens(size)
            beside_answer = window - _TEMPLATE_TOKENS - answer_tokens
            limit = min(window * 3 // 4, int(beside_answer / (1 + _MAX_ESTIMATE_ERROR)))
            tokens = max(tokens, counted, min(most, limit))
        return window - with_margin(tokens)

    def observe(self, size: PromptSize, tokens: int) -> None:
        """Calibrate with Ollama's token count.

        Ignore short prompts, prompts with images, and implausibly low counts.
        """
        if size.images or size.characters < _MIN_CALIBRATION_CHARS:
            return
        measured = tokens / size.characters
        if measured >= _MIN_TOKENS_PER_CHAR:
            self.tokens_per_char = min(measured, _MAX_TOKENS_PER_CHAR)
