"""Estimates of how many tokens of each prompt Ollama evaluated.

Ollama reports the length of a prompt, which includes the part that was still in its cache, and the evaluation time,
which does not. The estimate needs the speed of evaluation: the lowest ratio of length to time seen for a model is
that of a prompt of which the least was cached.
"""

from collections.abc import Mapping
from typing import Any

from mochi_server.ollama.payloads import qualified_name

_MIN_TOKENS = 64
"""Minimum length of a prompt that determines the speed. In shorter prompts the fixed costs of a request dominate."""
_MAX_MODELS = 1000


class PromptSpeeds:
    """Evaluation speed of each model, in tokens per nanosecond."""

    def __init__(self) -> None:
        self._speeds: dict[str, float] = {}

    def observe(self, response: Mapping[str, Any]) -> int | None:
        """Learn from a response of Ollama, and return the number of evaluated tokens as ``evaluated_tokens`` does.

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
        """Return the estimated number of prompt tokens that Ollama evaluated for a response.

        The estimate is at most the length of the prompt. It is the length itself while the speed of the model is
        unknown. Return None if Ollama reported no length or no evaluation time.
        """
        count, duration = _positive(response, "prompt_eval_count"), _positive(response, "prompt_eval_duration")
        if not count or not duration:
            return None
        speed = self._speeds.get(qualified_name(str(response.get("model"))))
        return count if speed is None else min(count, max(1, round(duration * speed)))


def _positive(response: Mapping[str, Any], name: str) -> int:
    value = response.get(name)
    return value if isinstance(value, int) and value > 0 else 0
