"""Context windows of models. Sessions share a model's window, because Ollama reloads a model to change its window.

A window doubles when prompts need more room. It shrinks only when Ollama runs out of memory, or when a new session
starts while the model is not loaded. Sizes are in tokens.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mochi_server.constants import DEFAULT_WINDOW, MIN_ANSWER_TOKENS, SAFE_WINDOW_RATIO
from mochi_server.errors import MochiError, OllamaError, SessionNotFound
from mochi_server.ollama.errors import refused_tokens
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import default_window_config
from mochi_server.util.clock import now

_GROWTH_FACTOR = 2
"""Factor by which a window grows. A window grows when a prompt needs more than half of the window."""

_REFUSAL_MARGIN = 1.5
"""Minimum size of the window after Ollama refused a prompt, as a multiple of the tokens in that prompt."""

_MIN_WINDOW = 512
_DEFAULT_LIMIT = 131_072

_TOKENS_PER_CHAR = 1 / 3.5
"""Estimated tokens per character of prose, slightly too high. It is used until the model's ratio is known."""

_MIN_CALIBRATION_CHARS = 400
"""Minimum prompt length for calibration. In shorter prompts, the chat template distorts the ratio."""
_MIN_TOKENS_PER_CHAR = 1 / 8
"""Lower limit of the calibrated tokens per character. Old versions of Ollama do not count cached tokens."""
_MAX_TOKENS_PER_CHAR = 2
"""Upper limit of the calibrated tokens per character. Ordinary text has fewer."""

_MAX_ESTIMATE_ERROR = 0.02
"""Share of its estimate by which a prompt may exceed the estimate without leaving less room than calculated."""
_TEMPLATE_TOKENS = 16
"""Tokens that are reserved for a chat template that is longer than estimated."""

