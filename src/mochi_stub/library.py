"""The models that the server has at the moment: what is declared, and what requests have added and removed since."""

from __future__ import annotations

from collections.abc import Iterable

from mochi_stub.catalogue import Model


class Library:
    """Models by name, and the digests of the layers on disk. Used from the event loop only, once the server runs.

    `declared` models can be pulled again after they were deleted; `changes` counts what was done to the models.
    """

    def __init__(self, declared: Iterable[Model] = ()) -> None:
        self._models: dict[str, Model] = {}
        self.declared: tuple[Model, ...] = ()
        self.blobs: set[str] = set()
        self.changes = 0
        self.declare(declared)

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(self._models.values())

    def declare(self, models: Iterable[Model]) -> None:
        """Take these instead of those that were declared before; what requests have added stays."""
        self.changes += 1
        for model in self.declared:
            if self._models.get(model.name) is model:
                del self._models[model.name]
        self.declared = tuple(models)
        self._models = {model.name: model for model in self.declared} | self._models

    def add(self, model: Model) -> None:
        self.changes += 1
        self._models[model.name] = model

    def remove(self, model: Model) -> None:
        self.changes += 1
        self._models.pop(model.name, None)
