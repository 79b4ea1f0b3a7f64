"""The configuration in effect, and the models that the server has at the moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from mochi_stub.config.loader import Config
from mochi_stub.models.catalogue import Model

logger = logging.getLogger("mochi_stub")


class ModelRegistry:
    """Models by name, and the digests of the layers on disk. Used from the event loop only, once the server runs.

    The `declared` models are fixed or from a configuration that may change; they can be pulled again after they were
    deleted. `changes` counts what was done to the models.
    """

    def __init__(self, fixed: Iterable[Model], config: Callable[[], Config | None] = lambda: None) -> None:
        self._fixed = tuple(fixed)
        self._config = config
        self._models: dict[str, Model] = {}
        self.declared: tuple[Model, ...] = ()
        self.blobs: set[str] = set()
        self.changes = 0
        self._declare(config())

    @property
    def models(self) -> tuple[Model, ...]:
        config = self._config()
        if config is not self._of:
            self._declare(config)
        return tuple(self._models.values())

    def add(self, model: Model) -> None:
        self.changes += 1
        self._models[model.name] = model

    def remove(self, model: Model) -> None:
        self.changes += 1
        self._models.pop(model.name, None)

    def _declare(self, config: Config | None) -> None:
        """Replace the models that were declared before; what requests have added stays."""
        self._of = config
        self.changes += 1
        for model in self.declared:
            if self._models.get(model.name) is model:
                del self._models[model.name]
        self.declared = (*self._fixed, *(config.models if config else ()))
        self._models = {model.name: model for model in self.declared} | self._models
