"""Which models are loaded, with which context, and until when. Nothing is really loaded.

Ollama's rules: a request that names `keep_alive` sets it for the model, one that does not keeps what was set, a reload
goes back to the default; the time runs from the end of the last request. Used from the event loop only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_stub.catalogue import Model

DEFAULT_KEEP_ALIVE = 300.0
DEFAULT_CONTEXT = 4096
MIN_CONTEXT = 4
MIN_VISION_CONTEXT = 2048


def effective_context(model: Model, options: Mapping[str, Any]) -> int:
    """The context that the model is loaded with, never more than it was trained for.

    `options` are those in effect: what the request says over what the Modelfile says.
    """
    least = MIN_VISION_CONTEXT if model.can("vision") else MIN_CONTEXT
    return min(max(int(options.get("num_ctx") or DEFAULT_CONTEXT), least), model.context_length)


@dataclass
class Loaded:
    """A model in memory. `keep_alive` in seconds; `idle_since` is None while a request runs."""

    model: Model
    context_length: int
    keep_alive: float = DEFAULT_KEEP_ALIVE
    running: int = 0
    idle_since: float = 0.0

    def expires_at(self, now: float) -> float:
        """Seconds since 1970; infinite where the model stays for ever."""
        return (now if self.running else self.idle_since) + self.keep_alive


class Scheduler:
    """The loaded models. `now` tells the time in seconds since 1970."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._loaded: dict[str, Loaded] = {}

    def begin(self, model: Model, options: Mapping[str, Any], keep_alive: float | None) -> Loaded:
        """Load the model, or use it as it is loaded; `end` must follow. `keep_alive` None: not given."""
        context = effective_context(model, options)
        loaded = self._current(model)
        if loaded is None or loaded.context_length != context:
            loaded = self._loaded[model.name] = Loaded(model, context)
        if keep_alive is not None:
            loaded.keep_alive = keep_alive
        loaded.running += 1
        return loaded

    def end(self, loaded: Loaded) -> None:
        """A request of the model is over."""
        loaded.running -= 1
        loaded.idle_since = self.now()

    def unload(self, model: Model) -> None:
        """Let the model go, now or when its running requests have ended."""
        loaded = self._current(model)
        if loaded is not None:
            loaded.keep_alive = 0.0

    def loaded(self) -> list[Loaded]:
        """What is in memory, the longest-lived first."""
        now = self.now()
        self._loaded = {name: entry for name, entry in self._loaded.items() if _alive(entry, now)}
        return sorted(self._loaded.values(), key=lambda entry: entry.expires_at(now), reverse=True)

    def _current(self, model: Model) -> Loaded | None:
        loaded = self._loaded.get(model.name)
        return loaded if loaded is not None and _alive(loaded, self.now()) else None


def _alive(loaded: Loaded, now: float) -> bool:
    return loaded.running > 0 or loaded.expires_at(now) > now
