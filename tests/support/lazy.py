"""Modules that are imported when they are first used, so that collecting the tests does not import them."""

from importlib import import_module
from typing import Any


class LazyModule:
    """A module that is imported when the first of its public attributes is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for its marks in everything that a test module holds
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
