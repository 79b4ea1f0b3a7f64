"""Context windows of models, shared by their sessions. Sizes are in tokens.

Sessions share a model's window, because Ollama reloads a model to change its window. A window grows
when prompts need more room. It shrinks only when Ollama runs out of memory, or when a new session
starts while the model is not loaded and no request is about to load it. A manual window applies
only to its own session. The first window of a model depends on the windows that Ollama has chosen
for models that other programs loaded. The window of a cloud model is its context length, which
requests do not contain.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mochi_server.constants import DEFAULT_WINDOW, SAFE_WINDOW_RATIO
from mochi_server.inference.token_estimate import TokenEstimate, with_margin
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.types import default_window_config

BUFFER = 1.5  # smallest window for a conversation, as a multiple of its tokens
MIN_WINDOW = 512
_MIN_VISION_WINDOW = 2048  # smallest window with which Ollama loads a model with vision
_DEFAULT_LIMIT = 131_072
_GROWTH_FACTOR = 2  # a window doubles, several times if necessary
_MAX_ADJUSTMENTS = 10


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """Context window for a request.

    A request sends it as ``num_ctx``, unless it is None or the model is a cloud model.
    """

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
    # Manual windows, which other sessions do not adopt.
    manual: set[int] = field(default_factory=set)
    # Windows with which this server may have loaded the model.
    requested: set[int | None] = field(default_factory=set)
    by_ollama: int = 0  # window with which another program has loaded the model, or 0
    requests: int = 0  # requests that wait or run and began with the window


async def _unknown() -> None:
    return None


@dataclass(eq=False)
class WindowRegistry:
    """Registry of the context window of each model.

    If ``dynamic`` is false, only users set windows.
    """

    request_loaded: Callable[[], Awaitable[Mapping[str, int] | None]] = _unknown
    """Function that returns the windows of the models in memory, by qualified model name, or None
    if unknown.
    """
    dynamic: bool = True
    on_adjusted: Callable[[str], object] = lambda _: None  # receives the reason of a change
    # First window of a model that a user has set, in place of the default.
    initial: int | None = None
    # Returns the size of an installed model in MiB.
    size_of: Callable[[str], float | None] = lambda _: None
    _entries: dict[str, _ModelWindow] = field(default_factory=dict, init=False)

    async def decide(
        self,
        model: ModelInfo,
        config: Mapping[str, Any],
        *,
        previous_model: str | None,
        required_tokens: int = 0,
        answer_tokens: int = 0,
    ) -> WindowDecision:
        """Choose the window for a prompt in a session with the ``context_window_config``
        ``config``.

        ``previous_model`` is the model that the session has used, or None for a new session, which
        may reset the shared window. A model that is not loaded gets a window with room for an
        answer of ``answer_tokens``.
        """
        if model.is_cloud:
            return _cloud_window(model, config, previous_model)
        # An earlier process of this server may have loaded the model with the stored window.
        self.record_request(model.name, config.get("current_window"))
        windows = await self._loaded_windows()
        entry = self._entry(model.name)
        loaded = None if windows is None else windows.get(qualified_name(model.name))
        manual = manual_window(model, config)
        if manual is not None:
            self.record_manual(model.name, manual)
            return WindowDecision(
                manual, "manual_override", loaded, differs=bool(loaded) and loaded != manual
            )
        if not self.dynamic:
            return WindowDecision(None, "no_adjustment", loaded)
        is_unloaded = windows is not None and loaded is None
        if previous_model is None and is_unloaded and not entry.requests:
            # Ollama must load the model anyway, so a new session need not keep a larger window
            entry.window = None
        needed = _needed(required_tokens, answer_tokens, is_loaded=loaded is not None)
        return self._adjust(model, config, previous_model, loaded, needed)

    def _adjust(
        self,
        model: ModelInfo,
        config: Mapping[str, Any],
        previous_model: str | None,
        loaded: int | None,
        needed: float,
    ) -> WindowDecision:
        """Adjust the window that sessions share, for a prompt that needs ``needed`` tokens."""
        entry = self._entry(model.name)
        window = self._current_window(entry, model)
        # The shared window may be smaller than the session's own, after a restart or after a new
        # session has reset it.
        own = _own_window(model, config, previous_model)
        window = max(window, capped(own, entry.ceiling))
        reason = None
        loaded_manually = loaded in entry.manual
        if loaded is not None and loaded > window and not loaded_manually:
            window = loaded
            reason = "adopted_loaded"
        larger = self._doubled_window(entry, model, needed)
        if needed > window and larger > window:
            window = larger
            reason = "usage_threshold"
        entry.window = window
        if reason is None:
            if previous_model is None:
                reason = self._initial_reason(window, loaded)
            elif qualified_name(previous_model) == qualified_name(model.name):
                reason = _unchanged_reason(config, window, loaded)
            else:
                reason = "model_change"
        return WindowDecision(window, reason, loaded, differs=loaded_manually and loaded != window)

    def _initial_reason(self, window: int, loaded: int | None) -> str:
        """Return the reason for the first window of a session."""
        if loaded == window > (self.initial or DEFAULT_WINDOW):
            return "adopted_loaded"
        return "initial_setup"

    async def decide_without_session(
        self, model: ModelInfo, required_tokens: int
    ) -> WindowDecision:
        """Choose the window for a request without a session: the loaded one if it is large enough,
        else the window that sessions share, which may grow.

        The loaded one can be smaller than the shared one. If only users set windows, the decision
        has no window, except for a cloud model.
        """
        if model.is_cloud:
            return _cloud_window(model, {}, model.name)
        loaded = (await self._loaded_windows() or {}).get(qualified_name(model.name))
        if self.dynamic and (loaded or 0) < required_tokens * BUFFER:
            return await self.decide(
                model, {}, previous_model=model.name, required_tokens=required_tokens
            )
        return WindowDecision(loaded if self.dynamic else None, "no_adjustment", loaded)

    @contextmanager
    def in_use(self, model: str, window: int | None) -> Iterator[None]:
        """Keep new sessions from resetting the window of a model during a request that begins with
        ``window``.

        A request that begins with another window, such as a manual one, keeps nothing.
        """
        entry = self._entry(model)
        if window != entry.window:
            yield
            return
        entry.requests += 1
        try:
            yield
        finally:
            entry.requests -= 1

    def grow(self, model: ModelInfo, required_tokens: int, refused_window: int) -> bool:
        """Enlarge the window so that ``required_tokens`` fit.

        Return whether it exceeds the refused window, or the current one if that is smaller.
        """
        entry = self._entry(model.name)
        window = self._current_window(entry, model)
        too_small = min(refused_window, window)
        larger = self._doubled_window(entry, model, max(required_tokens, too_small + 1))
        entry.window = max(window, larger)
        return entry.window > too_small

    def step_down(self, model: ModelInfo, failed_window: int | None) -> bool:
        """Set the window to half of ``failed_window``, which ran out of memory, unless another turn
        has already made it smaller.

        The failed window can be smaller than that of the model, and None means that of the model.

        If the smallest window has failed, or no window is known, reset the window, remove its
        ceiling and return False.
        """
        entry = self._entry(model.name)
        # A model without a window begins with its ceiling at most.
        window = entry.window or entry.ceiling or failed_window or 0
        failed = failed_window or window
        if min(window, failed) < 2 * MIN_WINDOW:
            entry.window = None
            entry.ceiling = None
            return False
        if failed <= window:
            half = failed // 2
            entry.window = half
            entry.ceiling = half
        return True

    def lower_ceiling(self, model: ModelInfo, failed_window: int | None) -> None:
        """Reset the window, so that later requests begin below ``failed_window``.

        If that is the smallest window or None, remove the ceiling.
        """
        entry = self._entry(model.name)
        entry.window = None
        if failed_window is not None and failed_window >= 2 * MIN_WINDOW:
            entry.ceiling = min(entry.ceiling or failed_window, failed_window // 2)
        else:
            entry.ceiling = None

    def current(self, model: ModelInfo, reason: str) -> WindowDecision:
        """Return a decision for the current window of a model."""
        return WindowDecision(self._current_window(self._entry(model.name), model), reason)

    def size(self, model: str) -> int | None:
        """Return the window of a model in tokens, or None if none has been chosen since the last
        reset.
        """
        return self._entry(model).window

    def largest(
        self, model: ModelInfo, config: Mapping[str, Any], previous_model: str | None
    ) -> int:
        """Return the largest window that a request can have in a session with the
        ``context_window_config`` ``config``: the largest that this registry chooses, that of the
        Modelfile, or the session's own, each at most the ceiling, or the present one.

        A larger window with which another program has loaded the model does not count until a
        request has adopted it.
        """
        entry = self._entry(model.name)
        of_modelfile = capped(model.num_ctx or 0, model.context_length)
        own = _own_window(model, config, previous_model)
        chosen = max(max_window(model), of_modelfile, own)
        return max(capped(chosen, entry.ceiling), entry.window or 0)

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
        """Return a copy of ``config`` with the window of ``decision``.

        If that changes the window, the copy has an entry for the change, and ``on_adjusted`` is
        called. A decision ``by_user`` always has an entry.
        """
        result = {**config, "dynamic_enabled": self.dynamic, "current_window": decision.window}
        is_adjustment = decision.reason != "no_adjustment"
        if is_adjustment:
            result["last_adjustment"] = decision.reason
        result["manual_override"] = decision.reason == "manual_override"
        has_changed = is_adjustment and config["current_window"] not in (None, decision.window)
        if has_changed:
            self.on_adjusted(decision.reason)
        if has_changed or by_user:
            entry = {"window": decision.window, "reason": decision.reason, "timestamp": timestamp}
            history = [*config["adjustment_history"], entry]
            result["adjustment_history"] = history[-_MAX_ADJUSTMENTS:]
        return result

    def _entry(self, model: str) -> _ModelWindow:
        name = qualified_name(model)
        return self._entries.setdefault(name, _ModelWindow())

    def record_request(self, model: str, window: int | None) -> None:
        """Record the window of a request, because Ollama may load ``model`` with it."""
        self._entry(model).requested.add(window)

    def record_manual(self, model: str, window: int) -> None:
        """Record a manual window of a session, because Ollama may have loaded ``model`` with it."""
        self.record_request(model, window)
        entry = self._entry(model)
        if window != entry.window:
            entry.manual.add(window)

    async def _loaded_windows(self) -> Mapping[str, int] | None:
        """Return the windows of the loaded models, and record the windows that no request of this
        server has set.
        """
        windows = await self.request_loaded()
        for name, window in (windows or {}).items():
            entry = self._entry(name)
            if window not in entry.requested:
                entry.by_ollama = window
        return windows

    def _current_window(self, entry: _ModelWindow, model: ModelInfo) -> int:
        """Return the window of a model, or its first window if none has been chosen."""
        return entry.window or self._initial_window(entry, model)

    def _initial_window(self, entry: _ModelWindow, model: ModelInfo) -> int:
        """Return the default window or the Modelfile's ``num_ctx``, whichever is larger, at most
        the ceiling.
        """
        default = self.initial or max(DEFAULT_WINDOW, self._window_by_ollama(model))
        of_registry = min(max_window(model), default)
        of_modelfile = capped(model.num_ctx or 0, model.context_length)
        return capped(max(of_registry, of_modelfile), entry.ceiling)

    def _window_by_ollama(self, model: ModelInfo) -> int:
        """Return the largest window that Ollama has chosen for models of at least this
        size, or 0.
        """
        largest = 0
        for name, entry in self._entries.items():
            if entry.by_ollama > largest and (self.size_of(name) or -1) >= model.size_mb:
                largest = entry.by_ollama
        return largest

    def _doubled_window(self, entry: _ModelWindow, model: ModelInfo, required_tokens: float) -> int:
        """Return the initial window, doubled until ``required_tokens`` fit, up to the largest
        window.
        """
        largest = capped(max_window(model), entry.ceiling)
        window = self._initial_window(entry, model)
        while window < required_tokens and window < largest:
            window = min(window * _GROWTH_FACTOR, largest)
        return window


def manual_window(model: ModelInfo, config: Mapping[str, Any]) -> int | None:
    """Return the manual window in a session's ``config``, within the limits of the model, or
    None.
    """
    window = config.get("current_window")
    if window is None or not config.get("manual_override"):
        return None
    return within_limits(window, model)


def _own_window(model: ModelInfo, config: Mapping[str, Any], previous_model: str | None) -> int:
    """Return the window that a session already has for a model, or 0 if ``previous_model`` is None
    or another model.
    """
    if previous_model is None or qualified_name(previous_model) != qualified_name(model.name):
        return 0
    return capped(config.get("current_window") or 0, model.context_length)


def within_limits(window: int, model: ModelInfo) -> int:
    """Return the window with which Ollama loads a model for a request with ``window``."""
    if model.has_capability("vision") and not model.is_cloud:
        window = max(window, _MIN_VISION_WINDOW)
    return capped(window, model.context_length)


def _cloud_window(
    model: ModelInfo, config: Mapping[str, Any], previous_model: str | None
) -> WindowDecision:
    """Return the context length of a cloud model, or the manual window.

    Ollama need not load the model.
    """
    manual = manual_window(model, config)
    window = model.context_length if manual is None else manual
    previous = None if previous_model is None else qualified_name(previous_model)
    if manual is not None:
        reason = "manual_override"
    elif previous not in (None, qualified_name(model.name)):
        reason = "model_change"
    elif previous is None or config.get("current_window") not in (None, window):
        reason = "initial_setup"
    else:
        reason = "no_adjustment"
    return WindowDecision(window, reason, loaded=window)


def _needed(required_tokens: int, answer_tokens: int, *, is_loaded: bool) -> float:
    """Return the smallest window for a prompt. Only a model that is not loaded gets more room."""
    needed = BUFFER * required_tokens
    if is_loaded:
        return needed
    return max(needed, with_margin(required_tokens) + answer_tokens)


def max_window(model: ModelInfo) -> int:
    """Return the largest window that the registry chooses for a model."""
    if model.context_length is None:
        return _DEFAULT_LIMIT
    return max(int(model.context_length * SAFE_WINDOW_RATIO), 1)


def _unchanged_reason(config: Mapping[str, Any], window: int, loaded: int | None) -> str:
    """Return the reason for a window that this decision has neither adopted nor enlarged.

    ``config`` has the session's window from before, with the same model.
    """
    if config.get("current_window") in (None, window):
        return "no_adjustment"
    # Another session or program changed the window. If a smaller window is loaded, the new one has
    # grown.
    if loaded and loaded < window:
        return "usage_threshold"
    return "adopted_loaded"


def capped(window: int, ceiling: int | None) -> int:
    return window if ceiling is None else min(window, ceiling)
