"""Context window of one model during one turn."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.chat.prompt_cache import PromptSize
from mochi_server.chat.prompt_fitting import Checkpoint
from mochi_server.errors import ContextOverflow, MochiError, OllamaError
from mochi_server.events import ChatEvent, TurnWarning
from mochi_server.ollama.errors import is_out_of_memory
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession, SessionMetadata, last_answer, previous_model, usage_tokens
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.util.clock import now

_LONG_CHARS = 4000
_MAX_CHARS_PER_TOKEN = 8
"""Highest plausible average of characters per token, for texts longer than ``_LONG_CHARS``."""

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class TurnWindow:
    """Context window that the window registry has chosen for the requests of a turn."""

    windows: WindowRegistry
    model: ModelInfo
    session: ChatSession
    history: History
    decision: WindowDecision | None = None
    is_loaded: bool = False
    """Whether the model was loaded with this window before the request."""

    def __post_init__(self) -> None:
        self._previous_model = previous_model(self.history)
        self._last_usage = 0
        """Ollama's latest token count of the conversation, or 0 if that count no longer applies."""
        self.counted = 0
        """The part of the latest count that the next prompt contains: thinking is not sent again."""
        has_checkpoint = Checkpoint.from_dict(self.session.metadata.compaction) is not None
        if not has_checkpoint and self._previous_model == self.session.model:
            answer = last_answer(self.history)
            self._last_usage = usage_tokens(answer) or 0
            if answer is not None:
                self.counted = (answer.get("prompt_eval_count") or 0) if answer.get("thinking") else self._last_usage
        self._highest_count = self._last_usage
        """Highest token count of Ollama for the conversation and for the prompts of this turn."""
        self._stepped_down = False

    @property
    def size(self) -> int | None:
        """Window in tokens, or None if the requests do not set ``num_ctx``."""
        return self.decision.window if self.decision else None

    @property
    def context_length(self) -> int | None:
        """Context length of the model in tokens, or None if it is unknown or the server does not choose windows."""
        return self.model.context_length if self.windows.dynamic else None

    async def decide(self, prompt: PromptSize) -> None:
        decision = await self.windows.decide(
            self.model,
            self.session.metadata.context_window_config,
            self.session.session_id,
            previous_model=self._previous_model,
            required_tokens=max(self.estimate(prompt), self._last_usage),
        )
        # Keep the decision that changed the window, because later decisions have the reason `no_adjustment`.
        if self.decision is None or decision.window != self.decision.window:
            self.decision = decision
        self.is_loaded = decision.is_loaded

    def estimate(self, prompt: PromptSize) -> int:
        return self.windows.estimate(self.model, prompt.characters, prompt.images)

    def room(self, prompt: PromptSize, window: int) -> int:
        """Return a cautious estimate of how many tokens a prompt leaves free in ``window``."""
        return self.windows.room(self.model, window, prompt.characters, prompt.images)

    def answer_limit(self, prompt: PromptSize, num_predict: object, *, counted: int = 0) -> int | None:
        """Return the maximum number of answer tokens that fit into the window after the prompt.

        Return None if ``num_predict`` does not exceed this maximum, or if the requests do not set ``num_ctx``.
        """
        if self.size is None:
            return None
        return self.windows.answer_limit(
            self.model, self.size, num_predict, prompt.characters, prompt.images, counted=counted
        )

    def record_usage(self, last: Line, prompt: PromptSize, limit: int | None) -> list[ChatEvent]:
        """Record the token counts in Ollama's last line. Return a warning event for a truncated prompt or answer."""
        prompt_tokens, tokens = last.get("prompt_eval_count"), last.get("eval_count")
        events: list[ChatEvent] = []
        if isinstance(prompt_tokens, int) and self._is_truncated(prompt_tokens, prompt.characters):
            text = "Ollama truncated the prompt, because its version ignores `truncate`. Update Ollama."
            events.append(TurnWarning("PROMPT_TRUNCATED", text))
        elif isinstance(prompt_tokens, int):
            self.windows.observe(self.model, prompt.characters, prompt_tokens, prompt.images)
        if isinstance(prompt_tokens, int):
            self._highest_count = max(self._highest_count, prompt_tokens)
        if last.get("done_reason") == "length" and limit is not None and self._is_full(prompt_tokens, tokens, limit):
            events.append(TurnWarning("ANSWER_CUT", "The answer was cut at the end of the context window."))
            self.windows.grow(self.model, (prompt_tokens or 0) + (tokens or 0) + 1, self.size)
        return events

    def used_tokens(self, last: Line, prompt: PromptSize) -> int:
        """Return how many tokens a prompt and its answer use. ``last`` is the last line of Ollama's response."""
        counted, answered = last.get("prompt_eval_count"), last.get("eval_count")
        prompt_tokens = max(counted, self.estimate(prompt)) if isinstance(counted, int) else self.estimate(prompt)
        return prompt_tokens + (answered if isinstance(answered, int) else 0)

    def adapt(self, refusal: OllamaError, prompt: PromptSize) -> bool:
        """Change the window after Ollama has refused a prompt. Return False if only a shorter prompt can succeed.

        Raises:
            OllamaError: The model does not fit into memory even with a smaller window.
            ContextOverflow: The prompt is too long, and the server does not set ``num_ctx``.
        """
        if is_out_of_memory(refusal):
            if self._stepped_down:
                self.windows.undo_step_down(self.model)
            if self._stepped_down or not self.windows.step_down(self.model, self.size):
                raise refusal
            self._stepped_down = True
            self.decision = self.windows.current(self.model, "load_failed_step_down")
            self.is_loaded = False
            return True
        tokens = self.observe_refusal(refusal, prompt)
        if self.decision is None or self.size is None:
            raise ContextOverflow(None, tokens)
        is_grown = self.windows.grow_after_refusal(self.model, tokens, self.size)
        self.decision = self.windows.current(self.model, "usage_threshold" if is_grown else self.decision.reason)
        self.is_loaded = self.is_loaded and not is_grown
        return is_grown

    def observe_refusal(self, refusal: OllamaError, prompt: PromptSize) -> int:
        """Calibrate the token estimate with a refused prompt. Return the prompt's number of tokens."""
        return self.windows.observe_refusal(self.model, refusal, prompt.characters, prompt.images)

    def trim_end(self, history: Sequence[Message]) -> int:
        """Return the number of messages at the start of the history that earlier requests have trimmed.

        The number is 0 if the earlier requests had a window of a different size. For a new window, Ollama reloads the
        model, so the prompt need not begin like the earlier prompts.
        """
        window, last = self.windows.trims.get(self.session.session_id, (None, None))
        if last is None or window != self.size:
            return 0
        return next((i + 1 for i, message in enumerate(history) if message["message_id"] == last), 0)

    def record_trim(self, history: Sequence[Message], end: int) -> None:
        """Record that a prompt trims the first ``end`` messages.

        Later prompts also trim these messages, so that all prompts of the session begin with the same text.
        """
        if end and self.size is not None:
            self.windows.record_trim(self.session.session_id, self.size, history[end - 1]["message_id"])

    async def save(self, store: SessionStore) -> None:
        """Store the window with the session, unless a client has changed it during the turn. Errors are logged."""
        before = self.session.metadata.context_window_config
        after = before if self.decision is None else self.windows.adjusted(before, self.decision, now())
        if after == before:
            return

        def unless_changed(stored: SessionMetadata) -> dict[str, Any]:
            return {"context_window_config": after} if stored.context_window_config == before else {}

        try:
            await store.patch(self.session.session_id, unless_changed)
        except MochiError as error:  # the turn does not fail, because its answer is stored
            logger.warning("Window not stored session_id=%s: %s", self.session.session_id, error.message)

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
