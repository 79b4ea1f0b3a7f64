"""Automatic reload of a changed configuration file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mochi_stub.config.loader import Config, load
from mochi_stub.config.yaml_source import ConfigError, WatchedFile

logger = logging.getLogger("mochi_stub")


def reloading_config(path: Path) -> Callable[[], Config]:
    """Return a function that reloads the configuration file if it has changed, and returns the configuration.

    The function returns the last valid configuration. Raises ConfigError if the first load fails.
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
            logger.error("configuration not reloaded, the last valid configuration remains in use: error=%s", problem)
        elif logged and not problem:
            logger.info("configuration reloaded")
        logged = problem
        return config

    return current
