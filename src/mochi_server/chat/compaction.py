"""Making a conversation fit into a window: what may be shortened, and the checkpoint that stands for its oldest part.

Pure decisions; nothing here asks a model or changes what is stored.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import orjson

from mochi_server.chat.history import wire_messages
from mochi_server.chat.told import Size, Told, size, told
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import Block, History
from mochi_server.sessions.images import images_of
from mochi_server.sessions.types import Message

BEGIN_RATIO = 0.85
"""Compaction begins when a prompt takes up this much of the window ..."""

TARGET_RATIO = 0.5
"""... and takes it down to this much, so that it is not needed again for many turns."""

CHECKPOINT_TOKENS = 1500
TRIMMED_CHARS = 400
"""What is left of an old tool result: half of it head, half tail."""

INSTRUCTION = (
    "Write a summary of the conversation so far that lets you go on with it as if you had read it all. Keep facts, "
    "names, numbers, decisions, open questions and what the user wants, each in a short sentence. Leave out small "
    "talk. Answer with the summary alone."
)
HEADING = "Summary of the earlier conversation, which is no longer shown in full:\n"


@dataclass(frozen=True)
class Checkpoint:
    """A text that stands for all messages up to one of them, the system message aside."""

    text: str
    covers_through_message_id: str
    model: str

    def to_dict(self) -> dict[str, str]:
        """As it is stored with a session."""
        return {"text": self.text, "covers_through_message_id": self.covers_through_message_id, "model": self.model}

    @classmethod
    def from_dict(cls, stored: object) -> "Checkpoint | None":
        """A stored checkpoint; None for what is none."""
        if not isinstance(stored, dict):
            return None
        values = [stored.get(name) for name in ("text", "covers_through_message_id", "model")]
        return cls(*values) if all(isinstance(value, str) and value for value in values) else None  # type: ignore[arg-type]  # checked


@dataclass(frozen=True)
class Prompt:
    """A history as it is sent, and what of it is left out."""

    history: History
    turn_begins: int
    checkpoint: Checkpoint | None = None
    trim: bool = False
    """Whether tool results of earlier turns are shortened."""
    trim_turn: bool = False
    """Whether those of this turn are, too, but for the latest round's."""
    shows_images: bool = True
    """Whether the model can see any."""

    @cached_property
    def covered(self) -> int:
        """How many messages the checkpoint stands for; 0 when it no longer belongs to this history."""
        return covered_by(self.checkpoint, self.history) if self.checkpoint else 0

    @property
    def trimmed(self) -> int:
        """How many tool results are shortened."""
        return sum(self._is_trimmed(i) for i in range(self.covered, len(self.history))) if self.trim else 0

    @property
    def dropped(self) -> int:
        """How many messages are not sent, the system message not counted among them."""
        return max(self.covered - self.system, 0)

    @property
    def messages(self) -> list[ChatMessage | Encoded]:
        """What is sent: the system message, the checkpoint, and the history behind it."""
        return self._sent[0]

    def size_with(self, tools: Sequence[dict[str, Any]]) -> Size:
        """What is sent, as ``size`` counts it."""
        return self._sent[1].and_(size((), tools))

    @cached_property
    def _sent(self) -> tuple[list[ChatMessage | Encoded], Size]:
        sent: list[ChatMessage | Encoded] = []
        total = Size(0, 0)
        for part in self._parts():
            sent.extend([part.encoded] if isinstance(part, Told) else part)
            total = total.and_(part.size if isinstance(part, Told) else size(part, ()))
        return sent, total

    def _parts(self) -> Iterator[Told | list[ChatMessage]]:
        """What is sent, in order; blocks of the history as they are kept, as far as they are sent as they are."""
        position = 0
        if self.covered and self.checkpoint:
            yield self._wire(0, self.system)
            yield [
                {"role": "user", "content": HEADING + self.checkpoint.text},
                {"role": "assistant", "content": "I remember."},
            ]
            position = max(self.covered, self.system)
        for block, end in zip(self.history.blocks, self.history.ends, strict=True):
            begin = end - len(block.messages)
            if position <= begin and end <= self.turn_begins and self._is_sent_as_it_is(block):
                if position < begin:
                    yield self._wire(position, begin)
                yield block.keep(told)
                position = end
        yield self._wire(position, len(self.history))

    def _is_sent_as_it_is(self, block: Block) -> bool:
        return not block.keep(told).size.images and not (self.trim and block.keep(_has_long_results))

    def _wire(self, start: int, end: int) -> list[ChatMessage]:
        """Messages as they are sent, from whole turns."""
        messages = [self._shortened(i) for i in range(start, end)] if self.trim else self.history[start:end]
        sent = wire_messages(messages, self.turn_begins - start)
        if not self.shows_images:
            for message in sent:
                message.pop("images", None)
        return sent

    @property
    def system(self) -> int:
        """How many messages stand before the conversation: the system message, if there is one."""
        return 1 if self.history and self.history[0]["role"] == "system" else 0

    def _is_trimmed(self, index: int) -> bool:
        if not self.trim or index >= (self._latest_round if self.trim_turn else self.turn_begins):
            return False
        return _is_long_result(self.history[index])

    @cached_property
    def _latest_round(self) -> int:
        """Where the model last spoke: the results behind it are what it waits for."""
        return max((i for i, message in enumerate(self.history) if message["role"] == "assistant"), default=0)

    def _shortened(self, index: int) -> Message:
        message = self.history[index]
        if not self._is_trimmed(index):
            return message
        half, text = TRIMMED_CHARS // 2, message["content"]
        note = f"\n[... {len(text) - TRIMMED_CHARS} characters of an old result left out ...]\n"
        return {**message, "content": text[:half] + note + text[-half:]}


