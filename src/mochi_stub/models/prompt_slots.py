"""Simulated prompt cache of a loaded model. As in llama.cpp, each slot stores the text that it evaluated last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_LEAST_SIMILARITY = 0.1  # share of a prompt that must be in a slot; otherwise it takes the least recently used slot


class Evaluation(NamedTuple):
    """Prompt and reply as text. `tokens` is the number of tokens in the prompt."""

    prompt: str
    reply: str
    tokens: int


@dataclass
class PromptSlots:
    """Prompt cache slots of a model. `count` is the number of parallel requests, or 1 if that number is unlimited."""

    count: int = 1
    _texts: list[str] = field(default_factory=list)  # texts of the used slots, the least recently used first

    def evaluate(self, evaluation: Evaluation) -> int:
        """Put a prompt and its reply into a slot. Return the number of uncached prompt tokens, at least 1."""
        prompt, reply, tokens = evaluation
        best = max(self._texts, key=lambda text: _common_prefix(text, prompt), default="")
        prefix = _common_prefix(best, prompt)
        if best and prefix >= len(prompt) * _LEAST_SIMILARITY:
            self._texts.remove(best)
        else:
            prefix = 0
            if len(self._texts) == self.count:
                del self._texts[0]
        self._texts.append(prompt + reply)
        return max(tokens - tokens * prefix // max(len(prompt), 1), 1)


def _common_prefix(first: str, second: str) -> int:
    if first.startswith(second):  # a repeated prompt
        return len(second)
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
