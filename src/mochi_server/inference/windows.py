"""Context windows of models. Sessions share a model's window, because Ollama reloads a model to change its window.

A window doubles when prompts need more room. It shrinks only when Ollama runs out of memory, or when a new session
starts while the model is not loaded. A manual window applies only to its own session. Sizes are in tokens.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mochi_server.constants import DEFAULT_WINDOW, SAFE_WINDOW_RATIO
from mochi_server.inference.estimate import TokenEstimate
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.types import default_window_config

_GROWTH_FACTOR = 2
"""Factor by which a window grows. A window grows when a prompt needs more than half of the window."""

_MIN_WINDOW = 512
_DEFAULT_LIMIT = 131_072
_MAX_ADJUSTMENTS = 10


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """Context window for a request. If ``window`` is None, send no ``num_ctx``.

    ``loaded`` is the window of the loaded model, or None if the model is not loaded or its state is unknown.
    """

    window: int | None
    reason: str
    loaded: int | None = None
    differs: bool = False
    """Whether Ollama reloads the model because a session has a manual window that other sessions do not have."""

    @property
    def is_loaded(self) -> bool:
        """Whether Ollama can use the loaded model without a reload."""
        return self.loaded is not None and self.window in (None, self.loaded)


@dataclass
class _ModelWindow:
    window: int | None = None
    ceiling: int | None = None
    """Upper limit of the window after Ollama has run out of memory, or None."""
    before_reduction: "_ModelWindow | None" = None
    """Copy from the time before ``step_down`` halved the window."""
    estimate: TokenEstimate = field(default_factory=TokenEstimate)
    manual: set[int] = field(default_factory=set)
    """Manual windows of sessions. If Ollama has loaded the model with one of them, other sessions do not adopt it."""


async def _unknown() -> None:
    return None


@dataclass(eq=False)
class WindowRegistry:
    """Registry of the context window of each model. If ``dynamic`` is false, only users set windows."""

    loaded: Callable[[], Awaitable[Mapping[str, int] | None]] = _unknown
    """Function that returns the windows of the models in memory, by qualified model name, or None if unknown."""
    dynamic: bool = True
    on_adjusted: Callable[[str], object] = lambda _: None
    """Callback that receives the reason when the window of a session changes."""
    _entries: dict[str, _ModelWindow] = field(default_factory=dict, init=False)

    async def decide(
        self, model: ModelInfo, config: Mapping[str, Any], *, previous_model: str | None, required_tokens: int = 0
    ) -> WindowDecision:
        """Choose the context window for a request in a session.

        ``config`` is the session's ``context_window_config``. ``previous_model`` is the model of the latest answer.
        ``required_tokens`` is the size of the prompt.
        """
        name = qualified_name(model.name)
        windows = await self.loaded()
        loaded = None if windows is None else windows.get(name)
        entry = self._entry(name)
        if (manual := manual_window(model, config)) is not None:
            if manual != entry.window:
                entry.manual.add(manual)
            return WindowDecision(manual, "manual_override", loaded, differs=bool(loaded) and loaded != manual)
        if not self.dynamic:
            return WindowDecision(None, "no_adjustment", loaded)
        if previous_model is None and windows is not None and loaded is None:
            entry.window = None  # Ollama must load the model anyway, so a new session need not keep a larger window
        window = entry.window or self._initial_window(entry, model)
        # After a restart, or after a new session has reset it, the model's window may be smaller than this session's.
        window = max(window, _cap(_window_of_session(model, config, previous_model), entry.ceiling))
        reason, is_manual = "no_adjustment", loaded in entry.manual
        if loaded is not None and loaded > window and not is_manual:
            window, reason = loaded, "adopted_loaded"
        larger = self._window_step(entry, model, _GROWTH_FACTOR * required_tokens)
        if required_tokens * _GROWTH_FACTOR > window and larger > window:
            window, reason = larger, "usage_threshold"
        entry.window = window
        differs = is_manual and loaded != window
        if reason != "no_adjustment":
            return WindowDecision(window, reason, loaded, differs)
        if previous_model is None:
            is_adopted = loaded == window > self._initial_window(entry, model)
            return WindowDecision(window, "adopted_loaded" if is_adopted else "initial_setup", loaded, differs)
        return WindowDecision(window, _reason(model, config, previous_model, window, loaded), loaded, differs)

    async def decide_without_session(self, model: ModelInfo, required_tokens: int) -> WindowDecision:
        """Choose the window for a request without a session: the loaded one if it is large enough, else as ``decide``.

        The window is None if ``dynamic`` is false.
        """
        loaded = (await self.loaded() or {}).get(qualified_name(model.name))
        if self.dynamic and (loaded or 0) < required_tokens * _GROWTH_FACTOR:
            return await self.decide(model, {}, previous_model=model.name, required_tokens=required_tokens)
        return WindowDecision(loaded if self.dynamic else None, "no_adjustment", loaded)

    def grow(self, model: ModelInfo, required_tokens: int, too_small: int | None) -> bool:
        """Enlarge the model's window so that ``required_tokens`` fit. Return whether the window is larger now.

        ``too_small`` is the window that was not large enough, or None without a window. If another turn has
        enlarged the window since then, it grows further only if necessary.
        """
        entry = self._entry(model.name)
        if not self.dynamic:
            return False
        window = entry.window or self._initial_window(entry, model)
        exceeded = window if too_small is None else min(too_small, window)
        entry.window = max(window, self._window_step(entry, model, max(required_tokens, exceeded + 1)))
        return entry.window > exceeded

    def step_down(self, model: ModelInfo, failed: int | None) -> bool:
        """Halve the window after Ollama ran out of memory. Return False if not possible.

        ``failed`` is the window that did not fit into memory. If another turn has made the window smaller since then,
        keep that window.
        """
        entry = self._entry(model.name)
        window = entry.window
        if not self.dynamic or window is None:
            return False
        if failed is not None and window < failed:
            return True
        if (halved := half(window)) is None:
            return False
        entry.before_reduction = replace(entry)
        entry.ceiling = entry.window = halved
        return True

    def undo_step_down(self, model: ModelInfo) -> None:
        """Restore the window that ``step_down`` halved. Call this if the model did not load with the halved window.

        If the halved window is larger than the initial window, keep it as the upper limit, so that later requests try
        smaller windows. Sessions with less text keep their own windows.
        """
        entry = self._entry(model.name)
        before = entry.before_reduction
        if before is None:
            return
        restored = replace(before, before_reduction=None)
        if entry.window is not None and entry.window > self._initial_window(before, model):
            restored = replace(restored, window=None, ceiling=entry.window)
        self._entries[qualified_name(model.name)] = restored

    def current(self, model: ModelInfo, reason: str) -> WindowDecision:
        """Return the model's current window as a decision with the given reason."""
        return WindowDecision(self.size(model.name) or self._initial_window(self._entry(model.name), model), reason)

    def size(self, model: str) -> int | None:
        """Return the window of a model in tokens, or None if no window has been chosen yet."""
        return self._entry(model).window

    def estimate(self, model: str) -> TokenEstimate:
        """Return the token estimate of a model."""
        return self._entry(model).estimate

    def initial_config(self, model: ModelInfo) -> dict[str, Any]:
        """Return the ``context_window_config`` of a new session."""
        return default_window_config() | {
            "dynamic_enabled": self.dynamic,
            "current_window": self._initial_window(self._entry(model.name), model) if self.dynamic else None,
            "last_adjustment": "initial_setup",
        }

    def adjusted(
        self, config: Mapping[str, Any], decision: WindowDecision, at: str, *, by_user: bool = False
    ) -> dict[str, Any]:
        """Return a copy of ``config`` with the window of ``decision``.

        If the window has changed, call ``on_adjusted``. In this case, or if a user has set or removed a manual window,
        add an entry with the time ``at`` to ``adjustment_history``.
        """
        result = {**config, "dynamic_enabled": self.dynamic, "current_window": decision.window}
        if decision.reason != "no_adjustment":
            result["last_adjustment"] = decision.reason
        result["manual_override"] = decision.reason == "manual_override"
        has_changed = config["current_window"] not in (None, decision.window)
        if has_changed:
            self.on_adjusted(decision.reason)
        if has_changed or by_user:
            entry = {"window": decision.window, "reason": decision.reason, "timestamp": at}
            result["adjustment_history"] = [*config["adjustment_history"], entry][-_MAX_ADJUSTMENTS:]
        return result

    def _entry(self, model: str) -> _ModelWindow:
        return self._entries.setdefault(qualified_name(model), _ModelWindow())

    def _initial_window(self, entry: _ModelWindow, model: ModelInfo) -> int:
        """Return a model's first window: the default window or the Modelfile's ``num_ctx``, whichever is larger.

        The Modelfile's value is capped at the maximum of the model, as in Ollama.
        """
        window = max(min(_max_window(model), DEFAULT_WINDOW), _cap(model.num_ctx or 0, model.context_length))
        return _cap(window, entry.ceiling)

    def _window_step(self, entry: _ModelWindow, model: ModelInfo, required_tokens: int) -> int:
        """Double the initial window until ``required_tokens`` fit, up to the largest window. Return the result."""
        largest = _cap(_max_window(model), entry.ceiling)
        window = self._initial_window(entry, model)
        while window < required_tokens and window < largest:
            window = min(window * _GROWTH_FACTOR, largest)
        return window