IMAGE_TOKENS = 768
"""Estimated tokens per image, as in Ollama. Models use from 256 to several thousand tokens for an image."""
_MAX_ADJUSTMENTS = 10
_MAX_TRIMMED_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """Context window for a request. If ``window`` is None, send no ``num_ctx``.

    ``loaded`` is the window of the loaded model, or None if the model is not loaded or its state is unknown.
    """

    window: int | None
    reason: str
    loaded: int | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether Ollama can use the loaded model without a reload."""
        return self.loaded is not None and self.window in (None, self.loaded)


@dataclass(frozen=True, slots=True)
class ManualWindow:
    """Window that a user has set for a model, the session in which it was set, and the time."""

    window: int
    session_id: str
    set_at: str
    """Time in ISO 8601, or "" if unknown."""


@dataclass
class _ModelWindow:
    window: int | None = None
    ceiling: int | None = None
    """Upper limit of the window after Ollama has run out of memory, or None."""
    manual: ManualWindow | None = None
    released_at: str | None = None
    """Time at which a manual window was removed. Older manual windows of the model in stored sessions are ignored."""
    tokens_per_char: float | None = None
    before_reduction: "_ModelWindow | None" = None
    """Copy from the time before ``step_down`` halved the window."""


async def _unknown() -> None:
    return None


@dataclass(eq=False)
class WindowRegistry:
    """Registry of the context window of each model. If ``dynamic`` is false, only users set windows."""

    loaded: Callable[[], Awaitable[Mapping[str, int] | None]] = _unknown
    """Function that returns the windows of the models in memory, by qualified model name, or None if unknown."""
    load_session: Callable[[str], Awaitable[ChatSession]] | None = None
    """Function that loads a session that has set a manual window."""
    dynamic: bool = True
    on_adjusted: Callable[[str], object] = lambda _: None
    """Callback that receives the reason when the window of a session changes."""
    on_compacted: Callable[[], object] = lambda: None
    """Callback that is called after each compaction of a prompt."""
    trims: dict[str, tuple[int, str]] = field(default_factory=dict, init=False)
    """Window, and ID of the last trimmed message, of the prompts that are trimmed. The keys are session IDs."""
    _entries: dict[str, _ModelWindow] = field(default_factory=dict, init=False)

    async def decide(
        self,
        model: ModelInfo,
        config: Mapping[str, Any],
        session_id: str,
        *,
        previous_model: str | None,
        required_tokens: int = 0,
        ignore_manual: bool = False,
    ) -> WindowDecision:
        """Choose the context window for a request in a session. If ``ignore_manual`` is true, ignore a manual window.

        ``config`` is the session's ``context_window_config``. ``previous_model`` is the model of the latest answer.
        ``required_tokens`` is the size of the prompt.
        """
        name = qualified_name(model.name)
        windows = await self.loaded()
        loaded = None if windows is None else windows.get(name)
        entry = self._entry(name)
        manual = await self._sync_manual(model, config, session_id)
        if manual is not None and not ignore_manual:
            return WindowDecision(manual.window, "manual_override", loaded)
        if not self.dynamic:
            return WindowDecision(None, "no_adjustment", loaded)
        if previous_model is None and windows is not None and loaded is None:
            entry.window = None  # Ollama must load the model anyway, so a new session need not keep a larger window
        window = entry.window or self._initial_window(entry, model)
        # After a restart, or after a new session has reset it, the model's window may be smaller than this session's.
        window = max(window, _cap(_window_of_session(model, config, previous_model), entry.ceiling))
        reason = "no_adjustment"
        if loaded is not None and loaded > window:
            window, reason = loaded, "adopted_loaded"
        larger = self._window_step(entry, model, _GROWTH_FACTOR * required_tokens)
        if required_tokens * _GROWTH_FACTOR > window and larger > window:
            window, reason = larger, "usage_threshold"
        entry.window = window
        if reason == "no_adjustment":
            if previous_model is None:
                is_adopted = loaded == window > self._initial_window(entry, model)
                reason = "adopted_loaded" if is_adopted else "initial_setup"
            elif qualified_name(previous_model) != name:
                reason = "model_change"
            elif config.get("current_window") not in (None, window):
                # Another session or program changed the window. If a smaller window is loaded, the new one has grown.
                reason = "usage_threshold" if loaded and loaded < window else "adopted_loaded"
        return WindowDecision(window, reason, loaded)

    async def window_without_session(self, model: ModelInfo, required_tokens: int) -> int | None:
        """Return the window for a request without a session: the loaded one if it is large enough, else as ``decide``.

        Return None if ``dynamic`` is false and the model has no manual window.
        """
        if not self.dynamic and self._entry(model.name).manual is None:
            return None
        loaded = (await self.loaded() or {}).get(qualified_name(model.name), 0)
        if loaded >= required_tokens * _GROWTH_FACTOR:
            return loaded
        return (await self.decide(model, {}, "", previous_model=model.name, required_tokens=required_tokens)).window

    def grow(self, model: ModelInfo, required_tokens: int, too_small: int | None) -> bool:
        """Enlarge the model's window so that ``required_tokens`` fit. Return whether the window is larger now.

        ``too_small`` is the window that was not large enough, or None without a window. If another turn has
        enlarged the window since then, it grows further only if necessary.
        """
        entry = self._entry(model.name)
        if not self.dynamic or entry.manual is not None:
            return False
        window = entry.window or self._initial_window(entry, model)
        exceeded = window if too_small is None else min(too_small, window)
        entry.window = max(window, self._window_step(entry, model, max(required_tokens, exceeded + 1)))
        return entry.window > exceeded

    def grow_after_refusal(self, model: ModelInfo, tokens: int, too_small: int | None) -> bool:
        """Enlarge the window after Ollama refused a prompt of ``tokens`` tokens. Return whether it is larger now.

        ``too_small`` is the window with which Ollama refused the prompt.
        """
        return self.grow(model, int(tokens * _REFUSAL_MARGIN), too_small)

    def step_down(self, model: ModelInfo, failed: int | None) -> bool:
        """Halve the window after Ollama ran out of memory, and remove a manual window. Return False if not possible.

        ``failed`` is the window that did not fit into memory. If another turn has made the window smaller since then,
        keep that window.
        """
        entry = self._entry(model.name)
        window = self.size(model.name)
        if not self.dynamic or window is None:
            return False
        if failed is not None and window < failed:
            return True
        if window // _GROWTH_FACTOR < _MIN_WINDOW:
            return False
        entry.before_reduction = replace(entry)
        entry.ceiling = entry.window = window // _GROWTH_FACTOR
        self.release(model.name)
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
        restored = replace(before, tokens_per_char=entry.tokens_per_char, before_reduction=None)
        if entry.window is not None and entry.window > self._initial_window(before, model):
            restored = replace(restored, window=None, ceiling=entry.window)
        self._entries[qualified_name(model.name)] = restored

    def current(self, model: ModelInfo, reason: str) -> WindowDecision:
        """Return the model's current window as a decision with the given reason."""
        return WindowDecision(self.size(model.name) or self._initial_window(self._entry(model.name), model), reason)

    def size(self, model: str) -> int | None:
        """Return the window of a model in tokens, or None if no window has been chosen yet."""
        entry = self._entry(model)
        return entry.manual.window if entry.manual else entry.window

    def estimate(self, model: ModelInfo, characters: int, images: int = 0) -> int:
        """Return the estimated number of tokens of a prompt, given its numbers of characters and images."""
        text = int(characters * (self._entry(model.name).tokens_per_char or _TOKENS_PER_CHAR))
        return text + IMAGE_TOKENS * images + 1

    def room(self, model: ModelInfo, window: int, characters: int, images: int = 0, *, counted: int = 0) -> int:
        """Return a cautious estimate of how many tokens a prompt leaves free in a window.

        Until the model's ratio is known, count each character as a token, but at most a quarter of the window in this
        way. Most models need far fewer tokens, so a larger reserve would cut long answers without need. ``counted`` is
        Ollama's latest count of the conversation. It replaces a lower estimate until the ratio is known.
        """
        tokens = self.estimate(model, characters, images)
        if self._entry(model.name).tokens_per_char is None:
            tokens = max(tokens, counted, min(characters + IMAGE_TOKENS * images, window // 4))
        return window - int(tokens * (1 + _MAX_ESTIMATE_ERROR)) - _TEMPLATE_TOKENS

    def answer_limit(
        self,
        model: ModelInfo,
        window: int,
        num_predict: object,
        characters: int,
        images: int = 0,
        *,
        counted: int = 0,
    ) -> int | None:
        """Return the maximum number of answer tokens that fit into a window after a prompt.

        Return None if ``num_predict`` does not exceed this maximum.
        """
        room = max(self.room(model, window, characters, images, counted=counted), MIN_ANSWER_TOKENS)
        is_limited = not isinstance(num_predict, int) or num_predict < 0 or num_predict > room
        return room if is_limited else None

    def observe(self, model: ModelInfo, characters: int, tokens: int, images: int = 0) -> None:
        """Calibrate ``estimate`` with Ollama's token count. Ignore short prompts, images and implausibly low counts."""
        is_plausible = tokens >= characters * _MIN_TOKENS_PER_CHAR
        if is_plausible and characters >= _MIN_CALIBRATION_CHARS and not images:
            self._entry(model.name).tokens_per_char = min(tokens / characters, _MAX_TOKENS_PER_CHAR)

    def observe_refusal(self, model: ModelInfo, refusal: OllamaError, characters: int, images: int = 0) -> int:
        """Calibrate ``estimate`` with a prompt that Ollama refused. Return the prompt's number of tokens."""
        tokens = refused_tokens(refusal) or self.estimate(model, characters, images) * 2
        self.observe(model, characters, tokens, images)
        return tokens

    def initial_config(self, model: ModelInfo) -> dict[str, Any]:
        """Return the ``context_window_config`` of a new session."""
        entry = self._entry(model.name)
        chosen = self._initial_window(entry, model) if self.dynamic else None
        return default_window_config() | {
            "dynamic_enabled": self.dynamic,
            "current_window": entry.manual.window if entry.manual else chosen,
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
        has_changed = config["current_window"] not in (None, decision.window)
        is_own = decision.reason == "manual_override" and (by_user or not has_changed)  # not of another session
        result["manual_override"] = config["manual_override"] and is_own
        if has_changed:
            self.on_adjusted(decision.reason)
        if has_changed or by_user:
            entry = {"window": decision.window, "reason": decision.reason, "timestamp": at}
            result["adjustment_history"] = [*config["adjustment_history"], entry][-_MAX_ADJUSTMENTS:]
        return result

    def set_manual(self, model: ModelInfo, window: int, session_id: str) -> int:
        """Set a manual window for a model in all sessions. Return the window, capped at the model's maximum."""
        window = _cap(window, model.context_length)
        self._entry(model.name).manual = ManualWindow(window, session_id, now())
        return window

    def release(self, model: str) -> None:
        """Remove the manual window of a model, so that the server chooses the window again."""
        entry = self._entry(model)
        entry.manual, entry.released_at = None, now()

    def clear_session(self, session_id: str) -> None:
        """Remove the manual windows that a deleted session has set."""
        for model, entry in self._entries.items():
            if entry.manual is not None and entry.manual.session_id == session_id:
                self.release(model)

    def manual_of(self, model: str) -> ManualWindow | None:
        """Return the manual window of a model, or None."""
        return self._entry(model).manual

    async def manual_for(self, model: ModelInfo, config: Mapping[str, Any], session_id: str) -> ManualWindow | None:
        """Return the manual window that applies to a session with the stored ``config``, or None.

        Another server, or this server before a restart, may have set or removed the window, or deleted its session.
        """
        manual = self._stored_manual(model, config, session_id)
        if manual is None or manual.session_id == session_id or self.load_session is None:
            return manual
        try:
            setting = await self.load_session(manual.session_id)
        except SessionNotFound:
            return None
        except MochiError:
            return manual
        stored = setting.metadata.context_window_config
        if qualified_name(setting.model) != qualified_name(model.name):
            return manual if qualified_name(model.name) in (stored.get("other_models") or ()) else None
        return self._stored_manual(model, stored, manual.session_id)

    def _stored_manual(self, model: ModelInfo, config: Mapping[str, Any], session_id: str) -> ManualWindow | None:
        """Return the manual window of a model, unless the ``config`` of a session has set or removed it since."""
        entry, stored, changed_at = self._entry(model.name), config.get("current_window"), _latest_change(config)
        current = entry.manual
        if not config.get("manual_override"):
            is_removed = current is not None and current.session_id == session_id and changed_at > current.set_at
            return None if is_removed else current
        if stored is None or (entry.released_at is not None and changed_at <= entry.released_at):
            return current
        window = _cap(stored, model.context_length)
        is_newer = current is None or (current.window != window and changed_at > current.set_at)
        return ManualWindow(window, session_id, changed_at) if is_newer else current

    async def _sync_manual(self, model: ModelInfo, config: Mapping[str, Any], session_id: str) -> ManualWindow | None:
        """Apply the result of ``manual_for`` to all sessions of the model, and return it."""
        entry = self._entry(model.name)
        before = entry.manual
        manual = await self.manual_for(model, config, session_id)
        if entry.manual is not before:  # another request has set or removed the window meanwhile
            return entry.manual
        if manual is None and before is not None:
            # A window that was set after the removal applies, so the time of the removal counts.
            removed_at = _latest_change(config) if before.session_id == session_id else before.set_at
            entry.released_at = max(entry.released_at or "", removed_at)
        entry.manual = manual
        return manual

    def record_trim(self, session_id: str, window: int, message_id: str) -> None:
        """Record that a session's prompts are trimmed up to a message. If necessary, drop the oldest record."""
        self.trims.pop(session_id, None)
        self.trims[session_id] = window, message_id
        if len(self.trims) > _MAX_TRIMMED_SESSIONS:
            del self.trims[next(iter(self.trims))]

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


DynamicContextWindowService = WindowRegistry
"""Name of ``WindowRegistry`` in the documented library API."""


def _max_window(model: ModelInfo) -> int:
    """Return the largest window to which the server grows: 90 % of the model's maximum, or a default if unknown."""
    return _DEFAULT_LIMIT if model.context_length is None else max(int(model.context_length * SAFE_WINDOW_RATIO), 1)


def _window_of_session(model: ModelInfo, config: Mapping[str, Any], previous_model: str | None) -> int:
    """Return the session's window, or 0 if a user set it or the session's latest answer is from another model.

    The window is capped, because the session may be from a server whose model of that name has a larger maximum.
    """
    is_same_model = previous_model is not None and qualified_name(previous_model) == qualified_name(model.name)
    window = (config.get("current_window") or 0) if is_same_model and not config.get("manual_override") else 0
    return _cap(window, model.context_length)


def _latest_change(config: Mapping[str, Any]) -> str:
    """Return the time of the latest entry in a ``context_window_config``, or "" if there is none."""
    history = config.get("adjustment_history")
    latest = history[-1] if isinstance(history, list) and history else {}
    return str(latest.get("timestamp") or "") if isinstance(latest, dict) else ""


def _cap(window: int, ceiling: int | None) -> int:
    return window if ceiling is None else min(window, ceiling)
