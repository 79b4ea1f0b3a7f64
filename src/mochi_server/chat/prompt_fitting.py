"""Fits a prompt into a context window: which tool results are trimmed, and which turns a checkpoint replaces. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mochi_server.chat.prompt_cache import EncodedMessages, PromptSize, encode_messages
from mochi_server.chat.prompt_messages import to_ollama_messages
from mochi_server.errors import ContextOverflow
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import Block, History
from mochi_server.sessions.types import Message

BEGIN_RATIO = 0.85
"""Compaction begins when a prompt takes up this much of the window ..."""

TARGET_RATIO = 0.5
"""... and takes it down to this much, so that it is not needed again for many turns."""

CHECKPOINT_TOKENS = 1500
TRIMMED_CHARS = 400
"""Characters that are left of an old tool result: half of them head, half tail."""

ROOM_FOR_AN_ANSWER = 64
"""Tokens; a prompt that leaves less than this in the window does not fit."""

HEADING = "Summary of the earlier conversation, which is no longer shown in full:\n"


@dataclass(frozen=True)
class Checkpoint:
    """A summary that replaces all messages up to one of them, except the system message, in the prompt."""

    text: str
    covers_through_message_id: str
    model: str

    def to_dict(self) -> dict[str, str]:
        """Return the checkpoint as a session stores it."""
        return {"text": self.text, "covers_through_message_id": self.covers_through_message_id, "model": self.model}

    @classmethod
    def from_dict(cls, stored: object) -> "Checkpoint | None":
        """Read a stored checkpoint; None if it is not valid."""
        if not isinstance(stored, dict):
            return None
        values = [stored.get(name) for name in ("text", "covers_through_message_id", "model")]
        return cls(*values) if all(isinstance(value, str) and value for value in values) else None  # type: ignore[arg-type]  # checked


@dataclass(frozen=True)
class Prompt:
    """The messages for the model: a history, and what of it is left out."""

    history: History
    turn_begins: int
    checkpoint: Checkpoint | None = None
    trim: bool = False
    """Whether long tool results of earlier turns are trimmed."""
    trim_turn: bool = False
    """Whether long tool results of this turn are trimmed, too, except in the latest round."""
    shows_images: bool = True
    """Whether the model can see images."""

    @cached_property
    def covered(self) -> int:
        """Number of messages that the checkpoint replaces; 0 when it no longer belongs to this history."""
        return covered_by(self.checkpoint, self.history) if self.checkpoint else 0

    @property
    def trimmed(self) -> int:
        """Number of tool results that are trimmed."""
        return sum(self._is_trimmed(i) for i in range(self.covered, len(self.history))) if self.trim else 0

    @property
    def dropped(self) -> int:
        """Number of messages that are not sent, without the system message."""
        return max(self.covered - self.system, 0)

    @property
    def messages(self) -> list[ChatMessage | Encoded]:
        """The system message, the checkpoint, and the history after it."""
        return self._sent[0]

    def size_with(self, tools: Sequence[dict[str, Any]]) -> PromptSize:
        """Return the size of the messages and of these tools."""
        return self._sent[1] + PromptSize.of((), tools)

    @cached_property
    def _sent(self) -> tuple[list[ChatMessage | Encoded], PromptSize]:
        sent: list[ChatMessage | Encoded] = []
        total = PromptSize()
        for part in self._parts():
            sent.extend([part.encoded] if isinstance(part, EncodedMessages) else part)
            total += part.size if isinstance(part, EncodedMessages) else PromptSize.of(part)
        return sent, total

    def _parts(self) -> Iterator[EncodedMessages | list[ChatMessage]]:
        """Yield the messages in order; unchanged blocks of the history are taken from the cache."""
        position = 0
        if self.covered and self.checkpoint:
            yield self._to_ollama(0, self.system)
            yield [
                {"role": "user", "content": HEADING + self.checkpoint.text},
                {"role": "assistant", "content": "I remember."},
            ]
            position = max(self.covered, self.system)
        for block, end in zip(self.history.blocks, self.history.ends, strict=True):
            begin = end - len(block.messages)
            if position <= begin and end <= self.turn_begins and self._is_unchanged(block):
                if position < begin:
                    yield self._to_ollama(position, begin)
                yield block.cached(encode_messages)
                position = end
        yield self._to_ollama(position, len(self.history))

    def _is_unchanged(self, block: Block) -> bool:
        return not block.cached(encode_messages).size.images and not (self.trim and block.cached(_has_long_results))

    def _to_ollama(self, start: int, end: int) -> list[ChatMessage]:
        """Return messages of whole turns as Ollama takes them."""
        messages = [self._shortened(i) for i in range(start, end)] if self.trim else self.history[start:end]
        sent = to_ollama_messages(messages, self.turn_begins - start)
        if not self.shows_images:
            for message in sent:
                message.pop("images", None)
        return sent

    @property
    def system(self) -> int:
        """Number of messages before the conversation: 1 with a system message, else 0."""
        return 1 if self.history and self.history[0]["role"] == "system" else 0

    def _is_trimmed(self, index: int) -> bool:
        if not self.trim or index >= (self._latest_round if self.trim_turn else self.turn_begins):
            return False
        return _is_long_result(self.history[index])

    @cached_property
    def _latest_round(self) -> int:
        """Position of the latest answer: the results after it are new to the model."""
        return max((i for i, message in enumerate(self.history) if message["role"] == "assistant"), default=0)

    def _shortened(self, index: int) -> Message:
        message = self.history[index]
        if not self._is_trimmed(index):
            return message
        half, text = TRIMMED_CHARS // 2, message["content"]
        note = f"\n[... {len(text) - TRIMMED_CHARS} characters of an old result left out ...]\n"
        return {**message, "content": text[:half] + note + text[-half:]}


def checkpoint_tokens(window: int) -> int:
    """Return the length limit of a checkpoint in a window."""
    return min(CHECKPOINT_TOKENS, window // 4)


def _has_long_results(messages: Sequence[Message]) -> bool:
    return any(_is_long_result(message) for message in messages)


def _is_long_result(message: Message) -> bool:
    return message["role"] == "tool" and len(message["content"]) > TRIMMED_CHARS


def covered_by(checkpoint: Checkpoint, history: Sequence[Message]) -> int:
    """Return how many messages of a history a checkpoint replaces; 0 when the last one it covers is gone."""
    for index, message in enumerate(history):
        if message.get("message_id") == checkpoint.covers_through_message_id:
            return index + 1
    return 0


@dataclass(frozen=True, slots=True)
class Budget:
    """The window that a prompt has to fit into. ``estimate`` returns the tokens of a prompt."""

    window: int
    estimate: Callable[[Prompt], int]

    def is_exceeded_by(self, prompt: Prompt) -> bool:
        """Return whether a prompt has to be shortened."""
        return self.estimate(prompt) > self.window * BEGIN_RATIO

    def boundary(self, prompt: Prompt) -> int | None:
        """Return the position up to which a checkpoint has to cover the history, so that the rest fits.

        It is always the end of a turn, so that no call is separated from its result. None when there is nothing to
        cover. If nothing makes the rest fit, it is the end of the last complete turn.
        """
        ends = [
            i
            for i in range(prompt.covered + 1, prompt.turn_begins + 1)
            if prompt.history[i]["role"] == "user" and i > prompt.system
        ]

        def rest_fits(end: int) -> bool:
            message_id = prompt.history[end - 1]["message_id"]
            return self._is_small(replace(prompt, checkpoint=Checkpoint("-", message_id, "")))

        # The more is covered, the less is left: a binary search finds the first position.
        return ends[min(bisect_left(ends, True, key=rest_fits), len(ends) - 1)] if ends else None

    def fit(self, prompt: Prompt, *, forced: bool) -> Prompt:
        """Trim the results of this turn if the prompt needs it, or if ``forced``. Raises ``ContextOverflow``."""
        if forced and prompt.trim_turn:
            raise self.overflow(prompt)
        if forced or self.is_exceeded_by(prompt):
            prompt = replace(prompt, trim_turn=True)
        if self.estimate(prompt) + ROOM_FOR_AN_ANSWER > self.window:
            raise self.overflow(prompt)
        return prompt

    def overflow(self, prompt: Prompt) -> ContextOverflow:
        """Return the error for a prompt that cannot be made to fit."""
        return ContextOverflow(self.window, self.estimate(prompt))

    def _is_small(self, prompt: Prompt) -> bool:
        checkpoint = checkpoint_tokens(self.window)
        return self.estimate(prompt) + checkpoint <= max(self.window * TARGET_RATIO, checkpoint)
