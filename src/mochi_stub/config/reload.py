"""Reload of the configuration when its file changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from mochi_stub.config.loader import Config, load
from mochi_stub.config.yaml_source import ConfigError, WatchedFile

logger = logging.getLogger("mochi_stub")


def reloading_config(path: Path) -> Callable[[], Config]:
    """Return a function that returns the configuration in a file, read again when the file changes.

    If the new configuration has a mistake, the last one stays. Raises ConfigError if the file cannot be used at first.
    """
    watched = WatchedFile(path, lambda data: load(path, data))
    good, logged = watched.current(), ""

    def current() -> Config:
        nonlocal good, logged
        problem = ""
        try:
            good = watched.current()
        except ConfigError as error:
            problem = str(error)
        if problem and problem != logged:
            logger.error("the configuration stays as it was: %s", problem)
        elif logged and not problem:
            logger.info("configuration reloaded")
        logged = problem
        return good

    return current
