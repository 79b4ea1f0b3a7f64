"""The configuration in effect: reloaded when its file changes. If the new one has a mistake, the last one stays."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from mochi_stub.catalogue import Model
from mochi_stub.config import Config, load
from mochi_stub.document import ConfigError, Watched
from mochi_stub.library import Library

logger = logging.getLogger("mochi_stub")


class LiveConfig:
    """A configuration that follows its file. `problem` is the mistake in the file, if there is one."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._watched = Watched(path, lambda data: load(path, data))
        self._good = self._watched.current()
        self.problem: str | None = None

    @property
    def current(self) -> Config:
        try:
            self._good, problem = self._watched.current(), None
        except ConfigError as error:
            problem = str(error)
        if problem != self.problem:
            self.problem = problem
            if problem is None:
                logger.info("configuration reloaded")
            else:
                logger.error("the configuration stays as it was: %s", problem)
        return self._good


class ConfiguredLibrary(Library):
    """Fixed models, those of a configuration that may change, and those that requests have added."""

    def __init__(self, live: LiveConfig, models: Sequence[Model]) -> None:
        self._live = live
        self._config = live.current
        self._staying = tuple(models)
        super().__init__((*self._staying, *self._config.models))

    @property
    def models(self) -> tuple[Model, ...]:
        config = self._live.current
        if config is not self._config:
            self._config = config
            self.declare((*self._staying, *config.models))
        return super().models