def checkpoint_tokens(window: int) -> int:
    """How long a checkpoint may be in a window."""
    return min(CHECKPOINT_TOKENS, window // 4)


def _has_long_results(messages: Sequence[Message]) -> bool:
    return any(_is_long_result(message) for message in messages)


def _is_long_result(message: Message) -> bool:
    return message["role"] == "tool" and len(message["content"]) > TRIMMED_CHARS


def covered_by(checkpoint: Checkpoint, history: Sequence[Message]) -> int:
    """How many messages of a history a checkpoint stands for; 0 when the last one it covers is gone."""
    for index, message in enumerate(history):
        if message.get("message_id") == checkpoint.covers_through_message_id:
            return index + 1
    return 0


def boundary(prompt: Prompt, fits: Callable[[Prompt], bool]) -> int | None:
    """Up to where a checkpoint should cover the history: the fewest messages that make the rest fit.

    It is always the end of a turn, so that no call is parted from its result. None when there is nothing to cover;
    the last end there is when nothing makes the rest fit.
    """
    ends = [
        i
        for i in range(prompt.covered + 1, prompt.turn_begins + 1)
        if prompt.history[i]["role"] == "user" and i > prompt.system
    ]

    def rest_fits(end: int) -> bool:
        return fits(replace(prompt, checkpoint=Checkpoint("-", prompt.history[end - 1]["message_id"], "")))

    # The more is covered, the less is left: the first end that will do is found by halving.
    return ends[min(bisect_left(ends, True, key=rest_fits), len(ends) - 1)] if ends else None


def slices(history: Sequence[Message], start: int, end: int, fits: Callable[[str], bool]) -> list[str]:
    """The messages of a range as texts, each of which fits; a message that is too long by itself loses its middle."""
    texts: list[str] = []
    for message in history[start:end]:
        line = _line(message)
        while not fits(line) and len(line) > TRIMMED_CHARS:
            keep = len(line) // 3
            line = line[:keep] + "\n[...]\n" + line[-keep:]
        if texts and fits(f"{texts[-1]}\n\n{line}"):
            texts[-1] += f"\n\n{line}"
        else:
            texts.append(line)
    return texts


def request(text: str, earlier: str | None) -> list[ChatMessage]:
    """What a model is asked to make a checkpoint of a slice, going on from an earlier one."""
    before = f"{HEADING}{earlier}\n\n" if earlier else ""
    return [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": f"{before}Conversation:\n\n{text}"},
    ]


def _line(message: Message) -> str:
    calls = message.get("tool_calls")
    called = f" [called {orjson.dumps(calls).decode()}]" if calls else ""
    showed = f" [showed images: {len(images)}]" if (images := images_of(message)) else ""
    who = f"tool {message.get('tool_name')}" if message["role"] == "tool" else message["role"]
    return f"{who}: {message['content']}{called}{showed}"
