"""Prompts: stored messages in Ollama's format, shortened until they fit into the context window."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mochi_server.constants import MIN_ANSWER_TOKENS
from mochi_server.errors import ContextOverflow
from mochi_server.inference.messages import EncodedMessages, encode_messages, to_ollama_messages
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.attachments import omission_note, with_files
from mochi_server.sessions.checkpoint import Checkpoint
from mochi_server.sessions.history import Block, History
from mochi_server.sessions.session import system_message
from mochi_server.sessions.types import (
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    attachments_of,
)

BEGIN_RATIO = 0.85  # share of the context window; longer prompts are compacted
TARGET_RATIO = 0.5  # share that a compacted prompt may use; a low share makes compaction rare
CHECKPOINT_TOKENS = 1500
TRIMMED_CHARS = 400  # of a trimmed tool result: half from its start, half from its end
HIDDEN_IMAGES = "[The images are not shown, because this model cannot see images.]"
HEADING = "Summary of the earlier conversation, which is no longer shown in full:\n"


def with_instructions(
    history: History, user_index: int, instructions: str | None
) -> tuple[History, int]:
    """Add instructions to the system message.

    Return the new history and the new index of the user message.
    """
    if not instructions:
        return history, user_index
    first = history[0] if history else None
    if first is None or first["role"] != "system":
        return History.of([system_message(instructions), *history]), user_index + 1
    if first["content"].strip() == instructions.strip():
        return history, user_index
    combined: SystemMessage = {**first, "content": f"{first['content']}\n\n{instructions}"}
    return History.of([combined, *history[1:]]), user_index


@dataclass(frozen=True)
class Prompt:
    """Messages for the model: a history in which old parts may be trimmed or replaced by a
    checkpoint.
    """

    history: History
    turn_start: int  # index of the user message to answer
    checkpoint: Checkpoint | None = None
    trim_end: int = 0
    """Number of first messages whose long tool results, result images and files are trimmed."""
    trim_turn: bool = False
    """Whether results of the current turn are trimmed too, except the latest."""
    shows_images: bool = True

    @cached_property
    def covered(self) -> int:
        """Number of messages that the checkpoint covers, including the system message. 0 without a
        valid checkpoint, which covers no message of the current turn.
        """
        if self.checkpoint is None:
            return 0
        last = self.checkpoint.covers_through_message_id
        for number, message in enumerate(self.history[: self.turn_start], 1):
            if message.get("message_id") == last:
                return number
        return 0

    @property
    def trimmed(self) -> int:
        """Number of trimmed messages that the checkpoint does not replace."""
        return sum(self._is_trimmed(i) for i in range(self.covered, self.trim_limit))

    @property
    def trim_limit(self) -> int:
        """Index from which all messages are complete."""
        return max(self.trim_end, self._latest_answer_index) if self.trim_turn else self.trim_end

    @property
    def dropped(self) -> int:
        """Number of messages that the checkpoint replaces. The system message does not count."""
        return max(self.covered - self.system_count, 0)

    @property
    def shortest(self) -> "Prompt":
        """The prompt with a minimal summary of all earlier turns and with trimmed tool results of
        the current turn.
        """
        trimmed = replace(self, trim_turn=True)
        if self.turn_start <= max(self.covered, self.system_count):
            return trimmed
        return trimmed.summarized(self.turn_start)

    def summarized(self, end: int) -> "Prompt":
        """Return the prompt with a minimal summary of its first ``end`` messages."""
        covers_through = self.history[end - 1]["message_id"]
        return replace(self, checkpoint=Checkpoint("-", covers_through, ""))

    @property
    def messages(self) -> list[ChatMessage | Encoded]:
        return self._sent[0]

    def size_with(self, tools: Sequence[dict[str, Any]]) -> PromptSize:
        _, size = self._sent
        return size + PromptSize.of((), tools)

    @cached_property
    def _sent(self) -> tuple[list[ChatMessage | Encoded], PromptSize]:
        sent: list[ChatMessage | Encoded] = []
        total = PromptSize()
        for part in self._parts():
            if isinstance(part, EncodedMessages):
                sent.append(part.encoded)
                total += part.size
            else:
                sent.extend(part)
                total += PromptSize.of(part)
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
            end = block.end
            begin = end - len(block.messages)
            if position <= begin and end <= self.turn_start and self._is_unchanged(block, begin):
                if position < begin:
                    yield self._to_ollama(position, begin)
                yield block.cached(encode_messages)
                position = end
        yield self._to_ollama(position, len(self.history))

    def _is_unchanged(self, block: Block, begin: int) -> bool:
        if begin < self.trim_limit and block.cached(_has_long_results):
            return False
        return not block.cached(encode_messages).names_blobs

    def _to_ollama(self, start: int, end: int) -> list[ChatMessage]:
        messages: Sequence[Message] = self.history[start:end]
        if start < self.trim_limit:
            messages = [self._trim_message(i) for i in range(start, end)]
        sent = to_ollama_messages(messages, self.turn_start - start)
        if not self.shows_images:
            for message in sent:
                if message.pop("images", None):
                    text = message["content"]
                    message["content"] = f"{text}\n{HIDDEN_IMAGES}" if text else HIDDEN_IMAGES
        return sent

    @property
    def system_count(self) -> int:
        return 1 if self.history and self.history[0]["role"] == "system" else 0

    def _is_trimmed(self, index: int) -> bool:
        message = self.history[index]
        if message["role"] == "user":
            is_old = index < self.trim_end and index != self.turn_start
            return is_old and bool(attachments_of(message))
        return index < self.trim_limit and _is_long_result(message)

    @cached_property
    def _latest_answer_index(self) -> int:
        """Index of the model's latest answer.

        The model has not yet received the tool results after this index.
        """
        for index in range(len(self.history) - 1, 0, -1):
            if self.history[index]["role"] == "assistant":
                return index
        return 0

    def _trim_message(self, index: int) -> Message:
        message = self.history[index]
        if not self._is_trimmed(index):
            return message
        if message["role"] == "user":
            return _without_attachments(message)
        return _shortened(message) if message["role"] == "tool" else message


def checkpoint_tokens(window: int) -> int:
    """Return the maximum length of a checkpoint in tokens, for a context window of ``window``
    tokens.
    """
    return min(CHECKPOINT_TOKENS, window // 4)


def _shortened(result: ToolMessage) -> ToolMessage:
    half = TRIMMED_CHARS // 2
    text = result["content"]
    if len(text) > TRIMMED_CHARS:
        note = f"\n[... {len(text) - TRIMMED_CHARS} characters of an old result left out ...]\n"
        text = text[:half] + note + text[-half:]
    if result.get("images"):
        text += "\n[The images of this old result are left out.]"
    return {**result, "content": text, "images": []}


def _without_attachments(message: UserMessage) -> UserMessage:
    notes = []
    for attachment in attachments_of(message):
        notes.append(omission_note(attachment, "is left out, because the conversation is long"))
    content = with_files(message["content"], notes)
    return {**message, "content": content, "attachments": []}


def _has_long_results(messages: Sequence[Message]) -> bool:
    return any(_is_long_result(message) for message in messages)


def _is_long_result(message: Message) -> bool:
    if message["role"] != "tool":
        return False
    return len(message["content"]) > TRIMMED_CHARS or bool(message.get("images"))


@dataclass(frozen=True, slots=True)
class Budget:
    """Token budget for a prompt.

    ``window`` is the context window; ``estimate`` returns a prompt's number of tokens.
    ``is_manual`` states whether a manual size is the limit, not the model.
    """

    window: int
    estimate: Callable[[Prompt], int]
    is_manual: bool

    def is_exceeded_by(self, prompt: Prompt) -> bool:
        return self.estimate(prompt) > self.window * BEGIN_RATIO

    def boundary(self, prompt: Prompt) -> int | None:
        """Return how many messages, in whole turns, a checkpoint must cover.

        Return None if there is no earlier turn that it could cover. Raises ``ContextOverflow``.
        """
        first = max(prompt.covered, prompt.system_count) + 1
        stop = min(prompt.turn_start + 1, len(prompt.history))
        ends = [i for i in range(first, stop) if prompt.history[i]["role"] == "user"]
        if not ends:
            return None
        self.check(prompt.shortest)

        length = checkpoint_tokens(self.window)

        def rest_fits(end: int) -> bool:
            needed = self.estimate(prompt.summarized(end)) + length
            return needed <= max(self.window * TARGET_RATIO, length)

        # A binary search works because a checkpoint that covers more messages always makes the
        # prompt smaller. If no rest fits, the checkpoint covers all earlier turns.
        return ends[bisect_left(ends[:-1], True, key=rest_fits)]

    def fit(self, prompt: Prompt, *, forced: bool) -> Prompt:
        """Return the prompt, if necessary with trimmed results of the current turn.

        If ``forced`` is true, trim them even if the prompt seems to fit. Raises
        ``ContextOverflow``.
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
        return ContextOverflow(self.window, self.estimate(prompt), is_manual=self.is_manual)
