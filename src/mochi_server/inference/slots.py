"""Slots of a model on a host: which prompts they hold, and how fast the model loads and evaluates.

Ollama reports neither the number of slots nor their prompts. The server derives both from the
requests that it sent and from the counts of cached tokens in the answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mochi_server.inference.token_estimate import PromptSize

_MAX_TOKENS_PER_SECOND = 10_000.0  # limit for implausible measurements
_MIN_LOAD_SECONDS = 0.1  # Ollama reports a few milliseconds for models that are in memory
# Share of a session's latest prompt that is cached if a slot still holds the prompt.
_CACHED_RATIO = 0.8
_SMOOTHING = 0.3
_MAX_PROMPTS = 32  # number of prompts that are recorded


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and its answer, which a summary can continue while a slot holds them."""

    payload: Mapping[str, Any]  # body of the request
    history: Sequence[Any]  # messages of the prompt; the system message includes the instructions
    first_stored: Any
    answer_id: str
    size: PromptSize
    # number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is
    # larger
    tokens: int


@dataclass(eq=False, slots=True)
class HeldPrompt:
    """Latest prompt of a session."""

    session_id: str
    # Ollama's count for the latest answered prompt of the session, or else an estimate with the
    # answer.
    tokens: int = 0
    newer: int = 0  # number of other prompts between the session's latest two
    exchange: Exchange | None = None  # for summaries


@dataclass(eq=False, slots=True)
class ModelSlots:
    """Measurements of a model on a host, and the prompts that its slots hold."""

    tokens_per_second: float | None = None
    load_seconds: float | None = None
    answer_seconds: float | None = None
    capacity: int = 1  # number of prompts that the slots are known to hold
    # Number of prompts that they hold at most according to the latest miss of a prompt that they
    # were not known to hold, or None if unknown.
    # Later hits may raise ``capacity`` above it.
    max_capacity: int | None = None
    # The latest prompt is the last. None is a prompt that no session continues. The slots may hold
    # only the last few.
    prompts: list[HeldPrompt | None] = field(default_factory=list)
    _window: int | None = None
    _counts_cached_tokens: bool = False

    def reserve(self, session_id: str) -> None:
        """Record that a session has been assigned to the slots. Its request may have to wait."""
        if session_id and self.find(session_id) is None:
            self.prompts.append(HeldPrompt(session_id))

    def discard(self, session_id: str) -> None:
        """Record that a session has moved or is about to be deleted.

        A slot may still hold its prompt.
        """
        own = self.find(session_id)
        self.prompts = [None if prompt is own else prompt for prompt in self.prompts]

    def discard_answered(self) -> None:
        """Discard the prompts that a reload of the model removes from the slots.

        Only prompts of sessions without an answer so far stay, because they may wait for the
        reload.
        """
        self.prompts = [
            prompt for prompt in self.prompts if prompt is not None and not prompt.tokens
        ]

    def begin(self, session_id: str, window: int | None) -> HeldPrompt:
        """Record a request that is about to be sent, with its window in tokens, and return its
        prompt.

        The prompt becomes the latest. ``session_id`` is "" for a request without a session, whose
        prompt is recorded as None. A changed window discards the answered prompts.
        """
        if window not in (None, self._window):
            self.discard_answered()
            self._window = window
        prompt = self.find(session_id) or HeldPrompt(session_id)
        prompt.newer = self._count_newer(prompt)
        others = [each for each in self.prompts if each is not prompt]
        if not self._counts_cached_tokens:  # then only the latest prompt is known to be held
            for other in filter(None, others):
                other.exchange = None
        self.prompts = [*others, prompt if session_id else None][-_MAX_PROMPTS:]
        return prompt

    def find(self, session_id: str) -> HeldPrompt | None:
        """Return the prompt of a session, if it is recorded."""
        for prompt in self.prompts:
            if prompt is not None and prompt.session_id == session_id:
                return prompt
        return None

    def record(
        self,
        prompt: HeldPrompt,
        last: Mapping[str, Any],
        seconds: float,
        exchange: Exchange | None = None,
    ) -> None:
        """Record the last line of an answer that took ``seconds``, and the exchange of a turn.

        A summary has the exchange that it continues. Other requests have none.
        """
        self._measure(last, seconds)
        count = number(last.get("prompt_eval_count"))
        cached = last.get("prompt_eval_cached_count")
        self._counts_cached_tokens = cached is not None
        # A prompt that was shortened may differ from the latest one.
        is_longer = count >= prompt.tokens > 0
        if cached is not None and is_longer and not load_seconds(last):
            self._learn(prompt.newer, is_cached=number(cached) >= prompt.tokens * _CACHED_RATIO)
        # After a summary, the count of the exchange that it continues remains.
        if exchange is not None and exchange is not prompt.exchange:
            prompt.tokens = int(count) or exchange.tokens
        prompt.exchange = exchange if self._count_newer(prompt) < self.capacity else None

    def exchange_of(self, session_id: str) -> tuple[Exchange | None, bool]:
        """Return the exchange of a session if a slot may hold it, and whether it is known that a
        slot holds it.
        """
        prompt = self.find(session_id)
        if prompt is None:
            return None, False
        return prompt.exchange, self._count_newer(prompt) < self.capacity

    def _measure(self, last: Mapping[str, Any], seconds: float) -> None:
        cached = number(last.get("prompt_eval_cached_count"))
        evaluated = number(last.get("prompt_eval_count")) - cached
        evaluation_seconds = number(last.get("prompt_eval_duration")) / 1e9
        if evaluation_seconds and evaluated > 0:
            speed = min(evaluated / evaluation_seconds, _MAX_TOKENS_PER_SECOND)
            self.tokens_per_second = _smooth(self.tokens_per_second, speed)
        load = load_seconds(last)
        if load:
            self.load_seconds = _smooth(self.load_seconds, load)
        self.answer_seconds = _smooth(self.answer_seconds, seconds)

    def _count_newer(self, prompt: HeldPrompt) -> int:
        """Return the number of prompts after one, or of all prompts if it is not recorded."""
        if prompt not in self.prompts:
            return len(self.prompts)
        return len(self.prompts) - self.prompts.index(prompt) - 1

    def _learn(self, newer: int, *, is_cached: bool) -> None:
        """Learn from a prompt that came back after ``newer`` other prompts how many prompts the
        slots hold.
        """
        if is_cached:
            self.capacity = max(self.capacity, newer + 1)
        elif newer >= self.capacity:
            self.max_capacity = newer
        elif newer:  # fewer than before, or requests have overtaken each other
            self.capacity -= 1


def load_seconds(last: Mapping[str, Any]) -> float:
    """Return the seconds in which Ollama has loaded the model for an answer, or 0 if it was in
    memory.
    """
    seconds = number(last.get("load_duration")) / 1e9
    if seconds < _MIN_LOAD_SECONDS:
        return 0
    return seconds


def _smooth(before: float | None, value: float) -> float:
    if before is None:
        return value
    return before + _SMOOTHING * (value - before)


def number(value: object) -> float:
    """Return a count or a duration of Ollama, or 0 for another value."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
