"""Slots of a model on a host: which prompts they hold, and how fast the model loads and evaluates.

Ollama reports neither the number of slots nor their prompts. The server derives both from the requests that it sent and
from the counts of cached tokens in the answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from mochi_server.inference.windows import PromptSize

_MAX_TOKENS_PER_SECOND = 10_000.0  # limit for implausible measurements
_MIN_LOAD_SECONDS = 0.1  # Ollama reports a few milliseconds for models that are in memory
_CACHED_RATIO = 0.8  # share of a session's latest prompt that is cached if a slot still holds the prompt
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
    tokens: int  # number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger


@dataclass(slots=True)
class HeldPrompt:
    """Latest prompt of a session, or the prompt of another request, such as a comparison."""

    in_use: bool = False  # whether the session may continue it on this host
    tokens: int = 0  # Ollama's count, or 0 until the prompt has been answered
    exchange: Exchange | None = None  # for summaries


class SentRequest(NamedTuple):
    """A request when it was sent: the key of its prompt, the latest count of the session, and newer other prompts."""

    key: str
    tokens: int
    newer: int


@dataclass(eq=False, slots=True)
class ModelSlots:
    """Measurements of a model on a host, and the prompts that its slots hold."""

    tokens_per_second: float | None = None
    load_seconds: float | None = None
    answer_seconds: float | None = None
    min_held: int = 1  # number of prompts that the slots are known to hold
    max_held: int | None = None  # number of prompts that they hold at most, or None if unknown
    _prompts: dict[str, HeldPrompt] = field(default_factory=dict)  # by session ID, the latest one last
    _requests: int = 0
    _window: int | None = None
    _counts_cached_tokens: bool = False

    def held(self, slots: int) -> dict[str, HeldPrompt]:
        """Return the prompts that ``slots`` slots may hold by session ID, the latest one last."""
        return dict([*self._prompts.items()][-max(self.max_held, slots) :]) if self.max_held else self._prompts

    def reserve(self, session_id: str) -> None:
        """Record that a session has been assigned to the slots. Its request may have to wait."""
        if session_id:
            self._prompts.setdefault(session_id, HeldPrompt()).in_use = True

    def release(self, session_id: str) -> None:
        """Record that a session has moved to another host."""
        if session_id in self._prompts:
            self._prompts[session_id] = HeldPrompt()

    def discard(self, session_id: str) -> None:
        """Discard the prompt of a session that is about to be deleted."""
        self._prompts.pop(session_id, None)

    def discard_answered(self) -> None:
        """Discard the prompts that a reload of the model removes from the slots, but not those that wait for it."""
        self._prompts = {key: prompt for key, prompt in self._prompts.items() if prompt.in_use and not prompt.tokens}

    def begin(self, session_id: str, window: int | None) -> SentRequest:
        """Record a request that is about to be sent, with its window in tokens. A session is optional."""
        if window not in (None, self._window):
            self.discard_answered()
            self._window = window
        self._requests += 1
        key = session_id or f"request {self._requests}"
        newer, prompt = self._count_newer(key), self._prompts.pop(key, HeldPrompt())
        prompt.in_use = bool(session_id)
        self._prompts[key] = prompt
        if len(self._prompts) > _MAX_PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        return SentRequest(key, prompt.tokens, newer)

    def record(self, sent: SentRequest, last: Mapping[str, Any], exchange: Exchange | None = None) -> None:
        """Record the last line of an answer, and the exchange of a session's prompt."""
        count, cached = number(last.get("prompt_eval_count")), last.get("prompt_eval_cached_count")
        self._counts_cached_tokens = cached is not None
        is_longer = count >= sent.tokens > 0  # a prompt that was shortened may differ from the latest one
        if cached is not None and is_longer and not _load_seconds(last):
            self._learn(sent.newer, is_cached=number(cached) >= sent.tokens * _CACHED_RATIO)
        if exchange is None:
            return
        prompt = self._prompts.setdefault(sent.key, HeldPrompt(in_use=True))
        if exchange is not prompt.exchange:  # otherwise a summary has continued the prompt
            prompt.tokens = int(count) or exchange.tokens
        prompt.exchange = exchange if self._count_newer(sent.key) < self.min_held else None

    def measure(self, last: Mapping[str, Any], seconds: float) -> None:
        """Record the speeds that the last line of an answer shows. The answer took ``seconds``."""
        evaluated = number(last.get("prompt_eval_count")) - number(last.get("prompt_eval_cached_count"))
        evaluation = number(last.get("prompt_eval_duration")) / 1e9
        if evaluation and evaluated > 0:
            speed = min(evaluated / evaluation, _MAX_TOKENS_PER_SECOND)
            self.tokens_per_second = _smooth(self.tokens_per_second, speed)
        if load := _load_seconds(last):
            self.load_seconds = _smooth(self.load_seconds, load)
        self.answer_seconds = _smooth(self.answer_seconds, seconds)

    def exchange_of(self, session_id: str) -> tuple[Exchange | None, bool]:
        """Return the exchange of a session if a slot may hold it, and whether it is known that a slot holds it."""
        prompt, is_held = self._prompts.get(session_id), self._count_newer(session_id) < self.min_held
        exchange = prompt.exchange if prompt and (is_held or self._counts_cached_tokens) else None
        return exchange, is_held

    def _count_newer(self, key: str) -> int:
        """Return the number of prompts after the one with this key."""
        return sum(1 for _ in takewhile(lambda other: other != key, reversed(self._prompts)))

    def _learn(self, newer: int, *, is_cached: bool) -> None:
        """Learn from a prompt that came back after ``newer`` other prompts how many prompts the slots hold."""
        if is_cached:
            self.min_held = max(self.min_held, newer + 1)
            self.max_held = self.max_held and max(self.max_held, self.min_held)
        elif newer >= self.min_held:
            self.max_held = newer
        elif newer:  # fewer than before, or requests have overtaken each other
            self.min_held -= 1


def _load_seconds(last: Mapping[str, Any]) -> float:
    """Return the seconds in which Ollama has loaded the model for an answer, or 0 if it was in memory."""
    seconds = number(last.get("load_duration")) / 1e9
    return seconds if seconds >= _MIN_LOAD_SECONDS else 0


def _smooth(before: float | None, value: float) -> float:
    return value if before is None else before + _SMOOTHING * (value - before)


def number(value: object) -> float:
    """Return a count or a duration of Ollama, or 0 for another value."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
