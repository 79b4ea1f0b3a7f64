"""How large a model's context window is: one answer per model, for whoever talks to it.

Ollama reloads a model whenever two callers disagree about ``num_ctx``, so nobody else may choose one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mochi_server.constants import DEFAULT_WINDOW, SAFE_WINDOW_RATIO
from mochi_server.ollama.requests import qualified
from mochi_server.ollama.types import ModelInfo

_HISTORY_KEPT = 10


@dataclass(frozen=True, slots=True)
class WindowDecision:
    """The window for one request. ``window`` is in tokens; None sends no ``num_ctx``."""

    window: int | None
    reason: str
    model_max: int | None


@dataclass(frozen=True, slots=True)
class Override:
    """A window that a person chose for a model, and the session they did it in."""

    window: int
    session_id: str


class WindowRegistry:
    """The windows of one Ollama's models. With ``dynamic`` false no window is ever chosen."""

    def __init__(self, *, dynamic: bool = True) -> None:
        self.dynamic = dynamic
        self._overrides: dict[str, Override | None] = {}

    def decide(
        self, model: ModelInfo, config: Mapping[str, Any], session_id: str, previous_model: str | None
    ) -> WindowDecision:
        """The window for a request of a session.

        ``config`` is the session's stored ``context_window_config``, ``previous_model`` the one that gave the
        session's latest answer, if there is one.
        """
        if not self.dynamic:
            return WindowDecision(None, "no_adjustment", model.context_length)
        self._remember(model, config, session_id)
        if override := self.override_of(model.name):
            return WindowDecision(override.window, "manual_override", model.context_length)
        window = first_rung(model.context_length)
        return WindowDecision(window, _reason(model.name, previous_model), model.context_length)

    def initial_config(self, model: ModelInfo) -> dict[str, Any]:
        """What a new session of a model stores."""
        override = self.override_of(model.name)
        return {
            "dynamic_enabled": self.dynamic,
            "current_window": first_rung(model.context_length) if self.dynamic else None,
            "last_adjustment": "initial_setup",
            "adjustment_history": [],
            "manual_override": False,
        } | ({"current_window": override.window} if override and self.dynamic else {})

    def adjusted(self, config: Mapping[str, Any], decision: WindowDecision, at: str) -> dict[str, Any]:
        """A session's stored config after a decision; its history keeps the last ten real changes."""
        history = config.get("adjustment_history")
        result = dict(config) | {
            "dynamic_enabled": self.dynamic,
            "current_window": decision.window,
            "adjustment_history": history if isinstance(history, list) else [],
        }
        if decision.reason == "no_adjustment":
            return result
        result["last_adjustment"] = decision.reason
        if decision.reason != "initial_setup" and decision.window != config.get("current_window"):
            entry = {"window": decision.window, "reason": decision.reason, "timestamp": at}
            result["adjustment_history"] = [*result["adjustment_history"], entry][-_HISTORY_KEPT:]
        return result

    def override(self, model: ModelInfo, window: int, session_id: str) -> int:
        """Set a model's window by hand, for all its sessions; returns it, capped at the model's maximum."""
        window = capped(window, model.context_length)
        self._overrides[qualified(model.name)] = Override(window, session_id)
        return window

    def release(self, model: str) -> None:
        """Return a model to windows chosen by the server."""
        self._overrides[qualified(model)] = None

    def override_of(self, model: str) -> Override | None:
        """The window set by hand for a model, if there is one."""
        return self._overrides.get(qualified(model))

    def _remember(self, model: ModelInfo, config: Mapping[str, Any], session_id: str) -> None:
        """Take up an override that a session stored before this process began."""
        window = config.get("current_window")
        untouched = qualified(model.name) not in self._overrides
        if untouched and config.get("manual_override") and isinstance(window, int):
            self.override(model, window, session_id)


def first_rung(model_max: int | None) -> int:
    """Tokens a conversation starts with: the smaller of 90 % of the model's maximum and 8192."""
    return DEFAULT_WINDOW if model_max is None else min(int(model_max * SAFE_WINDOW_RATIO), DEFAULT_WINDOW)


def capped(window: int, model_max: int | None) -> int:
    """A window that the model can have."""
    return window if model_max is None else min(window, model_max)


def _reason(model: str, previous_model: str | None) -> str:
    if previous_model is None:
        return "initial_setup"
    return "no_adjustment" if qualified(previous_model) == qualified(model) else "model_change"
