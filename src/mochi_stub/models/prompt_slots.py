"""Prompt cache of a loaded model: the text that each slot has evaluated, as llama.cpp keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

_LEAST_SIMILARITY = 0.1
"""Least share of a prompt that its slot must have. Otherwise the prompt takes the least recently used slot."""


@dataclass
class PromptSlots:
    """The slots of a model: one for each parallel request. Without a limit on those there is one slot."""

    count: int = 1
    _texts: list[str] = field(default_factory=list)
    """Evaluated texts, the least recently used first."""

    def evaluate(self, prompt: str, reply: str) -> int:
        """Evaluate a prompt and generate a reply in a slot. Return the length of the prefix that the slot had."""
        best = max(self._texts, key=lambda text: _common_prefix(text, prompt), default="")
        prefix = _common_prefix(best, prompt)
        if best and prefix >= len(prompt) * _LEAST_SIMILARITY:
            self._texts.remove(best)
        else:
            prefix = 0
            if len(self._texts) == self.count:
                del self._texts[0]
        self._texts.append(prompt + reply)
        return prefix


@dataclass(frozen=True)
class Evaluation:
    """A prompt of so many tokens that a model evaluates, and its reply, as text."""

    prompt: str
    reply: str
    tokens: int

    def run(self, slots: PromptSlots) -> int:
        """Return the number of tokens that are evaluated: at least one, and those that no slot has."""
        prefix = slots.evaluate(self.prompt, self.reply)
        return max(self.tokens - self.tokens * prefix // max(len(self.prompt), 1), 1)


def _common_prefix(first: str, second: str) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
