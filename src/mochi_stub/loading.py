"""What a model is loaded with, and when that serves a request. Pure: nothing is loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mochi_stub.catalogue import Model

DEFAULT_CONTEXT = 4096
MIN_CONTEXT = 4
MIN_VISION_CONTEXT = 2048
LOWERED_CONTEXTS = (32768, 4096)
"""What a context that nobody asked for is lowered to where it does not fit into memory."""

LOAD_OPTIONS: Mapping[str, Any] = {
    "num_batch": 512,
    "num_gpu": -1,
    "main_gpu": 0,
    "use_mmap": None,
    "num_thread": 0,
    "draft_num_predict": 4,
}
"""The options besides `num_ctx` that count when a model is loaded, and what they are where they are left out."""


def effective_context(model: Model, options: Mapping[str, Any], default: int = DEFAULT_CONTEXT) -> int:
    """The context that the model is asked to have, never more than it was trained for.

    `options` are those in effect: what the request says over what the Modelfile says.
    """
    least = model.least_context or (MIN_VISION_CONTEXT if model.can("vision") else MIN_CONTEXT)
    return min(max(int(options.get("num_ctx") or default), least), model.context_length)


@dataclass(frozen=True)
class Shape:
    """How a model is loaded: tokens of context, whether somebody asked for that many, and the other settings."""

    context: int
    automatic: bool
    shift: bool
    settings: Mapping[str, Any]

    @classmethod
    def wanted(cls, model: Model, options: Mapping[str, Any], shift: bool, default: int | None) -> Shape:
        """`default` is the context for whoever asks for none; None is the machine's own."""
        given = options.keys() & LOAD_OPTIONS.keys()
        settings = {**LOAD_OPTIONS, **{name: options[name] for name in given}} if given else LOAD_OPTIONS
        context = effective_context(model, options, default or DEFAULT_CONTEXT)
        return cls(context, not options.get("num_ctx") and default is None, shift, settings)

    def serves(self, wanted: Shape) -> bool:
        """Whether a model loaded like this answers the request without a reload."""
        contexts = (self.automatic and wanted.automatic) or self.context == wanted.context
        if not contexts or self.shift != wanted.shift:
            return False
        return self.settings is wanted.settings or all(map(self._same, wanted.settings.items()))

    def _same(self, setting: tuple[str, Any]) -> bool:
        name, value = setting
        return bool(self.settings[name] == value or (name == "num_gpu" and value < 0))

    def contexts(self) -> list[int]:
        """The contexts to try, one after the other, until one fits into memory."""
        lower = [context for context in LOWERED_CONTEXTS if context < self.context]
        return [self.context, *(lower if self.automatic else ())]
