"""Estimates of how many tokens of each prompt Ollama evaluated.

Ollama reports the length of a prompt and the time of its evaluation. The length includes cached tokens. The time does
not, because Ollama evaluates only the other tokens. Length divided by time is therefore higher than the real speed of
the model if tokens were cached. The lowest quotient so far is the best estimate of the real speed.
"""

from collections.abc import Mapping
from typing import Any

from mochi_server.ollama.payloads import qualified_name

_MIN_TOKENS = 64
"""Minimum length of a prompt that determines the speed. In shorter prompts, the fixed costs of a request dominate."""
_MAX_MODELS = 1000


class PromptSpeeds:
    """Evaluation speed of each model, in tokens per nanosecond."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}

    def observe(self, response: Mapping[str, Any]) -> int | None:
        """Update the speed of the model from a response of Ollama, and return ``evaluated_tokens(response)``.

        ``response`` has Ollama's fields ``model``, ``prompt_eval_count`` and ``prompt_eval_duration``.
        """
        count, duration = _positive(response, "prompt_eval_count"), _positive(response, "prompt_eval_duration")
        if count >= _MIN_TOKENS and duration:
            name = qualified_name(str(response.get("model")))
            self._speeds[name] = min(self._speeds.pop(name, count / duration), count / duration)
            if len(self._speeds) > _MAX_MODELS:
                del self._speeds[next(iter(self._speeds))]
        return self.evaluated_tokens(response)

    def evaluated_tokens(self, response: Mapping[str, Any]) -> int | None:
        """Return the estimated number of prompt tokens that Ollama evaluated for a response, at most the prompt length.

        If the speed of the model is unknown, return the length. If Ollama reported no length or time, return None.
        """
        count, duration = _positive(response, "prompt_eval_count"), _positive(response, "prompt_eval_duration")
        if not count or not duration:
            return None
        speed = self._speeds.get(qualified_name(str(response.get("model"))))
        return count if speed is None else min(count, max(1, round(duration * speed)))


def _positive(response: Mapping[str, Any], name: str) -> int:
    value = response.get(name)
    return value if isinstance(value, int) and value > 0 else 0