def manual_window(model: ModelInfo, config: Mapping[str, Any]) -> int | None:
    """Return the manual window in a session's ``config``, capped at the model's maximum, or None."""
    window = config.get("current_window") if config.get("manual_override") else None
    return None if window is None else _cap(window, model.context_length)


def half(window: int) -> int | None:
    """Return half of a window that did not fit into memory, or None if that would be too small."""
    halved = window // _GROWTH_FACTOR
    return None if halved < _MIN_WINDOW else halved


def _max_window(model: ModelInfo) -> int:
    """Return the largest window to which the server grows: 90 % of the model's maximum, or a default if unknown."""
    return _DEFAULT_LIMIT if model.context_length is None else max(int(model.context_length * SAFE_WINDOW_RATIO), 1)


def _window_of_session(model: ModelInfo, config: Mapping[str, Any], previous_model: str | None) -> int:
    """Return the session's window, or 0 if the session's latest answer is from another model.

    The window is capped, because the session may be from a server whose model of that name has a larger maximum.
    """
    is_same_model = previous_model is not None and qualified_name(previous_model) == qualified_name(model.name)
    return _cap((config.get("current_window") or 0) if is_same_model else 0, model.context_length)


def _reason(model: ModelInfo, config: Mapping[str, Any], previous_model: str, window: int, loaded: int | None) -> str:
    """Return the reason for a window that this decision has not changed."""
    if qualified_name(previous_model) != qualified_name(model.name):
        return "model_change"
    if config.get("current_window") in (None, window):
        return "no_adjustment"
    # Another session or program changed the window. If a smaller window is loaded, the new one has grown.
    return "usage_threshold" if loaded and loaded < window else "adopted_loaded"


def _cap(window: int, ceiling: int | None) -> int:
    return window if ceiling is None else min(window, ceiling)
