"""The context window of one model during one turn."""

from mochi_server.chat.prompt_cache import PromptSize
from mochi_server.chat.prompt_fitting import ROOM_FOR_AN_ANSWER, Checkpoint
from mochi_server.errors import ContextOverflow, OllamaError
from mochi_server.events import ChatEvent, TurnWarning
from mochi_server.ollama.errors import is_out_of_memory, refused_tokens
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession, last_answer, previous_model, usage_tokens
from mochi_server.sessions.store import SessionStore
from mochi_server.util.clock import now

_LONG_CHARS = 4000
_MOST_CHARS_PER_TOKEN = 8
"""No prose has more characters per token in a text of at least ``_LONG_CHARS`` characters."""


class TurnWindow:
    """Applies the decisions of the registry to the requests of a turn."""

    def __init__(self, windows: WindowRegistry, model: ModelInfo, session: ChatSession, history: History) -> None:
        self.decision: WindowDecision | None = None
        """The decision for the latest request."""
        self.is_loaded = False
        """Whether Ollama had loaded the model with this window before the request."""
        self._windows = windows
        self._model = model
        self._session = session
        self._previous_model = previous_model(history)
        self._counted = 0
        """Tokens of the conversation at the latest count; 0 if messages have been left out since."""
        if Checkpoint.from_dict(session.metadata.compaction) is None and self._previous_model == session.model:
            self._counted = usage_tokens(last_answer(history)) or 0
        self._stepped_down = False

    @property
    def size(self) -> int | None:
        """The window in tokens; None sends no ``num_ctx``."""
        return self.decision.window if self.decision else None

    async def decide(self, prompt: PromptSize) -> None:
        """Choose the window for a prompt."""
        decision = await self._windows.decide(
            self._model,
            self._session.metadata.context_window_config,
            self._session.session_id,
            previous_model=self._previous_model,
            required_tokens=max(self.estimate(prompt), self._counted),
        )
        # Keep the reason of the decision that changed the window: later ones report `no_adjustment`.
        if self.decision is None or decision.window != self.decision.window:
            self.decision = decision
        self.is_loaded = decision.is_loaded

    def estimate(self, prompt: PromptSize) -> int:
        """Return the tokens of a prompt, roughly."""
        return self._windows.estimate(self._model, prompt.characters, prompt.images)

    def answer_limit(self, prompt: PromptSize, num_predict: object) -> int | None:
        """Return how many tokens the window leaves for an answer; None when ``num_predict`` limits it more."""
        if self.size is None:
            return None
        room = max(self.size - self.estimate(prompt), ROOM_FOR_AN_ANSWER)
        is_limited = not isinstance(num_predict, int) or num_predict < 0 or num_predict > room
        return room if is_limited else None

    def record_usage(self, last: Line, prompt: PromptSize, limit: int | None) -> list[ChatEvent]:
        """Take up the token counts of an answer; return warnings if Ollama cut the prompt or the answer.

        ``limit`` is the result of ``answer_limit``.
        """
        counted, answered = last.get("prompt_eval_count"), last.get("eval_count")
        events: list[ChatEvent] = []
        if isinstance(counted, int) and self._is_truncated(counted, prompt.characters):
            events.append(
                TurnWarning("PROMPT_TRUNCATED", "Ollama has cut the prompt: this version ignores `truncate`.")
            )
        elif isinstance(counted, int):
            self._windows.observe(self._model, prompt.characters, counted, prompt.images)
        if last.get("done_reason") == "length" and limit is not None and self._is_full(counted, answered, limit):
            events.append(TurnWarning("ANSWER_CUT", "The answer has reached the end of the context window."))
            self._windows.grow(self._model, (counted or 0) + (answered or 0) + 1)
        return events

    def used_tokens(self, last: Line, prompt: PromptSize) -> int:
        """Return the tokens of a prompt and its answer, of which ``last`` is the last line."""
        counted, answered = last.get("prompt_eval_count"), last.get("eval_count")
        prompt_tokens = max(counted, self.estimate(prompt)) if isinstance(counted, int) else self.estimate(prompt)
        return prompt_tokens + (answered if isinstance(answered, int) else 0)

    def adapt(self, refusal: OllamaError, prompt: PromptSize) -> bool:
        """Change the window after a refusal; return False when only a shorter prompt can help.

        Raises:
            OllamaError: No window helps.
            ContextOverflow: The server does not set ``num_ctx``.
        """
        if is_out_of_memory(refusal):
            if self._stepped_down:
                self._windows.undo_step_down(self._model)
            if self._stepped_down or not self._windows.step_down(self._model):
                raise refusal
            self._stepped_down = True
            self.decision = self._windows.current(self._model, "load_failed_step_down")
            return True
        tokens = self.observe_refusal(refusal, prompt)
        if self.decision is None or self.size is None:
            raise ContextOverflow(None, tokens)
        is_grown = self._windows.grow_after_refusal(self._model, tokens)
        self.decision = self._windows.current(self._model, "usage_threshold" if is_grown else self.decision.reason)
        return is_grown

    def observe_refusal(self, refusal: OllamaError, prompt: PromptSize) -> int:
        """Calibrate the estimate with a prompt that was too long; return its tokens."""
        tokens = refused_tokens(refusal) or self.estimate(prompt) * 2
        self._windows.observe(self._model, prompt.characters, tokens, prompt.images)
        return tokens

    async def save(self, store: SessionStore) -> None:
        """Store the window with the session, unless a client has set another one during the turn."""
        before = self._session.metadata.context_window_config
        after = before if self.decision is None else self._windows.adjusted(before, self.decision, now())
        if after == before:
            return
        stored = await store.load(self._session.session_id)
        if stored.metadata.context_window_config == before:
            await store.patch(stored.session_id, {"context_window_config": after})

    def _is_full(self, counted: object, answered: object, limit: int) -> bool:
        """Return whether an answer has used up its room; some models end earlier with the same reason."""
        if not isinstance(answered, int):
            return False
        return answered >= limit or (isinstance(counted, int) and counted + answered >= (self.size or 0))

    def _is_truncated(self, counted: int, characters: int) -> bool:
        """Return whether a count can only be that of a cut prompt.

        It fills the window, or is too small for a text so long. Counts that fall from turn to turn are no sign: old
        versions of Ollama leave out what is in their cache.
        """
        if self.size is not None and counted >= self.size:
            return True
        is_too_small = characters > _LONG_CHARS and counted * _MOST_CHARS_PER_TOKEN < characters
        return is_too_small and counted * 1.1 >= self._counted
