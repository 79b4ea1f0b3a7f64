"""The configuration in force: reloaded when its file changes, the last good one where the new one has a mistake."""

from __future__ import annotations

import logging
from pathlib import Path

from mochi_stub.config import Config, load_data
from mochi_stub.document import ConfigError
from mochi_stub.watch import Watched

logger = logging.getLogger("mochi_stub")


class LiveConfig:
    """A configuration that follows its file. `problem` says why the file as it is now is not in force."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError where the file cannot be used from the beginning."""
        self._watched = Watched(path, lambda data: load_data(data, path))
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
