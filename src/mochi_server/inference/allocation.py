"""Context window of one model during the requests of one turn, comparison or summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mochi_server.inference.estimate import PromptSize, TokenEstimate
from mochi_server.inference.prompt import Answer, FixedPrompt
from mochi_server.inference.windows import WindowDecision, WindowRegistry, half, manual_window
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ModelInfo

_REFUSAL_MARGIN = 1.5
"""Minimum size of the window after Ollama refused a prompt, as a multiple of the tokens in that prompt."""

_LONG_CHARS = 4000
_MAX_CHARS_PER_TOKEN = 8
"""Highest plausible average of characters per token, for texts longer than ``_LONG_CHARS``."""


@dataclass(eq=False)
class Allocation:
    """Context window that the registry chooses for successive requests to a model."""

    windows: WindowRegistry
    model: ModelInfo
    config: Mapping[str, Any] | None = None
    """The session's ``context_window_config``, or None for requests without a session."""
    previous_model: str | None = None
    usage: int = 0
    """Ollama's latest token count of the conversation, or 0 if that count no longer applies."""
    counted: int = 0
    """The part of ``usage`` that the next prompt contains."""
    is_fixed: bool = False
    """Whether the requests always use the window of ``decision``."""
    decision: WindowDecision | None = None
    differs: bool = False
    """Whether Ollama reloads the model because a session has a manual window that other sessions do not have."""
    is_loaded: bool = False
    """Whether the model was loaded with this window before the request."""
    _highest_count: int = field(init=False)
    """Highest token count of Ollama for the conversation and for the prompts of this allocation."""
    _has_stepped_down: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._highest_count = self.usage

    @property
    def size(self) -> int | None:
        """Window in tokens, or None if the requests do not set ``num_ctx``."""
        return self.decision.window if self.decision else None

    @property
    def estimate(self) -> TokenEstimate:
        return self.windows.estimate(self.model.name)

    @property
    def context_length(self) -> int | None:
        """Context length of the model in tokens, or None if it is unknown or the server does not choose windows."""
        return self.model.context_length if self.windows.dynamic else None

    @property
    def manual(self) -> int | None:
        """Manual window of the session, or None."""
        return manual_window(self.model, self.config or {})

    def fixed(self, window: int | None) -> "Allocation":
        """Return an allocation of the same model whose window is always ``window``."""
        decision = WindowDecision(window, "no_adjustment", window)
        return Allocation(self.windows, self.model, is_fixed=True, decision=decision, is_loaded=self.is_loaded)

    async def decide(self, required_tokens: int = 0) -> WindowDecision | None:
        """Choose the window for a prompt of ``required_tokens`` tokens."""
        if self.is_fixed:
            return self.decision
        if self.config is None:
            decision = await self.windows.decide_without_session(self.model, required_tokens)
        else:
            required = max(required_tokens, self.usage)
            decision = await self.windows.decide(
                self.model, self.config, previous_model=self.previous_model, required_tokens=required
            )
        # Keep the decision that changed the window, because later decisions have the reason `no_adjustment`.
        if self.decision is None or decision.window != self.decision.window:
            self.decision = decision
        self.is_loaded, self.differs = decision.is_loaded, decision.differs
        return decision

    def answer_limit(self, prompt: PromptSize, num_predict: object) -> int | None:
        """Return the maximum number of answer tokens that fit into the window after the prompt.

        Return None if ``num_predict`` does not exceed this maximum, or if the requests do not set ``num_ctx``.
        """
        if self.size is None:
            return None
        return self.estimate.answer_limit(prompt, self.size, num_predict, counted=self.counted)

    def grow(self, tokens: int) -> bool:
        """Enlarge the window after Ollama refused a prompt of ``tokens`` tokens. Return whether it is larger now."""
        if self.is_fixed or self.decision is None or self.size is None or self.manual is not None:
            return False
        is_grown = self.windows.grow(self.model, int(tokens * _REFUSAL_MARGIN), self.size)
        self.decision = self.windows.current(self.model, "usage_threshold" if is_grown else self.decision.reason)
        self.is_loaded = self.is_loaded and not is_grown
        return is_grown

    def step_down(self) -> bool:
        """Halve the window, once, after Ollama ran out of memory. Return False if not possible.

        A manual window is smaller for the requests of this allocation only.
        """
        if self.is_fixed or self._has_stepped_down:
            if self.manual is None and not self.is_fixed:
                self.windows.undo_step_down(self.model)
            return False
        reason = "load_failed_step_down"
        if self.manual is not None:
            if (halved := half(self.manual)) is None:
                return False
            self.config = {**(self.config or {}), "current_window": halved}
            self.decision = WindowDecision(halved, reason)
        elif self.windows.step_down(self.model, self.size):
            self.decision = self.windows.current(self.model, reason)
        else:
            return False
        self._has_stepped_down, self.is_loaded = True, False
        return True

    def record(self, last: Line, prompt: FixedPrompt, limit: int | None) -> Answer:
        """Calibrate the estimate with the token counts in Ollama's last line. If the answer was cut, grow the window.

        ``limit`` is the maximum number of answer tokens that the window allowed, or None.
        """
        counted, answered = last.get("prompt_eval_count"), last.get("eval_count")
        used = max(counted if isinstance(counted, int) else 0, self.estimate.tokens(prompt.size))
        used += answered if isinstance(answered, int) else 0
        is_truncated = is_cut = False
        if isinstance(counted, int):
            is_truncated = self._is_truncated(counted, prompt.size.characters)
            if not is_truncated:
                self.estimate.observe(prompt.size, counted)
            self._highest_count = max(self._highest_count, counted)
        if last.get("done_reason") == "length" and limit is not None and self._is_full(counted, answered, limit):
            is_cut = True
            if self.manual is None and not self.is_fixed:
                self.windows.grow(self.model, (counted or 0) + (answered or 0) + 1, self.size)
        return Answer(prompt, used, is_truncated, is_cut)

    def _is_full(self, prompt: object, answer: object, limit: int) -> bool:
        """Return whether an answer reached its limit or filled the window.

        The done reason `length` is no proof, because some models report `length` for shorter answers too.
        """
        if not isinstance(answer, int):
            return False
        return answer >= limit or (isinstance(prompt, int) and prompt + answer >= (self.size or 0))

    def _is_truncated(self, prompt_tokens: int, characters: int) -> bool:
        """Return whether a token count proves that Ollama truncated the prompt.

        The proof is a count that fills the window, or a count that is too small for the text. A count below an
        earlier one proves nothing, because old versions of Ollama do not count cached tokens.
        """
        if self.size is not None and prompt_tokens >= self.size:
            return True
        is_too_small = characters > _LONG_CHARS and prompt_tokens * _MAX_CHARS_PER_TOKEN < characters
        return is_too_small and prompt_tokens * 1.1 >= self._highest_count
