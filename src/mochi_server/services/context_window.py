"""Context windows, one for each model: Ollama reloads a model whenever two requests differ in ``num_ctx``.

A window grows by doubling and never shrinks. All sizes are in tokens, estimated from Ollama's counts for the model.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_server.constants import DEFAULT_WINDOW, SAFE_WINDOW_RATIO
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo

_GROWTH = 2
"""A window grows when it is less than this many times what a conversation takes up, and by this factor."""

_REFUSAL_MARGIN = 1.5
"""A window grows to this many times a prompt that Ollama refused."""

_SMALLEST_WINDOW = 512
_LARGEST_UNKNOWN = 131_072
"""Up to here windows grow for models that do not say what they can."""

_TOKENS_PER_CHAR = 1 / 3.5
"""Before a model's own figure is known: typical of prose, a little high."""

_TELLING_CHARS = 400
_MOST_TOKENS_PER_CHAR = 2
"""Text has no more; what a count says beyond this is of something else."""

IMAGE_TOKENS = 768
"""What Ollama itself takes an image for when it fits a prompt; models take from 256 to some thousands."""
_HISTORY_KEPT = 10


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """The window for one request. None sends no ``num_ctx``. ``loaded`` is the one the model had before, if any."""

    window: int | None
    reason: str
    model_max: int | None
    loaded: int | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether Ollama need not load the model for it."""
        return self.loaded is not None and self.window in (None, self.loaded)


@dataclass(frozen=True, slots=True)
class ManualWindow:
    """A window that a person chose for a model, and the session they did it in."""

    window: int
    session_id: str


@dataclass
class _ModelWindow:
    """What is known of one model."""

    window: int | None = None
    ceiling: int | None = None
    """More than this did not fit into memory."""
    override: ManualWindow | None = None
    released: bool = False
    tokens_per_char: float | None = None
    before_step: tuple[int | None, int | None] | None = None
    """Window and ceiling before the last step down."""


async def nothing_loaded() -> Mapping[str, int]:
    """The windows of an Ollama that cannot be asked."""
    return {}


class WindowRegistry:
    """The windows of one Ollama's models. With ``dynamic`` false only users choose any.

    ``loaded`` returns the windows that models are loaded with now, by qualified name.
    ``on_adjusted`` is called with the reason when a session gets another window.
    """

    def __init__(
        self,
        loaded: Callable[[], Awaitable[Mapping[str, int]]] = nothing_loaded,
        *,
        dynamic: bool = True,
        on_adjusted: Callable[[str], object] = lambda _: None,
        on_compacted: Callable[[], object] = lambda: None,
    ) -> None:
        self.dynamic = dynamic
        self.on_compacted = on_compacted
        """Called when a summary replaces the oldest turns of a prompt."""
        self._on_adjusted = on_adjusted
        self._loaded = loaded
        self._entries: dict[str, _ModelWindow] = {}

    async def decide(
        self,
        model: ModelInfo,
        config: Mapping[str, Any],
        session_id: str,
        *,
        previous_model: str | None,
        required_tokens: int = 0,
        ignore_override: bool = False,
    ) -> WindowDecision:
        """The window for a request of a session; with ``ignore_override``, the one without a manual window.

        ``config`` is the session's stored ``context_window_config``, ``previous_model`` the one that gave the
        session's latest answer, if there is one, ``required_tokens`` what the prompt takes up.
        """
        loaded = (await self._loaded()).get(qualified_name(model.name))
        entry = self._entry(model.name)
        stored = config.get("current_window")
        if entry.override is None and not entry.released and config.get("manual_override") and isinstance(stored, int):
            self.override(model, stored, session_id)  # by an earlier process
        if entry.override is not None and not ignore_override:
            return WindowDecision(entry.override.window, "manual_override", model.context_length, loaded)
        if not self.dynamic:
            return WindowDecision(None, "no_adjustment", model.context_length, loaded)
        window, reason = entry.window or self._first(entry, model), "no_adjustment"
        if loaded is not None and loaded > window:
            window, reason = loaded, "adopted_loaded"
        if (
            required_tokens * _GROWTH > window
            and (larger := self._window_step(entry, model, _GROWTH * required_tokens)) > window
        ):
            window, reason = larger, "usage_threshold"
        entry.window = window
        if reason == "no_adjustment":
            if previous_model is None:
                reason = "initial_setup"
            elif qualified_name(previous_model) != qualified_name(model.name):
                reason = "model_change"
            elif stored not in (None, window):
                reason = "adopted_loaded"
        return WindowDecision(window, reason, model.context_length, loaded)

    async def borrow(self, model: ModelInfo, required_tokens: int) -> int | None:
        """The window for a request that belongs to no chat: the one that is loaded, wherever ``required_tokens`` fits
        into it.
        """
        if not self.dynamic and self._entry(model.name).override is None:
            return None
        loaded = (await self._loaded()).get(qualified_name(model.name), 0)
        if loaded >= required_tokens * _GROWTH:
            return loaded
        return (await self.decide(model, {}, "", previous_model=model.name, required_tokens=required_tokens)).window

    def grow(self, model: ModelInfo, required_tokens: int) -> bool:
        """Grow the window to the next size that fits ``required_tokens``. Return whether it has grown."""
        entry = self._entry(model.name)
        if not self.dynamic or entry.override is not None:
            return False
        window = entry.window or self._first(entry, model)
        entry.window = max(window, self._window_step(entry, model, max(required_tokens, window + 1)))
        return entry.window > window

    def grow_after_refusal(self, model: ModelInfo, tokens: int) -> bool:
        """Grow for a prompt of so many tokens that Ollama refused; return whether the window has grown."""
        return self.grow(model, int(tokens * _REFUSAL_MARGIN))

    def step_down(self, model: ModelInfo) -> bool:
        """Loading ran out of memory: take half the window and remember; whether there was any smaller one."""
        entry = self._entry(model.name)
        window = entry.override.window if entry.override else entry.window
        if not self.dynamic or window is None or window // _GROWTH < _SMALLEST_WINDOW:
            return False
        entry.before_step = (entry.window, entry.ceiling)
        entry.ceiling = entry.window = window // _GROWTH
        entry.override = None
        entry.released = True
        return True

    def undo_step_down(self, model: ModelInfo) -> None:
        """The smaller window did not load either, so memory was not the window's fault: forget about it."""
        entry = self._entry(model.name)
        if entry.before_step is not None:
            entry.window, entry.ceiling = entry.before_step
            entry.before_step = None

    def current(self, model: ModelInfo, reason: str) -> WindowDecision:
        """The window as it is now."""
        entry = self._entry(model.name)
        window = entry.override.window if entry.override else entry.window or self._first(entry, model)
        return WindowDecision(window, reason, model.context_length)

    def size(self, model: str) -> int | None:
        """Return the window of a model in tokens; None if none has been decided yet."""
        entry = self._entry(model)
        return entry.override.window if entry.override else entry.window

    def estimate(self, model: ModelInfo, characters: int, images: int = 0) -> int:
        """How many tokens a prompt of so many characters and images is for a model."""
        text = int(characters * (self._entry(model.name).tokens_per_char or _TOKENS_PER_CHAR))
        return text + IMAGE_TOKENS * images + 1

    def observe(self, model: ModelInfo, characters: int, tokens: int, images: int = 0) -> None:
        """Learn from Ollama's count of a prompt.

        Short ones say more of their template than of their text, and those with images more of the images.
        """
        if tokens > 0 and characters >= _TELLING_CHARS and not images:
            self._entry(model.name).tokens_per_char = min(tokens / characters, _MOST_TOKENS_PER_CHAR)

    def initial_config(self, model: ModelInfo) -> dict[str, Any]:
        """What a new session of a model stores."""
        entry = self._entry(model.name)
        chosen = entry.window or self._first(entry, model) if self.dynamic else None
        return {
            "dynamic_enabled": self.dynamic,
            "current_window": entry.override.window if entry.override else chosen,
            "last_adjustment": "initial_setup",
            "adjustment_history": [],
            "manual_override": False,
        }

    def adjusted(self, config: Mapping[str, Any], decision: WindowDecision, at: str) -> dict[str, Any]:
        """A session's stored config after a decision; its history keeps the last ten real changes."""
        history = config.get("adjustment_history")
        result = dict(config) | {
            "dynamic_enabled": self.dynamic,
            "current_window": decision.window,
            "adjustment_history": history if isinstance(history, list) else [],
        }
        if decision.reason != "no_adjustment":
            result["last_adjustment"] = decision.reason
        if decision.window != config.get("current_window") and config.get("current_window") is not None:
            self._on_adjusted(decision.reason)
            entry = {"window": decision.window, "reason": decision.reason, "timestamp": at}
            result["adjustment_history"] = [*result["adjustment_history"], entry][-_HISTORY_KEPT:]
        return result

    def override(self, model: ModelInfo, window: int, session_id: str) -> int:
        """Set a model's window by hand, for all its sessions; returns it, capped at the model's maximum."""
        window = _within(window, model.context_length)
        entry = self._entry(model.name)
        entry.override, entry.released = ManualWindow(window, session_id), False
        return window

    def manual(self, model: ModelInfo, window: int) -> WindowDecision:
        """The decision that ``override`` will lead to."""
        return WindowDecision(_within(window, model.context_length), "manual_override", model.context_length)

    def release(self, model: str) -> None:
        """Return a model to windows chosen by the server."""
        entry = self._entry(model)
        entry.override, entry.released = None, True

    def clear_session(self, session_id: str) -> None:
        """A session is gone, and with it the window that it set by hand: nobody could find and clear it any more."""
        for entry in self._entries.values():
            if entry.override is not None and entry.override.session_id == session_id:
                entry.override, entry.released = None, True

    def override_of(self, model: str) -> ManualWindow | None:
        """The window set by hand for a model, if there is one."""
        return self._entry(model).override

    def _entry(self, model: str) -> _ModelWindow:
        return self._entries.setdefault(qualified_name(model), _ModelWindow())

    def _first(self, entry: _ModelWindow, model: ModelInfo) -> int:
        """The window a model starts with; its Modelfile may ask for more."""
        return _within(max(min(_safe(model), DEFAULT_WINDOW), model.num_ctx or 0), entry.ceiling)

    def _window_step(self, entry: _ModelWindow, model: ModelInfo, required_tokens: int) -> int:
        """The smallest window of the ladder that ``required_tokens`` fits into, or the largest there is."""
        largest = _within(_safe(model), entry.ceiling)
        rung = self._first(entry, model)
        while rung < required_tokens and rung < largest:
            rung = min(rung * _GROWTH, largest)
        return rung


DynamicContextWindowService = WindowRegistry
"""The name that the library has for it."""


def _safe(model: ModelInfo) -> int:
    """Return the largest window that is chosen by the server: 90 % of the model's maximum."""
    return _LARGEST_UNKNOWN if model.context_length is None else max(int(model.context_length * SAFE_WINDOW_RATIO), 1)


def _within(window: int, ceiling: int | None) -> int:
    return window if ceiling is None else min(window, ceiling)
