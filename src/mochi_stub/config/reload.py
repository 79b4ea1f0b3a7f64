"""Reload of the configuration when its file changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mochi_stub.config.loader import Config, load
from mochi_stub.config.yaml_source import ConfigError, WatchedFile

logger = logging.getLogger("mochi_stub")


def reloading_config(path: Path) -> Callable[[], Config]:
    """Return a function that returns the current configuration of a file.

    If a changed file is invalid, the last valid configuration remains. Raises ConfigError if the file is invalid now.
    """
    watched = WatchedFile(path, lambda data: load(path, data))
    config, logged = watched.current(), ""

    def current() -> Config:
        nonlocal config, logged
        problem = ""
        try:
            config = watched.current()
        except ConfigError as error:
            problem = str(error)
        if problem and problem != logged:
            logger.error("configuration not reloaded, the last valid one remains in use: %s", problem)
        elif logged and not problem:
            logger.info("configuration reloaded")
        logged = problem
        return config

    return current
