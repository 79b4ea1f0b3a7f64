"""Context windows of models, and estimates of the tokens of prompts.

Sizes of windows are in tokens.

Sessions share a model's window, because Ollama reloads a model to change its window. A window grows
when prompts need more room. It shrinks only when Ollama runs out of memory, or when a new session
starts while the model is not loaded. A manual window applies only to its own session. The first
window of a model depends on the windows that Ollama has chosen for models that other programs
loaded. The window of a cloud model is its context length, which requests do not contain.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from mochi_server.constants import DEFAULT_WINDOW, MIN_ANSWER_TOKENS, SAFE_WINDOW_RATIO
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ChatMessage, ModelInfo
from mochi_server.sessions.types import default_window_config

_TOKENS_PER_CHAR = 1 / 3.5  # of prose, slightly too high, until the model's ratio is known
_MIN_CALIBRATION_CHARS = 400  # in shorter prompts, the chat template distorts the ratio
_MIN_TOKENS_PER_CHAR = 1 / 8  # old versions of Ollama do not count cached tokens
_MAX_TOKENS_PER_CHAR = 2
_MAX_ESTIMATE_ERROR = 0.05  # share of its estimate by which a prompt may exceed the estimate
_TEMPLATE_TOKENS = 16  # reserve for a chat template that is longer than estimated
_TEMPLATE_CHARS = 12  # added to each message by the model's chat template
IMAGE_TOKENS = 768  # as in Ollama; models use from 256 to several thousand tokens for an image
_GROWTH_FACTOR = 2  # a window doubles, several times if necessary
_BUFFER = 1.5  # smallest window for a conversation, as a multiple of its tokens
_MIN_WINDOW, _DEFAULT_LIMIT = 512, 131_072
_MAX_ADJUSTMENTS = 10
# Size of the window after Ollama refused a prompt, as a multiple of the prompt.
_REFUSAL_MARGIN = 1.5
_LONG_CHARS = 4000
_MAX_CHARS_PER_TOKEN = 8  # highest plausible average in texts longer than `_LONG_CHARS`


@dataclass(frozen=True, slots=True)
class PromptSize:
    """Size of a prompt in characters and images. The number of tokens depends on the model."""

    characters: int = 0
    images: int = 0

    def __add__(self, other: "PromptSize") -> "PromptSize":
        return PromptSize(self.characters + other.characters, self.images + other.images)

    @classmethod
    def of(
        cls, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()
    ) -> "PromptSize":
        """Return the size of messages and tool definitions.

        Tool calls and definitions are measured as JSON text.
        """
        characters, images = len(orjson.dumps(tools)) if tools else 0, 0
        for message in messages:
            images += len(message.get("images") or ())
            characters += (
                len(message.get("content") or "")
                + len(message.get("thinking") or "")
                + _TEMPLATE_CHARS
            )
            if calls := message.get("tool_calls"):
                characters += len(orjson.dumps(calls))
        return cls(characters, images)


@dataclass(eq=False, slots=True)
class TokenEstimate:
    """Estimate for the prompts of one model, calibrated with Ollama's token counts."""

    tokens_per_char: float | None = None

    def tokens(self, size: PromptSize) -> int:
        text = int(size.characters * (self.tokens_per_char or _TOKENS_PER_CHAR))
        return text + IMAGE_TOKENS * size.images + 1

    def room(self, size: PromptSize, window: int, *, counted: int = 0) -> int:
        """Return a cautious estimate of the tokens that a prompt leaves free; ``counted`` is
        Ollama's latest count.
        """
        tokens = self.tokens(size)
        if self.tokens_per_char is None:
            tokens = max(
                tokens, counted, min(size.characters + IMAGE_TOKENS * size.images, window * 3 // 4)
            )
        return window - int(tokens * (1 + _MAX_ESTIMATE_ERROR)) - _TEMPLATE_TOKENS

    def observe(self, size: PromptSize, tokens: int) -> None:
        """Calibrate with Ollama's token count.

        Ignore short prompts, images and implausibly low counts.
        """
        is_plausible = tokens >= size.characters * _MIN_TOKENS_PER_CHAR
        if is_plausible and size.characters >= _MIN_CALIBRATION_CHARS and not size.images:
            self.tokens_per_char = min(tokens / size.characters, _MAX_TOKENS_PER_CHAR)


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """Context window for a request. If ``window`` is None, send no ``num_ctx``."""

    window: int | None
    reason: str
    # Window of the loaded model, or None if the model is not loaded or its state is unknown.
    loaded: int | None = None
    differs: bool = False  # whether Ollama reloads the model because of a manual window

    @property
    def is_loaded(self) -> bool:
        """Whether Ollama can use the loaded model without a reload."""
        return self.loaded is not None and self.window in (None, self.loaded)


@dataclass
class _ModelWindow:
    window: int | None = None
    # Upper limit of the window after Ollama has run out of memory, or None.
    ceiling: int | None = None
    estimate: TokenEstimate = field(default_factory=TokenEstimate)
    manual: set[int] = field(
        default_factory=set
    )  # manual windows, which other sessions do not adopt
    requested: set[int | None] = field(
        default_factory=set
    )  # windows with which this server may have loaded the model
    by_ollama: int = 0  # window with which another program has loaded the model, or 0


async def _unknown() -> None:
    return None


@dataclass(eq=False)
class WindowRegistry:
    """Registry of the context window of each model.

    If ``dynamic`` is false, only users set windows.
    """

    loaded: Callable[[], Awaitable[Mapping[str, int] | None]] = _unknown
    """Function that returns the windows of the models in memory, by qualified model name, or None
    if unknown.
    """
    dynamic: bool = True
    on_adjusted: Callable[[str], object] = lambda _: None  # receives the reason of a change
    # First window of a model that a user has set, in place of the default.
    initial: int | None = None
    size_of: Callable[[str], float | None] = lambda _: (
        None
    )  # returns the size of an installed model in MiB
    _entries: dict[str, _ModelWindow] = field(default_factory=dict, init=False)

    async def decide(
        self,
        model: ModelInfo,
        config: Mapping[str, Any],
        *,
        previous_model: str | None,
        required_tokens: int = 0,
    ) -> WindowDecision:
        """Choose the window for a prompt in a session with the ``context_window_config``
        ``config``.
        """
        if model.is_cloud:
            return _cloud_window(model, config, previous_model)
        self.record_request(
            model.name, config.get("current_window")
        )  # that of an earlier process of this server
        windows, entry = await self._loaded_windows(), self._entry(model.name)
        loaded = None if windows is None else windows.get(qualified_name(model.name))
        if (manual := manual_window(model, config)) is not None:
            if manual != entry.window:
                entry.manual.add(manual)
            return WindowDecision(
                manual, "manual_override", loaded, differs=bool(loaded) and loaded != manual
            )
        if not self.dynamic:
            return WindowDecision(None, "no_adjustment", loaded)
        if previous_model is None and windows is not None and loaded is None:
            # Ollama must load the model anyway, so a new session need not keep a larger window
            entry.window = None
        window = entry.window or self._initial_window(entry, model)
        is_same = previous_model is not None and qualified_name(previous_model) == qualified_name(
            model.name
        )
        if is_same:
            # After a restart, or after a new session has reset it, it may be smaller than the
            # window of this session.
            own = _cap(config.get("current_window") or 0, model.context_length)
            window = max(window, _cap(own, entry.ceiling))
        reason, is_manual = None, loaded in entry.manual
        if loaded is not None and loaded > window and not is_manual:
            window, reason = loaded, "adopted_loaded"
        needed = _BUFFER * required_tokens
        if needed > window and (larger := self._window_step(entry, model, needed)) > window:
            window, reason = larger, "usage_threshold"
        entry.window = window
        if reason is None and previous_model is None:
            reason = (
                "adopted_loaded"
                if loaded == window > (self.initial or DEFAULT_WINDOW)
                else "initial_setup"
            )
        reason = reason or (_reason(config, window, loaded) if is_same else "model_change")
        return WindowDecision(window, reason, loaded, differs=is_manual and loaded != window)

    async def decide_without_session(
        self, model: ModelInfo, required_tokens: int
    ) -> WindowDecision:
        """Choose the window for a request without a session: the loaded one if it is large
        enough.
        """
        if model.is_cloud:
            return _cloud_window(model, {}, model.name)
        loaded = (await self._loaded_windows() or {}).get(qualified_name(model.name))
        if self.dynamic and (loaded or 0) < required_tokens * _BUFFER:
            return await self.decide(
                model, {}, previous_model=model.name, required_tokens=required_tokens
            )
        return WindowDecision(loaded if self.dynamic else None, "no_adjustment", loaded)

    def grow(self, model: ModelInfo, required_tokens: int, refused_window: int) -> bool:
        """Enlarge the window so that ``required_tokens`` fit.

        Return whether it exceeds the refused window.
        """
        entry = self._entry(model.name)
        window = entry.window or self._initial_window(entry, model)
        exceeded = min(refused_window, window)
        entry.window = max(
            window, self._window_step(entry, model, max(required_tokens, exceeded + 1))
        )
        return entry.window > exceeded

    def step_down(self, model: ModelInfo, failed: int | None) -> bool:
        """Halve the window ``failed``, unless another turn has made it smaller.

        Return False if not possible.

        If the smallest window fails, a smaller one does not help, and the limit of earlier failures
        ends.
        """
        entry = self._entry(model.name)
        if entry.window is None or entry.window < 2 * _MIN_WINDOW:
            entry.window = entry.ceiling = None
            return False
        if entry.window >= (failed or 0):
            entry.ceiling = entry.window = entry.window // 2
        return True

    def undo_step_down(self, model: ModelInfo) -> None:
        """Return to the initial window.

        The halved window stays the upper limit of later requests.
        """
        self._entry(model.name).window = None

    def current(self, model: ModelInfo, reason: str) -> WindowDecision:
        return WindowDecision(
            self.size(model.name) or self._initial_window(self._entry(model.name), model), reason
        )

    def size(self, model: str) -> int | None:
        """Return the window of a model in tokens, or None if no window has been chosen yet."""
        return self._entry(model).window

    def estimate(self, model: str) -> TokenEstimate:
        return self._entry(model).estimate

    def initial_config(self, model: ModelInfo) -> dict[str, Any]:
        """Return the ``context_window_config`` of a new session."""
        if model.is_cloud:
            window = model.context_length
        else:
            window = self._initial_window(self._entry(model.name), model) if self.dynamic else None
        return default_window_config() | {
            "dynamic_enabled": self.dynamic,
            "current_window": window,
            "last_adjustment": "initial_setup",
        }

    def adjusted(
        self,
        config: Mapping[str, Any],
        decision: WindowDecision,
        timestamp: str,
        *,
        by_user: bool = False,
    ) -> dict[str, Any]:
        """Return a copy of ``config`` with the window of ``decision`` and an entry for a change of
        the window.
        """
        result = {**config, "dynamic_enabled": self.dynamic, "current_window": decision.window}
        if decision.reason != "no_adjustment":
            result["last_adjustment"] = decision.reason
        result["manual_override"] = decision.reason == "manual_override"
        has_changed = config["current_window"] not in (None, decision.window)
        if has_changed:
            self.on_adjusted(decision.reason)
        if has_changed or by_user:
            entry = {"window": decision.window, "reason": decision.reason, "timestamp": timestamp}
            result["adjustment_history"] = [*config["adjustment_history"], entry][
                -_MAX_ADJUSTMENTS:
            ]
        return result

    def _entry(self, model: str) -> _ModelWindow:
        name = qualified_name(model)
        if (entry := self._entries.get(name)) is None:
            entry = self._entries[name] = _ModelWindow()
        return entry

    def record_request(self, model: str, window: int | None) -> None:
        """Record the window of a request, because Ollama may load ``model`` with it."""
        self._entry(model).requested.add(window)

    async def _loaded_windows(self) -> Mapping[str, int] | None:
        """Return the windows of the loaded models, and record the windows that no request of this
        server has set.
        """
        windows = await self.loaded()
        for name, window in (windows or {}).items():
            if window not in (entry := self._entry(name)).requested:
                entry.by_ollama = window
        return windows

    def _initial_window(self, entry: _ModelWindow, model: ModelInfo) -> int:
        """Return the default window or the Modelfile's ``num_ctx``, whichever is larger."""
        default = self.initial or max(DEFAULT_WINDOW, self._window_by_ollama(model))
        window = max(
            min(_max_window(model), default), _cap(model.num_ctx or 0, model.context_length)
        )
        return _cap(window, entry.ceiling)

    def _window_by_ollama(self, model: ModelInfo) -> int:
        """Return the largest window that Ollama has chosen for models of at least this
        size, or 0.
        """
        entries = [
            (entry, self.size_of(name)) for name, entry in self._entries.items() if entry.by_ollama
        ]
        return max(
            (entry.by_ollama for entry, size in entries if size and size >= model.size_mb),
            default=0,
        )

    def _window_step(self, entry: _ModelWindow, model: ModelInfo, required_tokens: float) -> int:
        """Return the initial window, doubled until ``required_tokens`` fit, up to the largest
        window.
        """
        largest = _cap(_max_window(model), entry.ceiling)
        window = self._initial_window(entry, model)
        while window < required_tokens and window < largest:
            window = min(window * _GROWTH_FACTOR, largest)
        return window


@dataclass(eq=False)
class Allocation:
    """Context window that the registry chooses for successive requests of one turn, comparison or
    summary.
    """

    windows: WindowRegistry
    model: ModelInfo
    config: Mapping[str, Any] | None = None  # the session's `context_window_config`, if any
    previous_model: str | None = None
    # Ollama's latest token count of the conversation, or 0 if that count no longer applies.
    usage: int = 0
    counted: int = 0  # the part of `usage` that the next prompt contains
    is_fixed: bool = False  # whether the requests always use the window of `decision`
    # For the latest request, with the reason of the latest change.
    decision: WindowDecision | None = None
    _has_stepped_down: bool = field(default=False, init=False)
    _highest_count: int = field(default=0, init=False)  # highest token count of Ollama

    @property
    def size(self) -> int | None:
        """Window in tokens, or None if it is unknown."""
        return self.decision.window if self.decision else None

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
        return manual_window(self.model, self.config or {})

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
        if self.manual is not None or not loaded:
            return loaded in (0, self.manual)
        own = _cap((self.config or {}).get("current_window") or 0, self.model.context_length)
        return loaded >= max(own, tokens * _BUFFER)

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
            )
        if self.decision is not None and self.decision.window == decision.window:
            decision = replace(decision, reason=self.decision.reason)
        self.decision = decision

    def answer_limit(self, prompt: PromptSize, window: int, num_predict: object) -> int | None:
        """Return how many answer tokens fit into a window after the prompt, or None if
        ``num_predict`` is not more.
        """
        room = max(self.estimate.room(prompt, window, counted=self.counted), MIN_ANSWER_TOKENS)
        is_limited = not isinstance(num_predict, int) or num_predict < 0 or num_predict > room
        return room if is_limited else None

    def grow(self, tokens: int) -> bool:
        """Enlarge the window after Ollama refused a prompt of ``tokens`` tokens.

        Return whether it is larger now.
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
        """Halve the window, once, after Ollama ran out of memory. Return False if not possible."""
        manual, reason = self.manual, "load_failed_step_down"
        if self._has_stepped_down and self._can_change:
            self.windows.undo_step_down(self.model)
        if self._has_stepped_down or self.is_fixed or self.model.is_cloud:
            return False
        if manual is not None and manual >= 2 * _MIN_WINDOW:
            self.config = {**(self.config or {}), "current_window": manual // 2}
            self.decision = WindowDecision(manual // 2, reason)
        elif manual is None and self.windows.step_down(self.model, self.size):
            self.decision = self.windows.current(self.model, reason)
        else:
            return False
        self._has_stepped_down = True
        return True

    def record(self, last: Line, prompt: PromptSize, limit: int | None) -> tuple[int, bool, bool]:
        """Calibrate with Ollama's last line.

        Return the tokens, and whether the prompt and the answer were cut.
        """
        counted, answered = last.get("prompt_eval_count"), last.get("eval_count")
        answer_tokens = answered if isinstance(answered, int) else 0
        prompt_tokens, is_truncated = self.estimate.tokens(prompt), False
        if isinstance(counted, int):
            prompt_tokens = max(counted, prompt_tokens)
            is_truncated = self._is_truncated(counted, prompt.characters)
            if not is_truncated:
                self.estimate.observe(prompt, counted)
            self._highest_count = max(self._highest_count, counted)
        used = (counted if isinstance(counted, int) else 0) + answer_tokens
        # The done reason `length` is no proof, because some models report it for shorter answers
        # too.
        is_full = limit is not None and (answer_tokens >= limit or used >= (self.size or 0))
        is_cut = is_full and last.get("done_reason") == "length"
        if is_cut and self._can_change and self.size is not None:
            self.windows.grow(self.model, used + 1, self.size)
        return prompt_tokens + answer_tokens, is_truncated, is_cut

    def _is_truncated(self, prompt_tokens: int, characters: int) -> bool:
        """Return whether a count fills the window, or is too small for the text and not for cached
        tokens.
        """
        if self.model.is_cloud:  # Ollama does not truncate its prompts
            return False
        if self.size is not None and prompt_tokens >= self.size:
            return True
        is_too_small = (
            characters > _LONG_CHARS and prompt_tokens * _MAX_CHARS_PER_TOKEN < characters
        )
        return is_too_small and prompt_tokens * 1.1 >= max(self._highest_count, self.usage)


def manual_window(model: ModelInfo, config: Mapping[str, Any]) -> int | None:
    """Return the manual window in a session's ``config``, capped at the model's maximum, or
    None.
    """
    window = config.get("current_window") if config.get("manual_override") else None
    return None if window is None else _cap(window, model.context_length)


def _cloud_window(
    model: ModelInfo, config: Mapping[str, Any], previous_model: str | None
) -> WindowDecision:
    """Return the context length of a cloud model, or the manual window.

    Ollama need not load the model.
    """
    manual = manual_window(model, config)
    window = model.context_length if manual is None else manual
    is_change = previous_model is not None and qualified_name(previous_model) != qualified_name(
        model.name
    )
    if manual is not None:
        reason = "manual_override"
    elif is_change:
        reason = "model_change"
    elif previous_model is None or config.get("current_window") not in (None, window):
        reason = "initial_setup"
    else:
        reason = "no_adjustment"
    return WindowDecision(window, reason, loaded=window)


def _max_window(model: ModelInfo) -> int:
    return (
        _DEFAULT_LIMIT
        if model.context_length is None
        else max(int(model.context_length * SAFE_WINDOW_RATIO), 1)
    )


def _reason(config: Mapping[str, Any], window: int, loaded: int | None) -> str:
    """Return the reason for a window of the same model that this decision has not changed."""
    if config.get("current_window") in (None, window):
        return "no_adjustment"
    # Another session or program changed the window. If a smaller window is loaded, the new one has
    # grown.
    return "usage_threshold" if loaded and loaded < window else "adopted_loaded"


def _cap(window: int, ceiling: int | None) -> int:
    return window if ceiling is None else min(window, ceiling)
