"""Tokens that the requests of API keys have used, by day and model."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

_SECONDS_OF_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of requests to models and of their tokens, as Ollama counts them.

    Prompt tokens from Ollama's cache do not count.
    """

    requests: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0

    @classmethod
    def of_answer(cls, last: Mapping[str, Any]) -> "Usage":
        """Return the usage of one answer, from the last line of Ollama's response."""
        cached = _token_count(last, "prompt_eval_cached_count")
        evaluated = _token_count(last, "prompt_eval_count") - cached
        return cls(
            requests=1,
            prompt_tokens=max(evaluated, 0),
            answer_tokens=_token_count(last, "eval_count"),
        )

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.answer_tokens + other.answer_tokens,
        )


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """What usage is counted by: the day in UTC, the name of the API key, and the model."""

    day: str  # such as `2027-01-31`
    key: str
    model: str


class UsageStore(Protocol):
    """Protocol of the usage of all servers that share the sessions.

    Methods raise ``StorageFailed``.
    """

    async def add(self, entries: Mapping[UsageKey, Usage]) -> None:
        """Add usage to what is stored."""

    async def since(self, day: str, key: str | None = None) -> Mapping[UsageKey, Usage]:
        """Return the usage from ``day`` on, of one key or, for None, of all keys."""
        raise NotImplementedError


class UsageCounter:
    """Usage of this process that is not stored yet."""

    def __init__(self) -> None:
        self._entries: dict[UsageKey, Usage] = {}

    def add(self, entries: Mapping[UsageKey, Usage]) -> None:
        self._entries = joined(self._entries, entries)

    def take(self) -> Mapping[UsageKey, Usage]:
        """Return the usage and remove it from the counter."""
        taken = self._entries
        self._entries = {}
        return taken

    def since(self, day: str, key: str | None = None) -> Mapping[UsageKey, Usage]:
        return selected(self._entries, day, key)


def joined(
    entries: Mapping[UsageKey, Usage], others: Mapping[UsageKey, Usage]
) -> dict[UsageKey, Usage]:
    """Return the sums of two usages."""
    sums = dict(entries)
    for key, usage in others.items():
        sums[key] = sums.get(key, Usage()) + usage
    return sums


def selected(entries: Mapping[UsageKey, Usage], day: str, key: str | None) -> dict[UsageKey, Usage]:
    """Return the usage from ``day`` on, of one key or, for None, of all keys."""
    return {
        each: usage
        for each, usage in entries.items()
        if each.day >= day and key in (None, each.key)
    }


def today(days_ago: int = 0) -> str:
    """Return the day ``days_ago`` days before today in UTC, such as ``2027-01-31``."""
    return f"{datetime.now(timezone.utc) - timedelta(days=days_ago):%Y-%m-%d}"


def seconds_until_tomorrow(now: float) -> float:
    """Return the time in seconds from the Unix time ``now`` to the end of its day in UTC."""
    return _SECONDS_OF_DAY - now % _SECONDS_OF_DAY


def _token_count(line: Mapping[str, Any], field: str) -> int:
    value = line.get(field)
    if not isinstance(value, int | float):
        return 0
    return max(int(value), 0)
