"""Registry of models. The configuration and requests of clients can change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mochi_stub.config.loader import Config
from mochi_stub.models.catalogue import Model
from mochi_stub.models.gguf_file import GgufError


class ModelRegistry:
    """Registry of models and blobs. It is not thread-safe: use it from the event loop only.

    `declared` contains the `fixed` models and the models of the configuration. After a client deletes a declared model,
    clients can pull this model again. `blobs` maps digests to the result of `read_gguf` for the uploaded data, to the
    error that it raised, or to None for a layer that is not a file.
    """

    def __init__(self, fixed: Iterable[Model], config: Callable[[], Config | None] = lambda: None) -> None:
        self._fixed = tuple(fixed)
        self._config = config
        self._models: dict[str, Model] = {}
        self.declared: tuple[Model, ...] = ()
        self.blobs: dict[str, Mapping[str, Any] | GgufError | None] = {}
        self.changes = 0
        self._declare(config())

    @property
    def models(self) -> tuple[Model, ...]:
        config = self._config()
        if config is not self._declared_config:
            self._declare(config)
        return tuple(self._models.values())

    def add(self, model: Model) -> None:
        self.changes += 1
        self._models[model.name] = model

    def remove(self, model: Model) -> None:
        self.changes += 1
        self._models.pop(model.name, None)

    def _declare(self, config: Config | None) -> None:
        """Replace the declared models by those of `config`. Models that client requests added remain."""
        self._declared_config = config
        self.changes += 1
        for model in self.declared:
            if self._models.get(model.name) is model:
                del self._models[model.name]
        self.declared = (*self._fixed, *(config.models if config else ()))
        self._models = {model.name: model for model in self.declared} | self._models
