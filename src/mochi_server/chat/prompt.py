"""Prompts: stored messages in Ollama's format, shortened until they fit into the context window."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from mochi_server.chat.turn_input import HistoryChange
from mochi_server.constants import MIN_ANSWER_TOKENS
from mochi_server.errors import ContextOverflow
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.history import Block, History
from mochi_server.sessions.session import system_message
from mochi_server.sessions.types import Message, images_in, images_of

_SENT_FIELDS = ("role", "content", "tool_calls", "tool_name", "tool_call_id")
_NO_RESULT = "The call was interrupted and has no result."


def to_ollama_messages(messages: Sequence[Message], turn_start: int) -> list[ChatMessage]:
    """Convert messages to Ollama's format, without thinking before index ``turn_start`` and with
    missing results.
    """
    sent: list[ChatMessage] = []
    missing: dict[str, str] = {}
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            missing.pop(message.get("tool_call_id", ""), None)
        elif message["role"] != "system":  # results may follow instructions
            sent.extend(_missing_results(missing))
            calls = message.get("tool_calls") or ()
            missing = {call["id"]: call["function"]["name"] for call in calls if call.get("id")}
        if message["role"] != "assistant" or message["content"] or message.get("tool_calls"):
            sent.append(_to_ollama(message, with_thinking=index > turn_start))
    return [*sent, *_missing_results(missing)]


def last_user_index(messages: Sequence[Message]) -> int | None:
    """Return the index of the latest user message, or None if no message is from the user."""
    backwards = zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True)
    return next((index for index, message in backwards if message["role"] == "user"), None)


def answer_index(messages: Sequence[Message], change: HistoryChange) -> int:
    """Return the index of the next answer, which replaces all messages from this index on."""
    if change != "continue":
        user_index = last_user_index(messages)
        return len(messages) if user_index is None else user_index + 1
    has_partial = (
        bool(messages)
        and messages[-1]["role"] == "assistant"
        and bool(messages[-1].get("interrupted"))
    )
    return len(messages) - has_partial


def follows_result(messages: Sequence[Message]) -> bool:
    index = answer_index(messages, "continue")
    return index > 0 and messages[index - 1]["role"] == "tool"


def with_instructions(
    history: History, user_index: int, instructions: str | None
) -> tuple[History, int]:
    """Add instructions to the system message.

    Return the new history and the new index of the user message.
    """
    if not instructions:
        return history, user_index
    if not history or history[0]["role"] != "system":
        return History.of([system_message(instructions), *history]), user_index + 1
    first = history[0]
    if first["content"].strip() == instructions.strip():
        return history, user_index
    combined: Message = {**first, "content": f"{first['content']}\n\n{instructions}"}
    return History.of([combined, *history[1:]]), user_index


def _to_ollama(message: Message, *, with_thinking: bool) -> ChatMessage:
    sent: ChatMessage = {}
    for name in _SENT_FIELDS:
        value = message.get(name)
        if value is not None:
            sent[name] = value  # type: ignore[literal-required]  # the key is not a literal
    if with_thinking and message.get("thinking"):
        sent["thinking"] = message["thinking"]
    if "images" in message and (images := images_of(message)):
        sent["images"] = images
    return sent


def _missing_results(names: Mapping[str, str]) -> list[ChatMessage]:
    return [
        {"role": "tool", "content": _NO_RESULT, "tool_name": name, "tool_call_id": call_id}
        for call_id, name in names.items()
    ]


class EncodedMessages(NamedTuple):
    """Messages encoded as JSON for Ollama, and their size.

    Images are represented by their SHA-256 names.
    """

    encoded: Encoded
    size: PromptSize


def encode_messages(messages: Sequence[Message]) -> EncodedMessages:
    """Encode the messages of completed turns as JSON for Ollama.

    The thinking of the model is omitted.
    """
    converted = to_ollama_messages(messages, len(messages))
    return EncodedMessages(
        Encoded(b",".join(map(orjson.dumps, converted))), PromptSize.of(converted)
    )


def shows_images(history: History) -> bool:
    return any(block.cached(encode_messages).size.images for block in history.blocks) or bool(
        images_in(history.tail)
    )


BEGIN_RATIO = 0.85  # share of the context window; longer prompts are compacted
TARGET_RATIO = 0.5  # share that a compacted prompt may use; a low share makes compaction rare
CHECKPOINT_TOKENS = 1500
TRIMMED_CHARS = 400  # of a trimmed tool result: half from its start, half from its end
HIDDEN_IMAGES = "[The images are not shown, because this model cannot see images.]"
HEADING = "Summary of the earlier conversation, which is no longer shown in full:\n"


@dataclass(frozen=True)
class Checkpoint:
    """Summary that replaces the oldest messages of a prompt, except the system message."""

    text: str
    covers_through_message_id: str
    model: str

    @classmethod
    def from_dict(cls, stored: object) -> "Checkpoint | None":
        """Return the checkpoint from the value that a session stores, or None if the value is
        invalid.
        """
        if not isinstance(stored, dict):
            return None
        values = [stored.get(name) for name in ("text", "covers_through_message_id", "model")]
        return cls(*values) if all(isinstance(value, str) and value for value in values) else None  # type: ignore[arg-type]  # checked


@dataclass(frozen=True)
class Prompt:
    """Messages for the model: a history in which old parts may be trimmed or replaced by a
    checkpoint.
    """

    history: History
    turn_start: int  # index of the user message to answer
    checkpoint: Checkpoint | None = None
    trim_end: int = (
        0  # number of first messages whose long tool results and result images are trimmed
    )
    trim_turn: bool = (
        False  # whether results of the current turn are trimmed too, except the latest
    )
    shows_images: bool = True

    @cached_property
    def covered(self) -> int:
        """Number of messages that the checkpoint covers, including the system message. 0 without a
        valid checkpoint.
        """
        if self.checkpoint is None:
            return 0
        last = self.checkpoint.covers_through_message_id
        return next(
            (i + 1 for i, message in enumerate(self.history) if message.get("message_id") == last),
            0,
        )

    @property
    def trimmed(self) -> int:
        return sum(self._is_trimmed(i) for i in range(self.covered, self.trim_limit))

    @property
    def trim_limit(self) -> int:
        """Number of messages at the start of the history that can be trimmed.

        All later messages stay complete.
        """
        return max(self.trim_end, self._latest_round) if self.trim_turn else self.trim_end

    @property
    def dropped(self) -> int:
        """Number of messages that the checkpoint replaces. The system message does not count."""
        return max(self.covered - self.system_count, 0)

    @property
    def shortest(self) -> "Prompt":
        """The prompt with a minimal summary of all earlier turns and with trimmed tool results of
        the current turn.
        """
        if self.turn_start <= max(self.covered, self.system_count):
            return replace(self, trim_turn=True)
        covers_through = self.history[self.turn_start - 1]["message_id"]
        return replace(self, checkpoint=Checkpoint("-", covers_through, ""), trim_turn=True)

    @property
    def messages(self) -> list[ChatMessage | Encoded]:
        return self._sent[0]

    def size_with(self, tools: Sequence[dict[str, Any]]) -> PromptSize:
        return self._sent[1] + PromptSize.of((), tools) if tools else self._sent[1]

    @cached_property
    def _sent(self) -> tuple[list[ChatMessage | Encoded], PromptSize]:
        sent: list[ChatMessage | Encoded] = []
        total = PromptSize()
        for part in self._parts():
            sent.extend([part.encoded] if isinstance(part, EncodedMessages) else part)
            total += part.size if isinstance(part, EncodedMessages) else PromptSize.of(part)
        return sent, total

    def _parts(self) -> Iterator[EncodedMessages | list[ChatMessage]]:
        """Yield the prompt's messages in order.

        The prompt cache supplies the blocks that are sent unchanged.
        """
        position = 0
        if self.covered and self.checkpoint:
            yield self._to_ollama(0, self.system_count)
            yield [
                {"role": "user", "content": HEADING + self.checkpoint.text},
                {"role": "assistant", "content": "I remember."},
            ]
            position = max(self.covered, self.system_count)
        for block in self.history.blocks:
            begin, end = block.end - len(block.messages), block.end
            if position <= begin and end <= self.turn_start and self._is_unchanged(block, begin):
                if position < begin:
                    yield self._to_ollama(position, begin)
                yield block.cached(encode_messages)
                position = end
        yield self._to_ollama(position, len(self.history))

    def _is_unchanged(self, block: Block, begin: int) -> bool:
        may_be_trimmed = begin < self.trim_limit and block.cached(_has_long_results)
        return not block.cached(encode_messages).size.images and not may_be_trimmed

    def _to_ollama(self, start: int, end: int) -> list[ChatMessage]:
        is_whole = start >= self.trim_limit
        messages = (
            self.history[start:end]
            if is_whole
            else [self._trim_message(i) for i in range(start, end)]
        )
        sent = to_ollama_messages(messages, self.turn_start - start)
        if not self.shows_images:
            for message in sent:
                if message.pop("images", None):
                    texts = (message["content"], HIDDEN_IMAGES)
                    message["content"] = "\n".join(filter(None, texts))
        return sent

    @property
    def system_count(self) -> int:
        return 1 if self.history and self.history[0]["role"] == "system" else 0

    def _is_trimmed(self, index: int) -> bool:
        return index < self.trim_limit and _is_long_result(self.history[index])

    @cached_property
    def _latest_round(self) -> int:
        """Index of the model's latest answer.

        The model has not yet received the tool results after this index.
        """
        return max(
            (i for i, message in enumerate(self.history) if message["role"] == "assistant"),
            default=0,
        )

    def _trim_message(self, index: int) -> Message:
        message = self.history[index]
        if not self._is_trimmed(index):
            return message
        half, text = TRIMMED_CHARS // 2, message["content"]
        if len(text) > TRIMMED_CHARS:
            note = f"\n[... {len(text) - TRIMMED_CHARS} characters of an old result left out ...]\n"
            text = text[:half] + note + text[-half:]
        if message.get("images"):
            text += "\n[The images of this old result are left out.]"
        return {**message, "content": text, "images": []}


def checkpoint_tokens(window: int) -> int:
    """Return the maximum length of a checkpoint in tokens, for a context window of ``window``
    tokens.
    """
    return min(CHECKPOINT_TOKENS, window // 4)


def _has_long_results(messages: Sequence[Message]) -> bool:
    return any(_is_long_result(message) for message in messages)


def _is_long_result(message: Message) -> bool:
    return message["role"] == "tool" and (
        len(message["content"]) > TRIMMED_CHARS or bool(message.get("images"))
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """Token budget for a prompt.

    ``window`` is the context window; ``estimate`` returns a prompt's number of tokens.
    """

    window: int
    estimate: Callable[[Prompt], int]

    def is_exceeded_by(self, prompt: Prompt) -> bool:
        return self.estimate(prompt) > self.window * BEGIN_RATIO

    def boundary(self, prompt: Prompt) -> int | None:
        """Return how many messages, in whole turns, a checkpoint must cover, or None.

        Raises ``ContextOverflow``.
        """
        ends = [
            i
            for i in range(prompt.covered + 1, min(prompt.turn_start + 1, len(prompt.history)))
            if prompt.history[i]["role"] == "user" and i > prompt.system_count
        ]
        if not ends:
            return None
        self.check(prompt.shortest)

        length = checkpoint_tokens(self.window)

        def rest_fits(end: int) -> bool:
            rest = replace(
                prompt, checkpoint=Checkpoint("-", prompt.history[end - 1]["message_id"], "")
            )
            return self.estimate(rest) + length <= max(self.window * TARGET_RATIO, length)

        # A binary search works because a checkpoint that covers more messages always makes the
        # prompt smaller.
        return ends[min(bisect_left(ends, True, key=rest_fits), len(ends) - 1)]

    def fit(self, prompt: Prompt, *, forced: bool) -> Prompt:
        """Return the prompt, if necessary with trimmed results of the current turn.

        Raises ``ContextOverflow``.
        """
        if forced and prompt.trim_turn:
            raise self.overflow(prompt)
        if forced or self.is_exceeded_by(prompt):
            prompt = replace(prompt, trim_turn=True)
        self.check(prompt)
        return prompt

    def check(self, prompt: Prompt) -> None:
        """Raise ``ContextOverflow`` if a prompt and the shortest answer do not fit into the
        window.
        """
        if self.estimate(prompt) + MIN_ANSWER_TOKENS > self.window:
            raise self.overflow(prompt)

    def overflow(self, prompt: Prompt) -> ContextOverflow:
        return ContextOverflow(self.window, self.estimate(prompt))
