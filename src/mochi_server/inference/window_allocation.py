"""Context windows of one turn: one decision for each of its requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mochi_server.constants import MIN_ANSWER_TOKENS
from mochi_server.inference.token_estimate import PromptSize, TokenEstimate
from mochi_server.inference.window_registry import (
    BUFFER,
    MIN_WINDOW,
    WindowDecision,
    WindowRegistry,
    capped,
    manual_window,
)
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ModelInfo

_REFUSAL_MARGIN = 1.5  # window after Ollama refused a prompt, as a multiple of the prompt
_LONG_CHARS = 4000
_MAX_CHARS_PER_TOKEN = 8  # highest plausible average in texts longer than `_LONG_CHARS`


@dataclass(eq=False)
class Allocation:
    """Context window that the registry chooses for successive requests of one turn, comparison or
    summary.
    """

    windows: WindowRegistry  # of the host of the latest request; the gateway replaces it
    model: ModelInfo
    config: Mapping[str, Any] | None = None  # the session's `context_window_config`, if any
    previous_model: str | None = None
    # Ollama's latest token count of the conversation, or 0 if that count no longer applies.
    usage: int = 0
    counted: int = 0  # the part of `usage` that the next prompt contains
    answer_tokens: int = 0
    """Room for the answer in the window of a model that is not loaded, in tokens."""
    is_fixed: bool = False  # whether the requests always use the window of `decision`
    # For the latest request, with the reason of the latest change.
    decision: WindowDecision | None = None
    refusing_window: int | None = None
    """Window that Ollama has named when it refused a prompt, or None."""
    _stepped_down: WindowRegistry | None = field(default=None, init=False)
    """Windows of the host that has last run out of memory for these requests, or None."""
    _highest_count: int = field(default=0, init=False)  # highest token count of Ollama

    @property
    def size(self) -> int | None:
        """Window in tokens, or None if it is unknown."""
        return self.decision.window if self.decision else None

    @property
    def prompt_window(self) -> int | None:
        """Window that prompts must fit, or None if it is unknown.

        If Ollama chooses the window, only its refusal of a prompt names it.
        """
        return self.size or self.refusing_window

    @property
    def num_ctx(self) -> int | None:
        """Window that the requests set, or None if they set none."""
        return None if self.model.is_cloud else self.size

    @property
    def estimate(self) -> TokenEstimate:
        return self.windows.estimate(self.model.name)

    @property
    def context_length(self) -> int | None:
        """Context length of the model, or None if it is unknown or Ollama chooses the window."""
        return self.model.context_length if self.windows.dynamic or self.model.is_cloud else None

    @property
    def manual(self) -> int | None:
        """Manual window of the session within the limits of the model, or None.

        A session with a cloud model can have one, too.
        """
        return manual_window(self.model, self.config or {})

    @property
    def largest(self) -> int | None:
        """Largest window that a request can have, or None if it is unknown."""
        if self.manual is not None:
            return self.manual
        if self.model.is_cloud or self.context_length is None:
            return self.context_length
        return self.windows.largest(self.model, self.config or {}, self.previous_model)

    def is_manual(self, window: int | None) -> bool:
        """Return whether ``window`` is a manual size below the model's maximum."""
        if self.manual is None or self.manual == self.model.context_length:
            return False
        return window == self.manual

    @property
    def has_grown(self) -> bool:
        """Whether the model has got a larger window since the latest request."""
        if not self._can_change:
            return False
        later = self.windows.size(self.model.name)
        return later is not None and later > (self.size or 0)

    @property
    def _can_change(self) -> bool:
        return not self.is_fixed and not self.model.is_cloud and self.manual is None

    def fixed(self, window: int | None) -> "Allocation":
        """Return an allocation of the same model whose window is always ``window``."""
        decision = WindowDecision(window, "no_adjustment", window)
        return Allocation(self.windows, self.model, is_fixed=True, decision=decision)

    def fits(self, loaded: int, tokens: int) -> bool:
        """Return whether a loaded window suits a prompt of ``tokens`` tokens.

        The window 0 is unknown.
        """
        if loaded == 0:
            return True
        if self.manual is not None:
            return loaded == self.manual
        current = (self.config or {}).get("current_window") or 0
        own = capped(current, self.model.context_length)
        return loaded >= max(own, tokens * BUFFER)

    async def decide(self, required_tokens: int = 0) -> None:
        """Choose the window for the next request."""
        if self.is_fixed:
            return
        required = max(required_tokens, self.usage)
        if self.config is None:
            decision = await self.windows.decide_without_session(self.model, required)
        else:
            decision = await self.windows.decide(
                self.model,
                self.config,
                previous_model=self.previous_model,
                required_tokens=required,
                answer_tokens=self.answer_tokens,
            )
        if self.decision is not None and self.decision.window == decision.window:
            decision = replace(decision, reason=self.decision.reason)
        self.decision = decision

    def answer_limit(self, prompt: PromptSize, window: int, num_predict: object) -> int | None:
        """Return how many answer tokens fit into a window after the prompt.

        Return None if ``num_predict`` already limits the answer to at most that number.
        """
        free = self.estimate.room(
            prompt, window, counted=self.counted, answer_tokens=self.answer_tokens
        )
        room = max(free, MIN_ANSWER_TOKENS)
        if isinstance(num_predict, (int, float)) and 0 <= num_predict <= room:
            return None
        return room

    def grow(self, tokens: int) -> bool:
        """Enlarge the window after Ollama refused a prompt of ``tokens`` tokens.

        Return whether a prompt can be longer now than when it was refused. A window that the
        registry does not choose never grows.
        """
        if self.decision is None or self.size is None or not self._can_change:
            return False
        is_grown = self.windows.grow(self.model, int(tokens * _REFUSAL_MARGIN), self.size)
        reason = "usage_threshold" if is_grown else self.decision.reason
        self.decision = replace(
            self.windows.current(self.model, reason), loaded=self.decision.loaded
        )
        return is_grown

    def step_down(self) -> bool:
        """Halve the window, once in a row on a host, after Ollama ran out of memory.

        Return False if that is not possible. After the second failure in a row on a host, only
        later turns get a smaller window.
        """
        if self.is_fixed or self.model.is_cloud:
            return False
        manual = self.manual
        reason = "load_failed_step_down"
        if self._stepped_down is self.windows:
            if manual is None:
                self.windows.lower_ceiling(self.model, self.size)
            return False
        if manual is not None and manual >= 2 * MIN_WINDOW:
            self.config = {**(self.config or {}), "current_window": manual // 2}
            self.decision = WindowDecision(manual // 2, reason)
        elif manual is None and self.windows.step_down(self.model, self.size):
            self.decision = self.windows.current(self.model, reason)
        else:
            return False
        self._stepped_down = self.windows
        return True

    def record(self, last: Line, prompt: PromptSize, limit: int | None) -> tuple[int, bool, bool]:
        """Calibrate with Ollama's last line, and enlarge the model's window for later requests if
        it has cut the answer.

        ``limit`` is that of the answer, which only a known window sets, or None. Return the sum of
        the tokens of the prompt and the answer, whether the prompt was cut, and whether the answer
        was cut.
        """
        prompt_count = last.get("prompt_eval_count")
        answer_count = last.get("eval_count")
        answer_tokens = answer_count if isinstance(answer_count, int) else 0
        prompt_tokens = self.estimate.tokens(prompt)
        is_truncated = False
        used = answer_tokens
        if isinstance(prompt_count, int):
            prompt_tokens = max(prompt_count, prompt_tokens)
            is_truncated = self._is_truncated(prompt_count, prompt)
            if not is_truncated:
                self.estimate.observe(prompt, prompt_count)
            self._highest_count = max(self._highest_count, prompt_count)
            used += prompt_count
        # The done reason `length` is no proof, because some models report it for shorter answers
        # too.
        is_full = limit is not None and (answer_tokens >= limit or used >= (self.size or 0))
        is_cut = is_full and last.get("done_reason") == "length"
        if is_cut and self._can_change and self.size is not None:
            self.windows.grow(self.model, used, self.size)
            self.usage = max(self.usage, used)
        return prompt_tokens + answer_tokens, is_truncated, is_cut

    def _is_truncated(self, prompt_tokens: int, prompt: PromptSize) -> bool:
        """Return whether Ollama has truncated a prompt: its count fills the window, or is too small
        for a text that may exceed the window.
        """
        if self.model.is_cloud:  # Ollama does not truncate its prompts
            return False
        if self.size is not None and prompt_tokens >= self.size:
            return True
        if self.size is not None and self.estimate.most_tokens(prompt) <= self.size:
            return False  # old versions of Ollama do not count cached tokens
        characters = prompt.characters
        if characters <= _LONG_CHARS or prompt_tokens * _MAX_CHARS_PER_TOKEN >= characters:
            return False
        earlier = max(self._highest_count, self.usage)
        may_omit_cached = prompt_tokens * 1.1 < earlier  # a count far below an earlier one
        return not may_omit_cached
