"""Registry of models. The configuration and requests of clients can change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mochi_stub.config.loader import Config
from mochi_stub.models.catalogue import Model


class ModelRegistry:
    """Registry of models. It is not thread-safe: use it from the event loop only.

    `declared` contains the models in `fixed` and the models of `config`, the configuration in use. After a client
    deletes a declared model, clients can pull this model again.
    """

    def __init__(self, fixed: Iterable[Model], load: Callable[[], Config | None] = lambda: None) -> None:
        self._fixed = tuple(fixed)
        self._load = load
        self._models: dict[str, Model] = {}
        self.declared: tuple[Model, ...] = ()
        self.changes = 0
        self._declare(load())

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(self._models.values())

    def refresh(self) -> None:
        """Replace the declared models if the configuration has changed."""
        if (config := self._load()) is not self.config:
            self._declare(config)

    def add(self, model: Model) -> None:
        self.changes += 1
        self._models[model.name] = model

    def remove(self, model: Model) -> None:
        self.changes += 1
        self._models.pop(model.name, None)

    def _declare(self, config: Config | None) -> None:
        """Replace the declared models by those of `config`. Models that client requests added remain."""
        self.config = config
        self.changes += 1
        for model in self.declared:
            if self._models.get(model.name) is model:
                del self._models[model.name]
        self.declared = (*self._fixed, *(config.models if config else ()))
        self._models = {model.name: model for model in self.declared} | self._models
